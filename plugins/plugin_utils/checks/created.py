"""Checks of what site.yml created: everything it promised exists and works."""

from __future__ import annotations

from ..jobs import KINDS, live, outcome
from ..kube import ApiError, condition
from ..labels import SERVED_UNTIL
from ..pods import served_models, server_address
from .cluster_state import ClusterState, Finding


def namespace(facts: ClusterState) -> Finding:
    """The namespace is there and enforces the restricted Pod Security level."""
    if facts.namespace_object is None:
        return Finding("error", f"namespace {facts.namespace} does not exist", "", "run playbooks/workspace.yml")
    level = facts.namespace_object["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce", "none")
    if level == "restricted":
        return Finding.ok(f"{facts.namespace}, Pod Security {level}")
    return Finding(
        "warning",
        f"namespace {facts.namespace} enforces Pod Security level {level}",
        "pods with more rights than training needs could start in it",
        f"{facts.api.kubectl} label namespace {facts.namespace} pod-security.kubernetes.io/enforce=restricted (playbooks/workspace.yml labels "
        "only what it created)",
    )


def claims_bound(facts: ClusterState) -> Finding:
    """The claims are bound."""
    for volume in facts.claims:
        claim = facts.claim(volume)
        state = (claim or {}).get("status", {}).get("phase", "missing")
        if state != "Bound":
            return Finding(
                "error",
                f"claim {facts.claims[volume]} is {state}",
                "pods that mount it wait",
                "run playbooks/train.yml"
                if claim is None
                else f"{facts.api.kubectl} -n {facts.namespace} describe pvc {facts.claims[volume]}",
            )
    return Finding.ok("both bound")


def run_state(facts: ClusterState) -> Finding:
    """The training job has succeeded."""
    for kind in KINDS.values():
        job = live(kind, kind.of_release(facts.api, facts.namespace, facts.release))
        if job:
            word, message = outcome(kind, job)
            what = f"{kind.kind} {job['metadata']['name']}: {word} {message}".strip()
            if word == "succeeded":
                return Finding.ok(what)
            fix = (
                "fix the cause and run playbooks/train.yml again; it resumes at the last checkpoint"
                if word == "failed"
                else "wait, or follow it: playbooks/train.yml"
            )
            return Finding("error" if word == "failed" else "warning", what, "there is no finished run", fix)
    return Finding("error", f"release {facts.release} has no training job", "", "run playbooks/train.yml")


def served(facts: ClusterState) -> Finding:
    """The InferenceService is ready and lists the model that the phase asks for, beside whatever else its engine serves."""
    if not facts.site["serving"]:
        return Finding.skipped("site.serving is false")
    base = f"/apis/serving.kserve.io/v1beta1/namespaces/{facts.namespace}/inferenceservices"
    service = facts.api.get(f"{base}/{facts.release}")
    if service is None:
        return Finding(
            "warning",
            f"there is no InferenceService {facts.release}",
            "the gate did not promote the run, it is not finished, or the hours of phase.serve.hours are over",
            "playbooks/report.yml prints the gate's verdict; playbooks/serve.yml waits for the server",
        )
    ready = condition(service, "Ready")
    fix = f"{facts.api.kubectl} -n {facts.namespace} describe inferenceservice {facts.release}"
    if ready.get("status") != "True":
        return Finding("error", f"InferenceService {facts.release} is not ready: {ready.get('message', '')}", "", fix)
    path = f"{server_address(facts.api, facts.namespace, facts.release, service)}/v1/models"
    try:
        models = served_models(facts.api.send("GET", path))
    except ApiError as error:
        return Finding("error", f"the server of {facts.release} does not answer: {error}", "", fix)
    wanted = facts.phase["serve"].get("weights", "tuned")
    if wanted in models:
        until = (service.get("metadata", {}).get("annotations") or {}).get(SERVED_UNTIL)
        return Finding.ok(f"answers as {', '.join(sorted(models))}" + (f", until {until}" if until else ""))
    return Finding("error", f"the server lists {', '.join(sorted(models)) or 'no model'}, not {wanted}", "", fix)
