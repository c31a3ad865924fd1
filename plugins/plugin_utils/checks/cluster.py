"""Checks of what would block a job although the cluster has room: webhooks, queues smaller than the phase, gates, clocks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

from .. import jobs, kueue
from ..jobs import KINDS, stopped, waits_for, workload_of
from ..kube import Json
from .cluster_state import ClusterState, Finding, quantity

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
SKEW_SECONDS = 60.0
KSERVE_NAMESPACES = ("redhat-ods-applications", "kserve", "opendatahub")


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
    if not kueue.served(facts.api):
        if unknown := facts.api.get(f"/apis/{kueue.GROUP}"):
            versions = ", ".join(each["version"] for each in unknown["versions"])
            return Finding(
                "error",
                f"site.queue is {name}, but of Kueue's API the cluster serves {versions} only",
                f"this trainlab knows {' and '.join(kueue.VERSIONS)}",
                "take a newer trainlab",
            )
        return Finding(
            "error",
            f"site.queue is {name}, but the cluster has no Kueue",
            "the job would stay suspended forever",
            "install Kueue (on OpenShift playbooks/platform.yml does), or set site.queue to '' where jobs need no queue",
        )
    leads_to = facts.options.cluster_queue
    if leads_to:
        if facts.api.get(f"{kueue.path(facts.api, 'clusterqueues')}/{leads_to}"):
            return Finding.ok(f"LocalQueue {name} points, or will point, to ClusterQueue {leads_to}")
        return Finding(
            "error",
            f"trainlab_cluster_queue is {leads_to}, but there is no such ClusterQueue",
            "the job would stay suspended forever",
            f"{facts.api.kubectl} get clusterqueues; name one of them, or let playbooks/platform.yml make it (platform_queue)",
        )
    path = kueue.path(facts.api, "localqueues", facts.namespace)
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
                rules = hook.get("rules", [])
                if not service or not any(resources & set(rule.get("resources", [])) for rule in rules):
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


def _has_endpoint(facts: ClusterState, service: Json) -> bool:
    slices = facts.api.items(
        f"/apis/discovery.k8s.io/v1/namespaces/{service['namespace']}/endpointslices",
        f"kubernetes.io/service-name={service['name']}",
    )
    endpoints = [each for endpoint_slice in slices for each in endpoint_slice.get("endpoints") or []]
    return any(each.get("conditions", {}).get("ready") is not False for each in endpoints)


def queue_named_default(facts: ClusterState) -> Finding:
    """No LocalQueue `default`: Kueue puts every pod, build and server without a label into it."""
    names = [
        each["metadata"]["name"] for each in facts.api.items(kueue.path(facts.api, "localqueues", facts.namespace))
    ]
    if "default" not in names:
        return Finding.ok("no LocalQueue of that name") if names else Finding.skipped("no LocalQueue")
    return Finding(
        "warning",
        f"namespace {facts.namespace} has a LocalQueue named default",
        "Kueue holds every pod there until it has quota: builds, servers, the promotion Job",
        f"{facts.api.kubectl} -n {facts.namespace} delete localqueue default, and set site.queue to a queue of another name",
    )


def queue_quota(facts: ClusterState) -> Finding:
    """The ClusterQueue covers every resource of the job, and has enough of it for the job alone."""
    name = facts.site["queue"]
    if not name:
        return Finding.skipped("site.queue is empty")
    local = facts.api.get(f"{kueue.path(facts.api, 'localqueues', facts.namespace)}/{name}")
    leads_to = (local or {}).get("spec", {}).get("clusterQueue") or facts.options.cluster_queue
    cluster = facts.api.get(f"{kueue.path(facts.api, 'clusterqueues')}/{leads_to}") if leads_to else None
    if cluster is None:
        return Finding.skipped("see the check queue")
    for kind, queue_name, queue in (("LocalQueue", name, local or {}), ("ClusterQueue", leads_to, cluster)):
        if why := stopped(queue):
            return Finding(
                "error",
                f"{kind} {queue_name} {why}",
                "Kueue admits no job through it",
                "whoever runs the queue has to open or mend it, or set site.queue to another one",
            )
    owned, most = _quotas(cluster["spec"])
    borrows = []
    for resource, (wanted, key) in _wanted(facts).items():
        if resource not in owned:
            return Finding(
                "error",
                f"ClusterQueue {leads_to} does not cover {resource}, which the pods request"
                + ("" if key.startswith("phase.") else f" ({key})"),
                "Kueue never admits the job",
                f"add {resource} to its resourceGroups"
                + (", or empty site.queue" if key.startswith("phase.") else ", or take it out of the LimitRange"),
            )
        if most[resource] < wanted:
            return Finding(
                "error",
                f"ClusterQueue {leads_to} has {owned[resource]} of {resource}"
                f"{f' and may borrow {most[resource] - owned[resource]}' if most != owned else ''}, the job requests {wanted}",
                "Kueue never admits the job",
                f"raise its {'borrowingLimit' if most != owned else 'nominalQuota'}, or lower "
                f"{key if key.startswith('phase.') else 'what is ' + key} or phase.resources.nodes",
            )
        if owned[resource] < wanted:
            borrows.append(resource)
    if borrows:
        return Finding.skipped(f"ClusterQueue {leads_to} may borrow {', '.join(borrows)} from its cohort")
    return Finding.ok(f"ClusterQueue {leads_to} is big enough{_waiting(facts)}")


def _waiting(facts: ClusterState) -> str:
    """What the jobs of the release wait for in the queue, as the end of a sentence."""
    reasons = []
    for kind in jobs.KINDS.values():
        for job in kind.of_release(facts.api, facts.namespace, facts.release):
            if jobs.outcome(kind, job)[0] == "queued":
                why = waits_for(workload_of(facts.api, facts.namespace, job))
                reasons.append(f"; {kind.kind} {job['metadata']['name']} waits: {why or 'Kueue says nothing'}")
    return "".join(reasons)


def _quotas(spec: Json) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
    """What a ClusterQueue owns of each resource, and what it has at most, with what it may borrow from its cohort."""
    cohort = spec.get("cohort") or spec.get("cohortName")
    owned: dict[str, Decimal] = {}
    most: dict[str, Decimal] = {}
    for group in spec.get("resourceGroups") or []:
        for flavor in group["flavors"]:
            for each in flavor["resources"]:  # all pods of a job get one flavor, so quotas do not add up
                own, limit = quantity(each["nominalQuota"]), each.get("borrowingLimit")
                borrowed = Decimal("Infinity") if cohort and limit is None else quantity(limit)
                owned[each["name"]] = max(owned.get(each["name"], Decimal(0)), own)
                most[each["name"]] = max(most.get(each["name"], Decimal(0)), own + borrowed)
    return owned, most


def pull_window(facts: ClusterState) -> Finding:
    """If Kueue evicts a job whose pods are not ready in time, the image is on the nodes beforehand."""
    if not facts.site["queue"]:
        return Finding.skipped("site.queue is empty")
    config = facts.api.get("/apis/kueue.openshift.io/v1/kueues/cluster")
    policy = ((config or {}).get("spec", {}).get("config") or {}).get("gangScheduling", {}).get("policy", "None")
    if policy != "ByWorkload":
        return Finding.ok("Kueue sets no deadline for pods to be ready")
    ref = str(facts.site["images"]["trainer"])
    cold = [
        node["metadata"]["name"]
        for node in facts.usable_nodes
        if not any(ref in (each.get("names") or []) for each in node["status"].get("images", []))
    ]
    if not cold:
        return Finding.ok("the image is on every node")
    return Finding(
        "warning",
        f"Kueue gives pods 5 minutes to be ready, and {len(cold)} nodes ({', '.join(cold[:3])}) do not report {ref}",
        "pulling an image of several GB takes longer: the job is evicted and queued again, endlessly",
        "playbooks/image.yml -e image_prepull=true pulls it first; or set gangScheduling.policy of "
        f"`{facts.api.oc} edit kueue cluster` to None",
    )


def clocks(facts: ClusterState) -> Finding:
    """Nodes and this machine agree on the time: their leases are renewed every 10 s by the node's own clock."""
    leases = facts.api.items("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
    ready = {node["metadata"]["name"] for node in facts.usable_nodes}
    times = {
        each["metadata"]["name"]: datetime.fromisoformat(str(each["spec"]["renewTime"]).replace("Z", "+00:00"))
        for each in leases
        if each["metadata"]["name"] in ready and each.get("spec", {}).get("renewTime")
    }
    if not times:
        return Finding.skipped("no node has a lease")
    newest, oldest = max(times, key=lambda name: times[name]), min(times, key=lambda name: times[name])
    apart = (times[newest] - times[oldest]).total_seconds()
    if apart > SKEW_SECONDS:
        return Finding(
            "warning",
            f"the clocks of {newest} and {oldest} are {apart:.0f} s apart",
            "certificates and tokens are refused, and timestamps in logs of several ranks mislead",
            f"{facts.api.oc} debug node/{oldest} -- chroot /host chronyc tracking (and on {newest})",
        )
    here = abs((datetime.now(UTC) - times[newest]).total_seconds())
    if here > SKEW_SECONDS:
        return Finding(
            "warning",
            f"the clock of this machine and that of the cluster are {here:.0f} s apart",
            "tokens and certificates are refused as expired or not yet valid",
            "timedatectl set-ntp true on the machine that is wrong",
        )
    return Finding.ok(f"{len(times)} nodes within {SKEW_SECONDS:.0f} s")


def serving_mode(facts: ClusterState) -> Finding:
    """KServe's default mode is one that this cluster can do; the chart itself asks for plain Deployments."""
    if not facts.site["serving"]:
        return Finding.skipped("site.serving is false")
    for namespace in KSERVE_NAMESPACES:
        config_map = facts.api.get(f"/api/v1/namespaces/{namespace}/configmaps/inferenceservice-config")
        if config_map is not None:
            return _mode(facts, namespace, config_map.get("data") or {})
    return Finding.skipped("no inferenceservice-config")


def _mode(facts: ClusterState, namespace: str, data: Json) -> Finding:
    mode = json.loads(data.get("deploy") or "{}").get("defaultDeploymentMode", "Serverless")
    if mode in ("Serverless", "Knative") and not facts.api.serves("serving.knative.dev/v1", "services"):
        return Finding(
            "warning",
            f"KServe's default mode is {mode}, but the cluster has no Knative",
            "the chart itself requests RawDeployment, any other InferenceService would get no server",
            "DataScienceCluster: components.kserve.defaultDeploymentMode RawDeployment (2.25), or "
            f"{facts.api.kubectl} -n {namespace} edit configmap inferenceservice-config",
        )
    return Finding.ok(f"default {mode}")


def _wanted(facts: ClusterState) -> dict[str, tuple[Decimal, str]]:
    """What all pods of the job request together, by resource, and what sets it: a key, or a LimitRange that adds it."""
    asked, nodes = facts.phase["resources"], facts.phase["resources"]["nodes"]
    keys = {"cpu": "cpu", "memory": "memory", facts.site["gpuResource"]: "gpus_per_node"}
    result = {
        resource: (quantity(asked[key]) * nodes, f"phase.resources.{key}")
        for resource, key in keys.items()
        if quantity(asked.get(key))
    }
    for each in facts.api.items(f"/api/v1/namespaces/{facts.namespace}/limitranges"):
        for limit in each["spec"]["limits"]:
            if limit.get("type") == "Container":
                # a limit that is given without a request is the request
                for resource, amount in {**(limit.get("default") or {}), **(limit.get("defaultRequest") or {})}.items():
                    added = (quantity(amount) * nodes, f"added by LimitRange {each['metadata']['name']}")
                    result.setdefault(resource, added)
    return result
