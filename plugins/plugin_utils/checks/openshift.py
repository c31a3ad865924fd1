"""Checks of what OpenShift's operators report: NFD, GPU operator, OpenShift AI, registry, versions that fit together."""

from __future__ import annotations

import json

import yaml

from ..contradictions import MANAGED, REMOVED, TRAINS
from ..gpu_inventory import NVIDIA_LABELS, judge_gpus
from ..kube import Json
from ..olm_plan import pair, releases, span
from ..platform_ready import READY
from .cluster_state import ClusterState, Finding, quantity, tolerates, tolerations
from .resources import awaited, coming
from .training_api import JOBSET, training_api

CSVS = "/apis/operators.coreos.com/v1alpha1/namespaces/{}/clusterserviceversions"
DSC = "datasciencecluster.opendatahub.io"
PROFILES = "infrastructure.opendatahub.io"
MONITORING = "/api/v1/namespaces/openshift-monitoring/configmaps/cluster-monitoring-config"
REGISTRY = "image-registry.openshift-image-registry.svc"


def nfd(facts: ClusterState) -> Finding:
    """Node Feature Discovery has found the GPUs' nodes, and is as new as the cluster."""
    if not _wants_gpus(facts):
        return Finding.skipped("the phase requests no GPU")
    seen = any(
        (node["metadata"].get("labels") or {}).get(key) == "true" for node in facts.nodes for key in NVIDIA_LABELS
    )
    if not seen:
        if any(_gpus(facts, node) for node in facts.nodes):
            return Finding.skipped("nodes offer GPUs without its labels")
        more = coming(facts)
        if more and _installed(facts, "openshift-nfd", "nfd."):
            return awaited(f"no node carries the label {NVIDIA_LABELS[0]} yet", more)
        return Finding(
            "error",
            f"no node carries the label {NVIDIA_LABELS[0]}",
            "Node Feature Discovery is missing, or no node has an NVIDIA GPU: the GPU operator then does nothing",
            'playbooks/platform.yml -e \'{"platform_operators": ["gpu"]}\', and add a machine with a GPU',
        )
    cluster, operator = _openshift(facts), _installed(facts, "openshift-nfd", "nfd.")
    if cluster and operator and pair(operator) < cluster:
        return Finding(
            "warning",
            f"Node Feature Discovery {operator} is older than OpenShift {cluster[0]}.{cluster[1]}",
            "its labels of kernel and system, by which the GPU driver is chosen, may be missing",
            f"{facts.api.oc} -n openshift-nfd get installplans; approve the pending one, or set its channel to stable",
        )
    return Finding.ok("nodes with GPUs are labeled")


def gpu_operator(facts: ClusterState) -> Finding:
    """The ClusterPolicy is ready and nodes offer GPUs: driver, container toolkit and device plugin work."""
    if not _wants_gpus(facts):
        return Finding.skipped("the phase requests no GPU")
    if not facts.api.serves("nvidia.com/v1", "clusterpolicies"):
        return Finding.skipped("the cluster has no ClusterPolicy: GPUs are offered another way")
    policies = facts.api.items("/apis/nvidia.com/v1/clusterpolicies")
    if not policies:
        return Finding(
            "error",
            "the GPU operator is installed, but there is no ClusterPolicy",
            "nothing installs the driver",
            'playbooks/platform.yml -e \'{"platform_operators": ["gpu"]}\'',
        )
    # the same judgment as that of playbooks/platform.yml: its state is ready, too, without any GPU
    verdict, name = judge_gpus(policies[0], facts.nodes), policies[0]["metadata"]["name"]
    if verdict.state == READY and not verdict.note:
        return Finding.ok(f"ClusterPolicy {name}: {verdict.text}")
    more = coming(facts) if READY in (verdict.state, verdict.turns) else []
    if more:
        return awaited(f"ClusterPolicy {name}: {verdict.text}", more)
    return Finding(
        "error",
        f"ClusterPolicy {name}: {verdict.text}",
        "no GPU can be allocated until it is ready and a node offers one (the first driver build takes up to 20 minutes)",
        f"{facts.api.oc} -n nvidia-gpu-operator get pods; the driver's pods say more",
    )


