"""Checks of what would block a job although the cluster has room: queues and quotas smaller than the phase, gates, clocks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

from .. import jobs
from ..jobs import stopped, waits_for, workload_of
from ..kube import Json
from .cluster_state import ClusterState, Finding, quantity

KUEUE = "/apis/kueue.x-k8s.io/v1beta1"
SKEW_SECONDS = 60.0
SMALL_POD, SMALL_KEY = {"cpu": "20m", "memory": "256Mi"}, "what promotion and test request"
"""As the chart's _room.tpl."""
Wanted = tuple[tuple[str, ...], Decimal, tuple[str, str, str]]
"""Entries of a ResourceQuota, how much of each is needed, and what is said where it is not left: what, why, fix."""
UNSAID = {
    "limits.ephemeral-storage": ("default",),
    "requests.ephemeral-storage": ("defaultRequest", "default"),
    "ephemeral-storage": ("defaultRequest", "default"),
}
"""Entries of a ResourceQuota for which no pod of the chart says an amount, and where a LimitRange would."""
KSERVE_NAMESPACES = ("redhat-ods-applications", "kserve", "opendatahub")


def queue_named_default(cluster_state: ClusterState) -> Finding:
    """No LocalQueue `default`: Kueue puts every pod, build and server without a label into it."""
    names = [
        each["metadata"]["name"]
        for each in cluster_state.api.items(f"{KUEUE}/namespaces/{cluster_state.namespace}/localqueues")
    ]
    if "default" not in names:
        return Finding.ok("no LocalQueue of that name") if names else Finding.skipped("no LocalQueue")
    return Finding(
        "warning",
        f"namespace {cluster_state.namespace} has a LocalQueue named default",
        "Kueue holds every pod there until it has quota: builds, servers, the promotion Job",
        f"{cluster_state.api.kubectl} -n {cluster_state.namespace} delete localqueue default, and set site.queue to a queue of another name",
    )


def queue_quota(cluster_state: ClusterState) -> Finding:
    """The ClusterQueue covers every resource of the job, and has enough of it for the job alone."""
    name = cluster_state.site["queue"]
    if not name:
        return Finding.skipped("site.queue is empty")
    local = cluster_state.api.get(f"{KUEUE}/namespaces/{cluster_state.namespace}/localqueues/{name}")
    leads_to = (local or {}).get("spec", {}).get("clusterQueue") or cluster_state.options.cluster_queue
    cluster = cluster_state.api.get(f"{KUEUE}/clusterqueues/{leads_to}") if leads_to else None
    if cluster is None:
        return Finding.skipped("see the check queue")
    for kind, one, queue in (("LocalQueue", name, local or {}), ("ClusterQueue", leads_to, cluster)):
        if why := stopped(queue):
            return Finding(
                "error",
                f"{kind} {one} {why}",
                "Kueue admits no job through it",
                "whoever runs the queue has to open or mend it, or set site.queue to another one",
            )
    owned, most = _quotas(cluster["spec"])
    borrows = []
    for resource, (wanted, key) in _wanted(cluster_state).items():
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
                f"raise its {'borrowingLimit' if most != owned else 'nominalQuota'}, or lower {key if key.startswith('phase.') else 'what is ' + key} or phase.resources.nodes",
            )
        if owned[resource] < wanted:
            borrows.append(resource)
    if borrows:
        return Finding.skipped(f"ClusterQueue {leads_to} may borrow {', '.join(borrows)} from its cohort")
    return Finding.ok(f"ClusterQueue {leads_to} is big enough{_waiting(cluster_state)}")


def _waiting(cluster_state: ClusterState) -> str:
    """What the jobs of the release wait for in the queue, as the end of a sentence."""
    said = []
    for kind in jobs.KINDS.values():
        for job in kind.of_release(cluster_state.api, cluster_state.namespace, cluster_state.release):
            if jobs.outcome(kind, job)[0] == "queued":
                why = waits_for(workload_of(cluster_state.api, cluster_state.namespace, job))
                said.append(f"; {kind.kind} {job['metadata']['name']} waits: {why or 'Kueue says nothing'}")
    return "".join(said)


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


