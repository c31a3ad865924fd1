"""Kueue's API in the version that a cluster serves: the only place that decides. Everything of ours is written in the newest.

v1beta2 is served from Kueue 0.15 on (config/components/crd/bases of its tags), v1beta1 no more from 0.20 on (kueue pull request 14558).
"""

from __future__ import annotations

from .kube import Api, Json

GROUP = "kueue.x-k8s.io"
VERSIONS = NEWEST, OLDER = f"{GROUP}/v1beta2", f"{GROUP}/v1beta1"
RENAMED = {"cohortName": "cohort"}
"""Fields of what we make that have another name in the older version."""


def served(api: Api) -> str:
    """Return the version of this cluster, as `kueue.x-k8s.io/v1beta2`; empty without Kueue."""
    return next((each for each in VERSIONS if api.get(f"/apis/{each}")), "")


def path(api: Api, plural: str, namespace: str = "") -> str:
    """Return the API path of a kind, in a namespace where one is given; without Kueue one that is not served."""
    return f"/apis/{served(api) or NEWEST}{f'/namespaces/{namespace}' if namespace else ''}/{plural}"


def version(api: Api, api_version: str) -> str:
    """Return an apiVersion as this cluster serves it: the newest of Kueue's becomes the older one where that is all; others stay."""
    return served(api) or NEWEST if api_version == NEWEST else api_version


def as_served(api: Api, documents: list[Json]) -> list[Json]:
    """Return documents, or entries with apiVersion and kind alone, in the version of this cluster; what is not Kueue's stays."""
    if not any(each["apiVersion"] == NEWEST for each in documents) or served(api) != OLDER:
        return documents
    return [_older(each) if each["apiVersion"] == NEWEST else each for each in documents]


def _older(document: Json) -> Json:
    older = document | {"apiVersion": OLDER}
    if "spec" in document:
        older["spec"] = {RENAMED.get(key, key): value for key, value in document["spec"].items()}
    return older