def gpu_taints(facts: ClusterState) -> Finding:
    """The taints of GPU nodes are tolerated: by the chart, which tolerates the resource's own and, for a slice, that of whole GPUs, or by the site."""
    nodes = [node for node in facts.nodes if _gpus(facts, node)]
    if not _wants_gpus(facts) or not nodes:
        return Finding.skipped("no GPU is requested or offered")
    known = tolerations(facts.site, facts.phase, 1)
    blocked = {}
    for node in nodes:
        for taint in node.get("spec", {}).get("taints", []):
            if taint["effect"] in ("NoSchedule", "NoExecute") and not any(tolerates(each, taint) for each in known):
                blocked.setdefault(node["metadata"]["name"], taint)
    if not blocked:
        return Finding.ok(f"{len(nodes)} nodes")
    name, taint = next(iter(blocked.items()))
    return Finding(
        "error" if len(blocked) == len(nodes) else "warning",
        f"{len(blocked)} of {len(nodes)} GPU nodes have a taint that is not tolerated ({name}: {taint['key']} {taint['effect']})",
        "pods of this site cannot start there",
        f"site.tolerations: [{{key: {taint['key']}, operator: Exists, effect: {taint['effect']}}}]",
    )


def openshift_ai(facts: ClusterState) -> Finding:
    """The DataScienceCluster is ready; otherwise which component is not, and what it lacks."""
    clusters = singletons(facts, DSC)
    if clusters is None:
        return Finding.skipped("the cluster has no OpenShift AI")
    if not clusters:
        return Finding(
            "error",
            "OpenShift AI is installed, but there is no DataScienceCluster",
            "no component runs",
            'playbooks/platform.yml -e \'{"platform_operators": ["rhoai"]}\' -e trainlab_platform_release=RELEASE',
        )
    status = clusters[0].get("status") or {}
    if status.get("phase") == "Ready":
        return Finding.ok(f"DataScienceCluster {clusters[0]['metadata']['name']} is ready")
    bad = [
        f"{each['type']}: {each.get('message') or each.get('reason')}"
        for each in status.get("conditions") or []
        if each.get("status") == "False" and each.get("reason") != "Removed" and each["type"] != "Ready"
    ]
    lacks = _lacks(facts, clusters[0]["spec"].get("components") or {})
    fix = f"playbooks/platform.yml -e '{{\"platform_operators\": {json.dumps(lacks)}}}'" if lacks else ""
    return Finding(
        "error",
        f"DataScienceCluster is {status.get('phase', 'without a phase')}: {'; '.join(bad) or 'no condition says why'}"
        + (f"; missing: {', '.join(lacks)}" if lacks else ""),
        "a component that is not ready serves no API",
        fix or f"{facts.api.oc} describe datasciencecluster; {facts.api.oc} -n redhat-ods-applications get pods",
    )


def singletons(facts: ClusterState, group: str) -> list[Json] | None:
    """Return the DataScienceClusters or DSCInitializations, by the newest version that is served; None where none is."""
    plural = f"{group.partition('.')[0]}s"
    version = next((each for each in ("v2", "v1") if facts.api.serves(f"{group}/{each}", plural)), "")
    return facts.api.items(f"/apis/{group}/{version}/{plural}") if version else None


