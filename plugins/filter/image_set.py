"""Filter image_set: the platform's operators and other images as a configuration of oc-mirror."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..plugin_utils.kube import Json
from ..plugin_utils.olm_plan import Wanted, choice, in_order, pair, releases, span, wrong_names

DOCUMENTATION = r"""
name: image_set
short_description: The platform's operators and other images as a configuration of oc-mirror
description:
  - Returns C(document), the ImageSetConfiguration, and C(sources), the value of C(platform_sources) for the mirrored catalogs.
  - Returns C(wrong) instead, a sentence for each variable for which nothing can be mirrored.
version_added: 0.1.0
options:
  _input:
    description: Images by full reference, with a digest.
    type: list
    elements: str
    required: true
  openshift:
    description: OpenShift release of the cluster.
    type: str
    required: true
  table:
    description: The platform role's table of operators.
    type: dict
    required: true
  operators:
    description: C(platform_operators).
    type: list
    elements: str
    required: true
  release:
    description: C(trainlab_platform_release).
    type: str
    required: true
  channels:
    description: C(platform_channels).
    type: dict
    required: true
author:
  - The trainlab authors (@trainlab)
"""
EXAMPLES = r"""
- name: Show what a cluster without a way out needs
  ansible.builtin.debug:
    msg: "{{ images | trainlab.rhoai.image_set('4.20', table, ['gpu', 'rhoai'], '3.4', {}) }}"
"""
RETURN = r"""
_value:
  description: C(wrong), and C(document) and C(sources) if it is empty.
  type: dict
"""
INDEXES = {"redhat-operators": "redhat-operator-index", "certified-operators": "certified-operator-index"}
"""Image of each catalog in registry.redhat.io/redhat, by its CatalogSource on a connected cluster."""
ALONE = {
    "odf": "its packages depend on others; mirror it as the documentation of OpenShift Data Foundation says, and leave it out here"
}
"""Operators whose package is not enough."""


def image_set(
    images: list[str], openshift: str, table: Json, operators: list[str], release: str, channels: dict[str, str]
) -> Json:
    """Return document and sources, or what is wrong with the inventory."""
    wanted = Wanted(table, releases(), list(operators), str(release), channels, {}, {}, "Automatic")
    if errors := _wrong(wanted, str(openshift), images):
        return {"wrong": errors}
    return {
        "wrong": [],
        "document": _document(wanted, str(openshift), images),
        "sources": _sources(wanted, str(openshift)),
    }


class FilterModule:
    """Found by Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"image_set": image_set}


def _wrong(wanted: Wanted, openshift: str, images: list[str]) -> list[str]:
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


def _document(wanted: Wanted, openshift: str, images: list[str]) -> Json:
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


def _sources(wanted: Wanted, openshift: str) -> dict[str, str]:
    """Return platform_sources for the mirrored catalogs, by the names that oc-mirror gives to their CatalogSources."""
    return {
        name: f"cs-{INDEXES[wanted.table[name]['source']]}-v{openshift.replace('.', '-')}" for name in in_order(wanted)
    }
