"""Checks of the storage that the claims of a release need."""

from __future__ import annotations

from ..kube import Json
from .cluster_state import ClusterState, Finding

DEFAULT_MARK = "storageclass.kubernetes.io/is-default-class"
# block storage: one node at a time. Source: the drivers' own documentation of their access modes.
BLOCK_ONLY = {
    "cinder.csi.openstack.org",
    "disk.csi.azure.com",
    "ebs.csi.aws.com",
    "kubernetes.io/aws-ebs",
    "kubernetes.io/no-provisioner",
    "openshift-storage.rbd.csi.ceph.com",
    "pd.csi.storage.gke.io",
    "topolvm.io",
    "vpc.block.csi.ibm.io",
}


def classes(facts: ClusterState) -> Finding:
    """The StorageClass of each claim exists and can be mounted by all pods."""
    known: dict[str, Json] = {
        each["metadata"]["name"]: each for each in facts.api.items("/apis/storage.k8s.io/v1/storageclasses")
    }
    used = []
    for volume in facts.claims:
        wanted = facts.site["storage"][volume]
        if wanted.get("existing") or facts.claim(volume):
            continue
        key = f"site.storage.{volume}"
        name = wanted["storageClass"] or _default(known)
        if name not in known:
            what = f"there is no StorageClass {name}" if name else "empty, and the cluster has no default StorageClass"
            return Finding(
                "error",
                f"{key}.storageClass: {what}",
                "the claim would stay Pending, and every pod with it",
                f"set {key}.storageClass to one of: {', '.join(sorted(known)) or 'none exist, install one'}",
            )
        if wanted["accessMode"] == "ReadWriteMany" and _block_only(known[name]):
            what = f"{key}: StorageClass {name} ({known[name]['provisioner']}) does not offer ReadWriteMany"
            return Finding("error", what, *_shared_storage(key, facts.phase["resources"]["nodes"]))
        used.append(f"{volume}: {name} {wanted['accessMode']}")
    return Finding.ok("; ".join(used) or "the claims are there")


def _shared_storage(key: str, nodes: int) -> tuple[str, str]:
    """Return why shared storage is asked for, and what to do without; the chart's _cluster.tpl says the same."""
    if nodes == 1:
        return (
            f"which {key}.accessMode asks for",
            f"set that to ReadWriteOnce, which keeps all pods of the release on one node, or {key}.storageClass to a class of shared "
            "storage",
        )
    return (
        f"the {nodes} pods of the job run on several nodes and share the volume",
        f"set {key}.storageClass to a class of shared storage, or phase.resources.nodes to 1 and {key}.accessMode to ReadWriteOnce",
    )


def _default(known: dict[str, Json]) -> str:
    for name, each in known.items():
        if each["metadata"].get("annotations", {}).get(DEFAULT_MARK) == "true":
            return name
    return ""


def _block_only(storage_class: Json) -> bool:
    if storage_class["provisioner"] == "rancher.io/local-path":
        # its class offers ReadWriteMany only with a shared folder, which is configured elsewhere by the class's name
        return "rwx" not in storage_class["metadata"]["name"]
    return storage_class["provisioner"] in BLOCK_ONLY