def training_operator(facts: ClusterState) -> Finding:
    """Somebody runs the job that the chart would make: OpenShift AI leaves the API where it removed the operator."""
    clusters, wanted = singletons(facts, DSC), training_api(facts)
    if not clusters or not wanted:
        return Finding.skipped("no OpenShift AI, no DataScienceCluster, or no API of training jobs")
    components = clusters[0]["spec"].get("components") or {}
    state = {api: (components.get(TRAINS[api][1]) or {}).get("managementState", REMOVED) for api in TRAINS}
    kind, component = TRAINS[wanted]
    if state[wanted] == MANAGED:
        return Finding.ok(f"{component} is Managed")
    other = next((api for api in TRAINS if state[api] == MANAGED), "")
    return Finding(
        "error",
        f"site.trainingApi: {facts.site['trainingApi']} makes a {kind}, and {component} of the DataScienceCluster is {state[wanted]}",
        "its API is still there, but nobody runs the job: it would wait forever",
        f"set site.trainingApi to {other}; a run that is complete is not trained again"
        if other
        else f"set platform_components.{component}.managementState to Managed, then playbooks/platform.yml",
    )


def registry(facts: ClusterState) -> Finding:
    """The cluster's own registry accepts and serves images, if the trainer image is to be in it."""
    if facts.options.image_source == "none" and REGISTRY not in str(facts.site["images"]["trainer"]):
        return Finding.skipped("the trainer image is not in the cluster's registry")
    config = facts.api.get("/apis/imageregistry.operator.openshift.io/v1/configs/cluster")
    if config is None:
        return Finding.skipped("the cluster has no operator for it")
    state = config["spec"].get("managementState", "Managed")
    if state == "Managed":
        return Finding.ok("Managed")
    return Finding(
        "error",
        f"the image registry is {state}",
        "builds have nowhere to push to (usual on bare metal, where it has no storage)",
        f"{facts.api.oc} patch configs.imageregistry.operator.openshift.io cluster --type merge -p "
        '\'{"spec": {"managementState": "Managed", "storage": ...}}\', or set trainlab_image_source to none',
    )


def monitoring(facts: ClusterState) -> Finding:
    """OpenShift scrapes people's namespaces, if the chart asks it to: enableUserWorkload, in the administrator's ConfigMap."""
    if not facts.site["monitoring"]["enabled"]:
        return Finding.skipped("site.monitoring.enabled is false")
    if _openshift(facts) is None:
        return Finding.skipped("no OpenShift")
    config_map = facts.api.get(MONITORING) or {}
    try:
        config = yaml.safe_load((config_map.get("data") or {}).get("config.yaml") or "") or {}
    except yaml.YAMLError:
        config = {}
    value = config.get("enableUserWorkload") if isinstance(config, dict) else None
    if value is True:
        return Finding.ok("enableUserWorkload is true")
    return Finding(
        "warning",
        f"data.config.yaml.enableUserWorkload of ConfigMap cluster-monitoring-config is {value!r}, wanted True",
        "OpenShift scrapes neither training nor served models, so that their metrics pages stay empty",
        f"add the line `enableUserWorkload: true` beside what is there: `{facts.api.oc} -n openshift-monitoring edit configmap "
        "cluster-monitoring-config`; or set site.monitoring.enabled to false",
    )


def hardware_profile(facts: ClusterState) -> Finding:
    """The profile that is to place the server exists: OpenShift AI's webhook refuses a server without, once the training is over.

    rhods-operator 3.4 (8dc22631b4ec), internal/webhook/hardwareprofile/mutating.go:267.
    """
    asked = facts.site["hardwareProfile"]
    if not facts.site["serving"] or not asked["name"]:
        return Finding.skipped("the site names none")
    api, space = facts.api, asked["namespace"] or facts.namespace
    version = next(
        (candidate for candidate in ("v1", "v1alpha1") if api.serves(f"{PROFILES}/{candidate}", "hardwareprofiles")), ""
    )
    path = f"/apis/{PROFILES}/{version}/namespaces/{space}/hardwareprofiles"
    if version and api.get(f"{path}/{asked['name']}"):
        return Finding.ok(f"{space}/{asked['name']}")
    profiles = sorted(profile["metadata"]["name"] for profile in api.items(path)) if version else []
    return Finding(
        "error",
        f"site.hardwareProfile names {space}/{asked['name']}, which is not there (in {space}: {', '.join(profiles) or 'none'})",
        "OpenShift AI refuses the InferenceService when the training is over",
        "name one that is there in trainlab_site, with its namespace, or none",
    )


