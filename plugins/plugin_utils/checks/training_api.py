"""Which kind of job a release is, as the chart decides (charts/trainjob/templates/_cluster.tpl, trainjob.api)."""

from __future__ import annotations

from .. import jobs
from ..kube import FORBIDDEN, ApiError
from .cluster_state import ClusterState

JOBSET = ("jobset.x-k8s.io/v1alpha2", "jobsets")
"""What Trainer makes of a TrainJob; without its API Trainer does not run."""


def training_api(facts: ClusterState) -> str:
    """Return `pytorchjob` or `trainjob`, the one that is asked for or that `auto` is; empty when neither is served."""
    asked = str(facts.site["trainingApi"])
    if asked != "auto":
        return asked
    served = [name for name, kind in jobs.KINDS.items() if facts.api.serves(kind.group_version, kind.plural)]
    before = _before(facts, served)
    if before in served:
        return before
    if "trainjob" in served and facts.api.serves(*JOBSET):
        return "trainjob"
    return served[0] if served else ""


def _before(facts: ClusterState, served: list[str]) -> str:
    """Return what the release is; one whose ConfigMap does not say it was made when `auto` preferred a PyTorchJob. Empty without one."""
    try:
        held = facts.api.get(f"/api/v1/namespaces/{facts.namespace}/configmaps/{facts.release}")
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return ""
    if held is None:
        return ""
    return str((held.get("data") or {}).get("api") or (served[0] if served else ""))