def namespace_limits(cluster_state: ClusterState) -> Finding:
    """No LimitRange of the namespace makes the API server refuse pods or claims; the chart's _room.tpl says the same."""
    ranges = _ranges(cluster_state)
    for each in ranges:
        name = each["metadata"]["name"]
        for limit in each["spec"]["limits"]:
            if limit.get("type") == "PersistentVolumeClaim" and (found := _claims_within(cluster_state, name, limit)):
                return found
            if limit.get("type") not in ("Container", "Pod"):
                continue
            for resource, asked, key in _requested(cluster_state):
                most, least, given = (limit.get(bound, {}).get(resource) for bound in ("max", "min", "default"))
                if least is not None and quantity(least) > quantity(asked):
                    return Finding(
                        "error",
                        f"LimitRange {name}: a {limit['type']} has to have {least} of {resource} at least, {key} is {asked}",
                        "the API server refuses the pods",
                        f"lower it, or raise {key}" if key != SMALL_KEY else "lower it",
                    )
                if most is not None and quantity(most) < quantity(asked):
                    what = f"a {limit['type']} may have {most} of {resource} at most"
                elif given is not None and resource == "cpu" and quantity(given) < quantity(asked):
                    what = f"it limits containers to {given} of cpu by default"
                else:
                    continue
                return Finding(
                    "error",
                    f"LimitRange {name}: {what}, {key} is {asked}",
                    "the API server refuses the pods",
                    f"raise it, or lower {key}",
                )
            if found := _pods_without_limit(cluster_state, name, limit):
                return found
    return Finding.ok(", ".join(each["metadata"]["name"] for each in ranges)) if ranges else Finding.skipped("none")


def _claims_within(cluster_state: ClusterState, name: str, limit: Json) -> Finding | None:
    most, least = (limit.get(bound, {}).get("storage") for bound in ("max", "min"))
    for volume, size in _new_claims(cluster_state).items():
        if most is not None and quantity(most) < quantity(size):
            what, remedy = f"may have {most} of storage at most", "raise it"
        elif least is not None and quantity(least) > quantity(size):
            what, remedy = f"has to have {least} of storage at least", "lower it"
        else:
            continue
        return Finding(
            "error",
            f"LimitRange {name}: a PersistentVolumeClaim {what}, {cluster_state.claims[volume]} requests {size}",
            "the API server refuses the claim",
            f"{remedy}, or set site.storage.{volume}.size",
        )
    return None


def _pods_without_limit(cluster_state: ClusterState, name: str, limit: Json) -> Finding | None:
    """For containers the API server makes a default of it (k8s.io/kubernetes, defaults.go: SetDefaults_LimitRangeItem)."""
    most = limit.get("max", {}).get("cpu")
    if limit["type"] != "Pod" or most is None or _default(cluster_state, "cpu", ("default",)):
        return None
    return Finding(
        "error",
        f"LimitRange {name}: a Pod may have {most} of cpu at most, and no LimitRange sets a limit",
        "the API server refuses pods without a CPU limit, and a limit slows all ranks of a job",
        f"remove max.cpu from it, or give namespace {cluster_state.namespace} a LimitRange with a default",
    )


def namespace_quota(cluster_state: ClusterState) -> Finding:
    """What the namespace's quotas have left is enough, and none of them requires a CPU limit; the chart's _room.tpl says the same."""
    quotas = cluster_state.api.items(f"/api/v1/namespaces/{cluster_state.namespace}/resourcequotas")
    if not quotas:
        return Finding.skipped("no quota")
    pods = f"/api/v1/namespaces/{cluster_state.namespace}/pods"
    upgrade = bool(cluster_state.api.items(pods, f"app.kubernetes.io/instance={cluster_state.release}"))
    of_claims = _of_claims(cluster_state)
    for each in quotas:
        if not (counts := _counts(each["spec"], cluster_state.site)):
            continue
        # Of a release that has pods, what is in use may be its own.
        pods_themselves = [] if upgrade else _pods_themselves(cluster_state, counts)
        wanted = [*_of_pods(cluster_state, counts), *pods_themselves, *of_claims]
        hard, used = each["spec"].get("hard") or {}, (each.get("status") or {}).get("used") or {}
        name = each["metadata"]["name"]
        if "limits.cpu" in hard and not _default(cluster_state, "cpu", ("default",)):
            return Finding(
                "error",
                f"ResourceQuota {name} counts limits.cpu, and no LimitRange sets one",
                "the API server refuses pods without a CPU limit, and a limit slows all ranks of a job",
                f"remove limits.cpu from it, or give namespace {cluster_state.namespace} a LimitRange with a default",
            )
        for entry, sources in UNSAID.items():
            if entry in hard and not _default(cluster_state, "ephemeral-storage", sources):
                return Finding(
                    "error",
                    f"ResourceQuota {name} counts {entry}, and no LimitRange sets one",
                    "the API server refuses pods without it",
                    f"remove {entry} from it, or give namespace {cluster_state.namespace} a LimitRange with a {sources[0]}",
                )
        for entries, amount, (what, why, fix) in wanted:
            for entry in entries:
                if entry in hard and quantity(hard[entry]) - quantity(used.get(entry)) < amount:
                    return Finding(
                        "error",
                        f"ResourceQuota {name}: {entry} is {hard[entry]}, {used.get(entry, 0)} in use, {what}",
                        why,
                        fix,
                    )
    return Finding.ok(", ".join(each["metadata"]["name"] for each in quotas))