def versions(facts: ClusterState) -> Finding:
    """OpenShift, OpenShift AI and Kueue are a combination that is known to work."""
    cluster, product = _openshift(facts), openshift_ai_version(facts)
    if not cluster or not product:
        return Finding.skipped("no OpenShift, or no OpenShift AI")
    release = ".".join(product.split(".")[:2])
    fix = "docs: supported configurations of OpenShift AI; set trainlab_platform_release to one that fits"
    if release not in releases():
        known = ", ".join(releases())
        return Finding("warning", f"OpenShift AI {product} is not one of {known}", "it was not tested with this", fix)
    first, *last = (pair(each) for each in releases()[release]["openshift"])
    if cluster < first or (last and cluster > last[0]):
        text = f"OpenShift AI {product} on OpenShift {cluster[0]}.{cluster[1]}; supported: {span(release)}"
        return Finding("warning", text, "Red Hat does not support this combination", fix)
    kueue = _installed(facts, "openshift-kueue-operator", "kueue-operator.")
    newest = releases()[release].get("newest_kueue_for_trainjobs")
    if kueue and facts.site["queue"] and newest and pair(kueue) > pair(newest) and training_api(facts) == "trainjob":
        return Finding(
            "error",
            f"Kueue {kueue} with the Trainer of OpenShift AI {release}, as Red Hat's own chart for OpenShift AI installs them",
            "a TrainJob is never admitted: `runtime patch not found` (kueue issue 14722)",
            "set site.trainingApi to pytorchjob, with platform_components.trainingoperator Managed, or empty site.queue; on a new cluster "
            f"set platform_channels.kueue to stable-v{newest}: OLM installs no older version over a newer one",
        )
    return Finding.ok(
        f"OpenShift {cluster[0]}.{cluster[1]}, OpenShift AI {product}" + (f", Kueue {kueue}" if kueue else "")
    )


def _lacks(facts: ClusterState, components: Json) -> list[str]:
    """Operators that a component needs and that do not serve their API."""
    state = {name: (each or {}).get("managementState") for name, each in components.items()}
    lacks = []
    if state.get("trainer") == MANAGED and not facts.api.serves(*JOBSET):
        lacks.append("jobset")
    if state.get("kueue") == "Unmanaged":
        if not facts.api.serves("cert-manager.io/v1", "certificates"):
            lacks.append("cert_manager")
        if not facts.api.serves("kueue.openshift.io/v1", "kueues"):
            lacks.append("kueue")
    return lacks


def _wants_gpus(facts: ClusterState) -> bool:
    return bool(facts.phase["resources"]["gpus_per_node"] or (facts.site["serving"] and facts.phase["serve"]["gpus"]))


def _gpus(facts: ClusterState, node: Json) -> int:
    return int(quantity(node["status"].get("allocatable", {}).get(facts.site["gpuResource"])))


def _openshift(facts: ClusterState) -> tuple[int, int] | None:
    """Major and minor version of OpenShift, None elsewhere."""
    cluster_version = facts.api.get("/apis/config.openshift.io/v1/clusterversions/version")
    text = ((cluster_version or {}).get("status") or {}).get("desired", {}).get("version", "")
    return pair(text) if text else None


def openshift_ai_version(facts: ClusterState) -> str:
    """Return the version of OpenShift AI that OLM has installed; empty when it has not."""
    return _installed(facts, "redhat-ods-operator", "rhods-operator.")


def _installed(facts: ClusterState, namespace: str, prefix: str) -> str:
    """Version of an operator that OLM has installed; empty when it has not."""
    for each in facts.api.items(CSVS.format(namespace)):
        name = each["metadata"]["name"]
        if name.startswith(prefix) and (each.get("status") or {}).get("phase") == "Succeeded":
            return str(name.removeprefix(prefix).removeprefix("v"))
    return ""
