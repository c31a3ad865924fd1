"""What a cluster without a way out needs of the world's registries, as the configuration of oc-mirror; used by the filter image_set.

Format: ImageSetConfiguration of mirror.openshift.io/v2alpha1 (OpenShift documentation, "Mirroring images by using the oc-mirror plugin
v2"). oc-mirror follows no dependencies of packages, so each operator is named.
"""

from __future__ import annotations

from typing import Any

from .olm_plan import Wanted, choice, in_order, wrong_names
from .releases import pair, releases, span

Json = dict[str, Any]
INDEXES = {"redhat-operators": "redhat-operator-index", "certified-operators": "certified-operator-index"}
"""Image of each catalog in registry.redhat.io/redhat, by its CatalogSource on a connected cluster."""
ALONE = {
    "odf": "its packages depend on others; mirror it as the documentation of OpenShift Data Foundation says, and leave it out here"
}
"""Operators whose package is not enough."""


def wrong(wanted: Wanted, openshift: str, images: list[str]) -> list[str]:
    """Return why no image set can be written, as sentences with the variable and its remedy."""
    errors = wrong_names(wanted)
    if errors:
        return errors
    if openshift.count(".") != 1 or not openshift.replace(".", "").isdigit():
        return [f"platform_mirror_openshift is {openshift!r}; set it to the OpenShift release of the cluster, as 4.20"]
    first, *last = (pair(each) for each in releases()[wanted.release]["openshift"])
    if pair(openshift) < first or (last and pair(openshift) > last[0]):
        errors.append(
            f"platform_mirror_openshift is {openshift}, but OpenShift AI {wanted.release} is supported on {span(wanted.release)}; set "
            "another one, or another trainlab_platform_release"
        )
    errors += [
        f"image {image} is named without a digest; set image_base or trainlab_site.images.vllm, whichever names it, to one with @sha256:"
        for image in images
        if "@sha256:" not in image
    ]
    return errors + [f"platform_operators: {name}: {why}" for name, why in ALONE.items() if name in in_order(wanted)]


def image_set(wanted: Wanted, openshift: str, images: list[str]) -> Json:
    """Return the ImageSetConfiguration: the channel of each operator that the playbook would install, and images by reference."""
    catalogs: dict[str, list[Json]] = {}
    for name in in_order(wanted):
        entry, (channel, _source, _version) = wanted.table[name], choice(wanted, name)
        # the package's own default channel is not mirrored, and a package has to have one
        package = {"name": entry["package"], "defaultChannel": channel, "channels": [{"name": channel}]}
        catalogs.setdefault(entry["source"], []).append(package)
    operators = [
        {"catalog": f"registry.redhat.io/redhat/{INDEXES[source]}:v{openshift}", "packages": packages}
        for source, packages in catalogs.items()
    ]
    return {
        "apiVersion": "mirror.openshift.io/v2alpha1",
        "kind": "ImageSetConfiguration",
        "mirror": {"operators": operators, "additionalImages": [{"name": image} for image in images]},
    }


def sources(wanted: Wanted, openshift: str) -> dict[str, str]:
    """Return platform_sources for the mirrored catalogs, by the names that oc-mirror gives to their CatalogSources."""
    return {
        name: f"cs-{INDEXES[wanted.table[name]['source']]}-v{openshift.replace('.', '-')}" for name in in_order(wanted)
    }