def _counts(spec: Json, site: Json) -> list[str]:
    """Return whose pods a quota counts, of `job`, `server` and `promotion`; the chart's trainjob.quotaCounts says why."""
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or []]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or []

    def within(scope: Json, pods: str) -> bool:
        if scope["scopeName"] == "PriorityClass":
            given, classes = "" if pods == "promotion" else site["priorityClass"], scope.get("values") or []
            named = {"Exists": True, "In": given in classes, "NotIn": given not in classes}
            return bool(given) and named.get(scope["operator"], False)
        return scope["scopeName"] in ("NotBestEffort", "Terminating" if pods == "job" else "NotTerminating")

    made = ("job", "server", "promotion") if site["serving"] else ("job",)
    return [pods for pods in made if all(within(scope, pods) for scope in scopes)]


def pull_window(cluster_state: ClusterState) -> Finding:
    """If Kueue evicts a job whose pods are not ready in time, the image is on the nodes beforehand."""
    if not cluster_state.site["queue"]:
        return Finding.skipped("site.queue is empty")
    config = cluster_state.api.get("/apis/kueue.openshift.io/v1/kueues/cluster")
    policy = ((config or {}).get("spec", {}).get("config") or {}).get("gangScheduling", {}).get("policy", "None")
    if policy != "ByWorkload":
        return Finding.ok("Kueue sets no deadline for pods to be ready")
    ref = str(cluster_state.site["images"]["trainer"])
    cold = [
        node["metadata"]["name"]
        for node in cluster_state.usable_nodes
        if not any(ref in (each.get("names") or []) for each in node["status"].get("images", []))
    ]
    if not cold:
        return Finding.ok("the image is on every node")
    return Finding(
        "warning",
        f"Kueue gives pods 5 minutes to be ready, and {len(cold)} nodes ({', '.join(cold[:3])}) do not report {ref}",
        "pulling an image of several GB takes longer: the job is evicted and queued again, endlessly",
        "playbooks/image.yml -e image_prepull=true pulls it first; or set gangScheduling.policy of "
        f"`{cluster_state.api.oc} edit kueue cluster` to None",
    )


