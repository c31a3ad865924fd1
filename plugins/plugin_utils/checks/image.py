"""Checks of the trainer image: can nodes pull it, have they got it."""

from __future__ import annotations

from .cluster_state import ClusterState, Finding


def reference(cluster_state: ClusterState) -> Finding:
    """The image is one that nodes can pull, or that is brought to them."""
    ref, policy = str(cluster_state.site["images"]["trainer"]), cluster_state.site["images"]["pullPolicy"]
    if cluster_state.options.image_build or policy == "Never" or not ref.startswith("localhost/"):
        return Finding.ok("built here" if cluster_state.options.image_build else ref)
    return Finding(
        "error",
        f"site.images.trainer is {ref}, which no node can pull",
        "it names an image on the machine that built it",
        "push the image (images/trainer/Containerfile) to a registry and set site.images.trainer in trainlab_site, "
        "best with its digest",
    )


def image_known(cluster_state: ClusterState) -> Finding:
    """Some node has the trainer image already."""
    ref = str(cluster_state.site["images"]["trainer"])
    for node in cluster_state.nodes:
        if any(ref in (each.get("names") or []) for each in node["status"].get("images", [])):
            return Finding.ok(ref)
    return Finding(
        "warning",
        f"no node reports {ref}",
        "the first pods wait for its pull (several GB); a node reports its 50 biggest images only",
        "run playbooks/image.yml, or correct site.images.trainer",
    )
