"""Checks of what the cluster offers: APIs, the webhooks behind them, the queue."""

from __future__ import annotations

from ..jobs import KINDS, KUEUE
from ..kube import Json
from .cluster_state import ClusterState, Finding

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"


def training_webhook(facts: ClusterState) -> Finding:
    """The operator answers: the API server refuses every job while its webhook is down."""
    return _webhook(facts, {kind.plural for kind in KINDS.values()}, "training jobs")


def serving_webhook(facts: ClusterState) -> Finding:
    """KServe's webhook answers."""
    if not facts.site["serving"]:
        return Finding.skipped("site.serving is false")
    return _webhook(facts, {"inferenceservices"}, "InferenceServices")


def queue(facts: ClusterState) -> Finding:
    """The LocalQueue exists when one is named."""
    name = facts.site["queue"]
    if not name:
        return Finding.skipped("site.queue is empty")
    if not facts.api.serves(KUEUE, "localqueues"):
        return Finding("error", f"site.queue is {name}, but the cluster has no Kueue", "", "set site.queue to ''")
    leads_to = facts.options.cluster_queue
    if leads_to:
        if facts.api.get(f"/apis/{KUEUE}/clusterqueues/{leads_to}"):
            return Finding.ok(f"LocalQueue {name} points, or will point, to ClusterQueue {leads_to}")
        return Finding(
            "error",
            f"trainlab_cluster_queue is {leads_to}, but there is no such ClusterQueue",
            "the job would stay suspended forever",
            f"{facts.api.kubectl} get clusterqueues; name one of them, or let playbooks/platform.yml make it (platform_queue)",
        )
    path = f"/apis/{KUEUE}/namespaces/{facts.namespace}/localqueues"
    if facts.api.get(f"{path}/{name}"):
        return Finding.ok(f"LocalQueue {name}")
    known = ", ".join(each["metadata"]["name"] for each in facts.api.items(path)) or "none"
    return Finding(
        "error",
        f"site.queue is {name}, but namespace {facts.namespace} has no such LocalQueue (there: {known})",
        "the job would stay suspended forever",
        "name a queue that exists, or set trainlab_cluster_queue so that the role workspace creates this one",
    )


def _webhook(facts: ClusterState, resources: set[str], what: str) -> Finding:
    """Each admission webhook for these resources has a ready endpoint."""
    seen = []
    for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        for configuration in facts.api.items(f"{WEBHOOKS}/{kind}"):
            for hook in configuration.get("webhooks", []):
                service = hook["clientConfig"].get("service")
                if not service or not _about(hook, resources):
                    continue
                place = f"{service['namespace']}/{service['name']}"
                if place in seen:
                    continue
                seen.append(place)
                if not _has_endpoint(facts, service):
                    return Finding(
                        "error",
                        f"webhook {hook['name']}: its Service {place} has no ready pod",
                        f"until then the API server refuses all {what}",
                        f"{facts.api.kubectl} -n {service['namespace']} get pods; wait for the operator or fix it",
                    )
    return Finding.ok(f"ready: {', '.join(seen)}") if seen else Finding.skipped(f"no webhook for {what}")


def _about(hook: Json, resources: set[str]) -> bool:
    return any(resources & set(rule.get("resources", [])) for rule in hook.get("rules", []))


def _has_endpoint(facts: ClusterState, service: Json) -> bool:
    slices = facts.api.items(
        f"/apis/discovery.k8s.io/v1/namespaces/{service['namespace']}/endpointslices",
        f"kubernetes.io/service-name={service['name']}",
    )
    endpoints = [each for one in slices for each in one.get("endpoints") or []]
    return any(each.get("conditions", {}).get("ready") is not False for each in endpoints)
