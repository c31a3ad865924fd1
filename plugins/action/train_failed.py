"""Action plugin train_failed: see plugins/modules/train_failed.py."""

from __future__ import annotations

from ..plugin_utils import jobs
from ..plugin_utils.documented import DocumentedAction
from ..plugin_utils.kube import Json, connect
from ..plugin_utils.pods import name


class ActionModule(DocumentedAction):
    """Finds what prevents a release from training again."""

    def run_on_controller(self, args: Json) -> Json:
        """Return the failed training jobs of the release, and each promotion that failed or waits for one of them."""
        api, _version = connect(args["kubeconfig"], args["kube_context"])
        found: list[Json] = []
        runs: set[str] = set()
        for kind in (*jobs.KINDS.values(), jobs.BATCH):
            for job in kind.of_release(api, args["namespace"], args["release"]):
                waits = kind is jobs.BATCH and jobs.run_of(job) in runs
                if waits or jobs.outcome(kind, job)[0] == "failed":
                    runs.add(jobs.run_of(job))
                    found.append({"api_version": kind.group_version, "kind": kind.kind, "name": name(job)})
        return {"changed": False, "objects": found}
