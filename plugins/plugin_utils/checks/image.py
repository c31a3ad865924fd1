"""Checks of the trainer image: can nodes pull it, do they have it."""

from __future__ import annotations

from .cluster_state import ClusterState, Finding


def reference(facts: ClusterState) -> Finding:
    """The image is one that nodes can pull, or that is loaded onto them."""
    ref, policy = str(facts.site["images"]["trainer"]), facts.site["images"]["pullPolicy"]
    options = facts.options
    if options.image_build or options.image_source != "none":
        return Finding.ok("built here" if options.image_build else f"built on OpenShift from {options.image_source}")
    if ref and (policy == "Never" or not ref.startswith("localhost/")):
        return Finding.ok(ref)
    return Finding(
        "error",
        f"site.images.trainer is {ref or 'empty'}, which no node can pull",
        "it names an image on the machine that built it" if ref else "no registry offers the trainer image",
        "push the image (images/trainer/Containerfile) to a registry and set site.images.trainer in trainlab_site, best with "
        "its digest; -e trainlab_image_push=REGISTRY/NAME builds and pushes it here, on OpenShift "
        "-e trainlab_image_source=checkout builds it there",
    )


def image_known(facts: ClusterState) -> Finding:
    """Some node has the trainer image already."""
    ref = str(facts.site["images"]["trainer"])
    if not ref:
        return Finding.skipped("site.images.trainer is empty")
    for node in facts.nodes:
        if any(ref in (each.get("names") or []) for each in node["status"].get("images", [])):
            return Finding.ok(ref)
    return Finding(
        "warning",
        f"no node reports {ref}",
        "the first pods wait for its pull (several GB); a node reports only its 50 biggest images",
        "run playbooks/image.yml, or correct site.images.trainer",
    )
