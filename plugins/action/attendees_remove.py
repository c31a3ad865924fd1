"""Removes attendees: what carries their owner label, in the cluster and in the folder of kubeconfigs, and nothing else."""

from __future__ import annotations

from pathlib import Path

from ..plugin_utils import kueue, labels
from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import Json
from ..plugin_utils.platform_api import title

OWNER = "attendees"
RBAC = "rbac.authorization.k8s.io/v1"
BESIDE = (
    (RBAC, "ClusterRoleBinding"),
    (RBAC, "RoleBinding"),
    ("v1", "PersistentVolume"),
    (kueue.NEWEST, "ClusterQueue"),
)
"""What lies outside the attendees' namespaces; each carries the attendee's name as a label."""
SHARED = ((RBAC, "ClusterRole"),)
"""What all of them share; removed with the last one."""


class ActionModule(ClusterAction):
    """Removes all attendees if none are listed."""

    OPERATION = "removing attendees"

    def run_on_cluster(self, args: Json) -> Json:
        """Remove; returns changed and removed, one line for each object and file."""
        removed = self._cluster([each["name"] for each in args["attendees"]], args["timeout"])
        names = {each["name"] for each in args["attendees"]} | {name for _line, name in removed if name}
        lines = [line for line, _owner in removed] + self._files(Path(args["dest"]).absolute(), names)
        return {"changed": bool(lines), "removed": lines}

    def _cluster(self, names: list[str], timeout: float) -> list[tuple[str, str]]:
        """Delete and wait; return (line, attendee) for each object."""
        spaces = self._list("v1", "Namespace", names)
        cluster_wide = [item for kind in BESIDE for item in self._list(*kind, names)]
        left = {_name(space) for space in self._list("v1", "Namespace", [])} - {_name(space) for space in spaces}
        shared = [] if left else [item for kind in SHARED for item in self._list(*kind, [])]
        # volumes after the claims that use them, and those are in the namespaces
        rounds = [spaces, [*cluster_wide, *shared]]
        for resources in rounds:
            self.remove(resources, timeout)
        return [(title(resource), _name(resource)) for resources in rounds for resource in resources]

    def _list(self, api_version: str, kind: str, names: list[str]) -> list[Json]:
        marks = f"{labels.OWNER}={OWNER}" + ("" if kind == "ClusterRole" else f",{labels.ATTENDEE}")
        items = self.api.listed(api_version, kind, selector=marks)
        return [item for item in items if not names or _name(item) in names]

    def _files(self, folder: Path, names: set[str]) -> list[str]:
        """Remove the kubeconfigs of these attendees, and the folder when nothing else is in it."""
        gone = [file for name in sorted(names) if (file := folder / f"{name}.kubeconfig").exists()]
        if folder.is_dir() and {each.name for each in folder.iterdir()} - {each.name for each in gone} == {"site.yaml"}:
            gone.append(folder / "site.yaml")
        if not self.check:
            for file in gone:
                file.unlink()
            if gone and not any(folder.iterdir()):
                folder.rmdir()
        return [str(file) for file in gone]


def _name(resource: Json) -> str:
    """The attendee an object belongs to; empty for what they share."""
    return str((resource["metadata"].get("labels") or {}).get(labels.ATTENDEE, ""))