def clocks(cluster_state: ClusterState) -> Finding:
    """Nodes and this machine agree on the time: their leases are renewed every 10 s by the node's own clock."""
    leases = cluster_state.api.items("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
    ready = {node["metadata"]["name"] for node in cluster_state.usable_nodes}
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
            f"{cluster_state.api.oc} debug node/{oldest} -- chroot /host chronyc tracking (and on {newest})",
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


def serving_mode(cluster_state: ClusterState) -> Finding:
    """KServe's default mode is one that this cluster can do; the chart itself asks for plain Deployments."""
    if not cluster_state.site["serving"]:
        return Finding.skipped("site.serving is false")
    for namespace in KSERVE_NAMESPACES:
        found = cluster_state.api.get(f"/api/v1/namespaces/{namespace}/configmaps/inferenceservice-config")
        if found is not None:
            return _mode(cluster_state, namespace, found.get("data") or {})
    return Finding.skipped("no inferenceservice-config")


def _mode(cluster_state: ClusterState, namespace: str, data: Json) -> Finding:
    mode = json.loads(data.get("deploy") or "{}").get("defaultDeploymentMode", "Serverless")
    if mode in ("Serverless", "Knative") and not cluster_state.api.serves("serving.knative.dev/v1", "services"):
        return Finding(
            "warning",
            f"KServe's default mode is {mode}, but the cluster has no Knative",
            "the chart itself requests RawDeployment, any other InferenceService would get no server",
            "DataScienceCluster: components.kserve.defaultDeploymentMode RawDeployment (2.25), or "
            f"{cluster_state.api.kubectl} -n {namespace} edit configmap inferenceservice-config",
        )
    return Finding.ok(f"default {mode}")


def _wanted(cluster_state: ClusterState) -> dict[str, tuple[Decimal, str]]:
    """What all pods of the job request together, by resource, and what sets it: a key, or a LimitRange that adds it."""
    nodes = cluster_state.phase["resources"]["nodes"]
    found = {
        resource: (quantity(asked) * nodes, key)
        for resource, asked, key in _requested(cluster_state)
        if key.startswith("phase.resources.")
    }
    for each in _ranges(cluster_state):
        for limit in each["spec"]["limits"]:
            if limit.get("type") == "Container":
                # a limit that is given without a request is the request
                for resource, amount in {**(limit.get("default") or {}), **(limit.get("defaultRequest") or {})}.items():
                    added = (quantity(amount) * nodes, f"added by LimitRange {each['metadata']['name']}")
                    found.setdefault(resource, added)
    return found


def _of_pods(cluster_state: ClusterState, counts: list[str]) -> list[Wanted]:
    """What the job takes of a quota that counts it, and the server alone: by then the job has ended."""
    nodes = cluster_state.phase["resources"]["nodes"]
    found = []
    for resource, asked, key in _requested(cluster_state):
        entries = (f"requests.{resource}", resource, *(("limits.memory",) if resource == "memory" else ()))
        room = "raise it, free what is in use, or lower"
        if key.startswith("phase.resources."):
            if "job" not in counts:
                continue
            says = (
                f"the job requests {nodes} times {asked}",
                "pods of the job could not be created",
                f"{room} {key} or phase.resources.nodes",
            )
            found.append((entries, quantity(asked) * nodes, says))
        elif key != SMALL_KEY and "server" in counts:
            says = (f"the server requests {asked}", "its pod could not be created", f"{room} {key}")
            found.append((entries, quantity(asked), says))
    return found


def _pods_themselves(cluster_state: ClusterState, counts: list[str]) -> list[Wanted]:
    """How many of these pods there are: `pods` counts those that have not ended, `count/pods` all."""
    found = []
    for entry, how in (("pods", "at once"), ("count/pods", "that stay")):
        made = {"job": cluster_state.phase["resources"]["nodes"], "promotion": 1, "server": 1}
        made = {pods: number for pods, number in made.items() if pods in counts}
        why, fix = "the server could not be created", "raise it, or free what is in use"
        if "job" in made:
            why, fix = (
                "pods of the job could not be created",
                "raise it, free what is in use, or lower phase.resources.nodes",
            )
            if entry == "pods":  # the server comes when the job has ended, whose pods are as many at least
                made.pop("server", None)
        total, parts = sum(made.values()), ", ".join(f"{number} of the {pods}" for pods, number in made.items())
        found.append(((entry,), Decimal(total), (f"the release makes {total} {how}: {parts}", why, fix)))
    return found


def _new_claims(cluster_state: ClusterState) -> dict[str, str]:
    """Return the size of each claim that the release makes and that is not there yet, by its volume."""
    storage, needs = cluster_state.site["storage"], cluster_state.phase.get("needs") or {}
    return {
        volume: str(storage[volume].get("size") or needs.get(volume) or "0")
        for volume in cluster_state.claims
        if not storage[volume].get("existing") and cluster_state.claim(volume) is None
    }


def _of_claims(cluster_state: ClusterState) -> list[Wanted]:
    """What the claims that are not there yet take of a quota."""
    storage, new = cluster_state.site["storage"], _new_claims(cluster_state)
    if not new:
        return []
    found: list[Wanted] = []
    for volume, size in new.items():
        if name := storage[volume].get("storageClass"):
            says = (
                f"claim {cluster_state.claims[volume]} requests {size}",
                "it could not be made",
                f"raise it, free what is in use, or set site.storage.{volume}.size",
            )
            found.append(((f"{name}.storageclass.storage.k8s.io/requests.storage",), quantity(size), says))
    keys = [f"site.storage.{volume}" for volume in new]
    says = (
        f"the claims request {' and '.join(new.values())}",
        "they could not be made",
        f"raise it, free what is in use, or set {'.size or '.join(keys)}.size",
    )
    found.append((("requests.storage",), sum((quantity(size) for size in new.values()), Decimal(0)), says))
    says = (
        f"the release makes {len(new)}",
        "they could not be made",
        f"raise it, delete those that nobody needs, or name one that exists with {'.existing or '.join(keys)}.existing",
    )
    found.append((("persistentvolumeclaims", "count/persistentvolumeclaims"), Decimal(len(new)), says))
    return found


def _requested(cluster_state: ClusterState) -> list[tuple[str, str, str]]:
    """What a pod of the job, of the server, and of the chart's own others, requests: resource, amount, key."""
    blocks = [("phase.resources", "gpus_per_node")] + [("phase.serve", "gpus")] * cluster_state.site["serving"]
    found = []
    for block, gpus in blocks:
        asked = cluster_state.phase[block.removeprefix("phase.")]
        for resource, key in (("cpu", "cpu"), ("memory", "memory"), (cluster_state.site["gpuResource"], gpus)):
            if quantity(asked.get(key)):
                found.append((resource, str(asked[key]), f"{block}.{key}"))
    return found + [(resource, amount, SMALL_KEY) for resource, amount in SMALL_POD.items()]


def _default(cluster_state: ClusterState, resource: str, sources: tuple[str, ...]) -> bool:
    """Tell whether a LimitRange gives this resource to containers without, by one of these keys."""
    limits = [limit for each in _ranges(cluster_state) for limit in each["spec"]["limits"]]
    return any(resource in (limit.get(source) or {}) for limit in limits for source in sources)


def _ranges(cluster_state: ClusterState) -> list[Json]:
    return cluster_state.api.items(f"/api/v1/namespaces/{cluster_state.namespace}/limitranges")
