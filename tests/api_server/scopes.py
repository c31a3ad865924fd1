"""Quotas with scopes, and whose pods each counts: what the chart and the playbook's check expect of an API server."""

from __future__ import annotations

from typing import Any

CLASS = "urgent"


def by_class(operator: str, *names: str) -> dict[str, Any]:
    """A quota for pods of some priority classes."""
    selected = {"scopeName": "PriorityClass", "operator": operator, **({"values": list(names)} if names else {})}
    return {"scopeSelector": {"matchExpressions": [selected]}}


STAY = ["server", "promotion"]
CLASSED = ["job", "server"]
COUNTED: list[tuple[dict[str, Any], str, list[str]]] = [
    ({"scopes": ["NotTerminating"]}, "", STAY),
    ({"scopes": ["Terminating"]}, "", ["job"]),
    ({"scopes": ["NotBestEffort"]}, "", ["job", *STAY]),
    ({"scopes": ["NotBestEffort", "NotTerminating"]}, CLASS, STAY),
    ({"scopes": ["PriorityClass"]}, "", []),
    ({"scopes": ["PriorityClass"]}, CLASS, CLASSED),
    (by_class("In", CLASS, "other"), "", []),
    (by_class("In", CLASS, "other"), CLASS, CLASSED),
    (by_class("In", "other"), CLASS, []),
    (by_class("NotIn", CLASS), CLASS, []),
    (by_class("NotIn", "other"), CLASS, CLASSED),
    (by_class("Exists"), CLASS, CLASSED),
    (by_class("DoesNotExist"), CLASS, []),
    ({"scopes": ["Terminating"], **by_class("In", CLASS)}, CLASS, ["job"]),
    ({"scopes": ["NotTerminating"], **by_class("In", CLASS)}, CLASS, ["server"]),
]
"""(scopes, priority class of job and server, who counts), without those of NotIn and DoesNotExist that have no class: they count, or
do not, as the cluster's default class, which is not asked for. tests/api asks a real API server for each."""


def told(counted: list[str]) -> str:
    """Return what is said of a quota that leaves no processor to these."""
    return {"job": "the job requests", "server": "the server requests"}.get(next(iter(counted), ""), "")
