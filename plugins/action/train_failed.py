"""Action plugin train_failed: see plugins/modules/train_failed.py."""

from __future__ import annotations

from ..plugin_utils import jobs
from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import Json
from ..plugin_utils.platform_api import title
from ..plugin_utils.pods import name


class ActionModule(ClusterAction):
    """Removes what prevents a release from training again: Helm leaves an existing job as it is."""

    OPERATION = "removing failed jobs of release {release}"

    def run_on_cluster(self, args: Json) -> Json:
        """Remove the failed training jobs of the release, and each promotion that failed or waits for one; return their names, and all that were there."""
        failed: list[Json] = []
        present = []
        runs: set[str] = set()
        for kind in (*jobs.KINDS.values(), jobs.BATCH):
            for job in kind.of_release(self.api, args["namespace"], args["release"]):
                present.append(f"{kind.kind} {name(job)}")
                waits = kind is jobs.BATCH and jobs.run_of(job) in runs
                if waits or jobs.outcome(kind, job)[0] == "failed":
                    runs.add(jobs.run_of(job))
                    failed.append(job | {"apiVersion": kind.group_version, "kind": kind.kind})
        self.remove(failed, policy="Foreground")
        return {"changed": bool(failed), "objects": [title(job) for job in failed], "present": present}
