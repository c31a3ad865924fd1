"""Checks of what site.yml has created: everything it promised is there and works."""

from __future__ import annotations

from ..jobs import KINDS, live, outcome
from ..kube import ApiError
from ..pods import condition
from .look import Finding, Look

MODELS = {"base", "tuned"}


def namespace(look: Look) -> Finding:
    """The namespace is there and enforces the restricted Pod Security level."""
    if look.there is None:
        return Finding("error", f"namespace {look.namespace} does not exist", "", "run playbooks/workspace.yml")
    level = look.there["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce", "none")
    if level == "restricted":
        return Finding.ok(f"{look.namespace}, Pod Security {level}")
    return Finding(
        "warning",
        f"namespace {look.namespace} enforces Pod Security level {level}",
        "pods with more rights than training needs could start in it",
        f"kubectl label namespace {look.namespace} pod-security.kubernetes.io/enforce=restricted (playbooks/workspace.yml labels "
        "only what it made)",
    )


def claims_bound(look: Look) -> Finding:
    """The claims are bound."""
    for volume in look.volumes:
        claim = look.claim(volume)
        state = (claim or {}).get("status", {}).get("phase", "missing")
        if state != "Bound":
            return Finding(
                "error",
                f"claim {look.claim_name(volume)} is {state}",
                "pods that mount it wait",
                "run playbooks/train.yml"
                if claim is None
                else f"kubectl -n {look.namespace} describe pvc {look.claim_name(volume)}",
            )
    return Finding.ok("both bound")


def run_state(look: Look) -> Finding:
    """The training job has succeeded."""
    for kind in KINDS.values():
        job = live(kind, look.api.items(kind.path(look.namespace), f"app.kubernetes.io/instance={look.release}"))
        if job:
            word, message = outcome(kind, job)
            what = f"{kind.kind} {job['metadata']['name']}: {word} {message}".strip()
            if word == "good":
                return Finding.ok(what)
            fix = (
                "playbooks/train.yml -e train_again=true"
                if word == "bad"
                else "wait, or follow it: playbooks/train.yml"
            )
            return Finding("error" if word == "bad" else "warning", what, "there is no finished run", fix)
    return Finding("error", f"release {look.release} has no training job", "", "run playbooks/train.yml")


def served(look: Look) -> Finding:
    """The InferenceService is ready and lists both models."""
    if not look.site["serving"]:
        return Finding.skipped("site.serving is false")
    base = f"/apis/serving.kserve.io/v1beta1/namespaces/{look.namespace}/inferenceservices"
    service = look.api.get(f"{base}/{look.release}")
    if service is None:
        return Finding(
            "warning",
            f"there is no InferenceService {look.release}",
            "the gate did not promote the run, or it is not finished",
            "playbooks/report.yml prints the gate's verdict; playbooks/serve.yml waits for the server",
        )
    ready = condition(service, "Ready")
    fix = f"kubectl -n {look.namespace} describe inferenceservice {look.release}"
    if ready.get("status") != "True":
        return Finding("error", f"InferenceService {look.release} is not ready: {ready.get('message', '')}", "", fix)
    path = f"/api/v1/namespaces/{look.namespace}/services/{look.release}-predictor:80/proxy/v1/models"
    try:
        found = {each["id"] for each in look.api.send("GET", path).get("data", [])}
    except ApiError as error:
        return Finding("error", f"the server of {look.release} does not answer: {error}", "", fix)
    if found >= MODELS:
        return Finding.ok(f"answers as {', '.join(sorted(found))}")
    return Finding("error", f"the server lists {', '.join(sorted(found))}, not {', '.join(sorted(MODELS))}", "", fix)
