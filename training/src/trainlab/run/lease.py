"""The time for which a model is served: the promotion writes when it ends, `trainlab end-lease` ends it; no torch."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from trainlab.errors import UserError
from trainlab.run.kube import Kube

DOMAIN = "trainlab.dev"
UNTIL = f"{DOMAIN}/served-until"
"""Annotation of the InferenceService: a time in UTC, ISO 8601. One without it is served without end."""


def begun(service: Mapping[str, Any], hours: int) -> dict[str, Any]:
    """Return an InferenceService that is served for `hours` from now; 0 serves it without end."""
    if not hours:
        return dict(service)
    until = (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="seconds")
    metadata = service["metadata"]
    return {**service, "metadata": metadata | {"annotations": {**(metadata.get("annotations") or {}), UNTIL: until}}}


def end(namespace: str, name: str) -> int:
    """Delete the InferenceService `name` if its time is over; return exit code 0. What it was made of stays for another promotion.

    Raises UserError for an annotation that is no time, and when the API server refuses.
    """
    path = f"/apis/serving.kserve.io/v1beta1/namespaces/{namespace}/inferenceservices/{name}"
    with Kube.in_cluster(os.environ) as kube:
        print(f"trainlab: InferenceService {namespace}/{name} {_ended(kube, path)}", flush=True)
    return 0


def _ended(kube: Kube, path: str) -> str:
    service = kube.find(path)
    if service is None:
        return "is not there: nothing is served"
    text = (service["metadata"].get("annotations") or {}).get(UNTIL)
    if text is None:
        return "is served without end"
    try:
        over = datetime.fromisoformat(text) <= datetime.now(UTC)
    except (TypeError, ValueError):
        raise UserError(
            f"{path}: annotation {UNTIL} is '{text}'; write a time with its zone such as 2026-11-24T10:00:00+00:00, or remove it"
        ) from None
    if not over:
        return f"is served until {text}"
    # A promotion may have begun its time anew since.
    if kube.delete(path, version=service["metadata"]["resourceVersion"]):
        return f"was served until {text}, and is deleted"
    return "has just changed, and stays"
