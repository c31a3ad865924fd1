"""The checks of the role verify, one function each; `run_all` is called by the action plugin checks.

A check takes a ClusterState and returns a Finding; add one by writing it and naming it in BEFORE or AFTER below, one that returns
several in SEVERAL.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ..kube import ApiError
from . import cluster, created, inputs, openshift, resources, rights, storage, upgrade
from .cluster_state import ClusterState, Finding

Check = Callable[[ClusterState], Finding]
FORBIDDEN = (401, 403)

BEFORE: dict[str, Check] = {
    "training webhook": cluster.training_webhook,
    "serving webhook": cluster.serving_webhook,
    "serving mode": cluster.serving_mode,
    "queue": cluster.queue,
    "queue quota": cluster.queue_quota,
    "queue named default": cluster.queue_named_default,
    "pull window": cluster.pull_window,
    "storage": storage.classes,
    "nodes": resources.nodes_ready,
    "clocks": cluster.clocks,
    "GPUs": resources.gpus,
    "GPU taints": openshift.gpu_taints,
    "Node Feature Discovery": openshift.nfd,
    "GPU operator": openshift.gpu_operator,
    "OpenShift AI": openshift.openshift_ai,
    "training operator": openshift.training_operator,
    "user monitoring": openshift.monitoring,
    "hardware profile": openshift.hardware_profile,
    "versions": openshift.versions,
    "room for training": resources.training_fits,
    "room for serving": resources.serving_fits,
    "rights": rights.namespace_rights,
    "secrets": rights.secrets,
    "model": inputs.model_reference,
    "image reference": inputs.image_reference,
    "image registry": openshift.registry,
    "helm": inputs.helm,
}
AFTER: dict[str, Check] = {
    "namespace": created.namespace,
    "claims": created.claims_bound,
    "image": inputs.image_known,
    "run": created.run_state,
    "served model": created.served,
}


SEVERAL: dict[str, Callable[[ClusterState], list[Finding]]] = {
    "upgrade": upgrade.upgrade,
    "release": inputs.release,
}


def run_all(facts: ClusterState, stage: str) -> list[tuple[str, Finding]]:
    """Return the findings of a stage (`before` or `all`); what the user may not read is `skipped`, never `ok`."""
    single = BEFORE if stage == "before" else {**BEFORE, **AFTER}
    checks = {title: functools.partial(_as_list, check) for title, check in single.items()} | SEVERAL
    result = []
    for title, check in checks.items():
        try:
            result += [(title, finding) for finding in check(facts)]
        except ApiError as error:
            if error.status not in FORBIDDEN:
                raise
            result.append((title, Finding.skipped(f"not checked, this user may not: {error}")))
    return result


def _as_list(check: Check, facts: ClusterState) -> list[Finding]:
    return [check(facts)]
