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
    """Removes all attendees of a prefix if none are listed; those of another workshop, with another prefix, stay."""

    OPERATION = "removing attendees"

    def run_on_cluster(self, args: Json) -> Json:
        """Remove; returns changed and removed, one line for each object and file."""
        asked = {each["namespace"]: each["name"] for each in args["attendees"]}
        removed, names = self._cluster(asked, args["prefix"], args["timeout"])
        lines = removed + self._files(Path(args["dest"]).absolute(), names)
        return {"changed": bool(lines), "removed": lines}

    def _cluster(self, asked: dict[str, str], prefix: str, timeout: float) -> tuple[list[str], set[str]]:
        """Delete and wait; return a line for each object, and the attendees."""
        spaces, others = self._list("v1", "Namespace"), [item for kind in BESIDE for item in self._list(*kind)]
        known = labels.attendees(spaces) | asked
        if not asked:
            known |= {f"{prefix}{who}": who for item in others if (who := labels.attendee(item))}
            asked = {space: who for space, who in known.items() if space == f"{prefix}{who}"}
        mine = [space for space in spaces if space["metadata"]["name"] in asked]
        cluster_wide = [item for item in others if labels.attendee_space(item, known) in asked]
        shared = [item for kind in SHARED for item in self._list(*kind)] if len(mine) == len(spaces) else []
        # volumes after the claims that use them, and those are in the namespaces
        rounds = [mine, [*cluster_wide, *shared]]
        for resources in rounds:
            self.remove(resources, timeout)
        return [title(resource) for resources in rounds for resource in resources], set(asked.values())

    def _list(self, api_version: str, kind: str) -> list[Json]:
        marks = f"{labels.OWNER}={OWNER}" + ("" if kind == "ClusterRole" else f",{labels.ATTENDEE}")
        return self.api.listed(api_version, kind, selector=marks)

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
