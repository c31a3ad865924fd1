"""Keeps the machine's proxies from being asked for addresses that exist only on it; called by environment.py."""

from __future__ import annotations

from collections.abc import Mapping

from embedded_cluster.base import identity
from embedded_cluster.nodes import layout

PROXIES = ("http_proxy", "https_proxy", "all_proxy")
LOCAL = ("localhost", "127.0.0.1", ".svc", ".cluster.local")


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables to add when a proxy is set: NO_PROXY and no_proxy with their old content and our addresses.

    The nodes are also listed one by one, for clients that do not understand subnets (httpx, curl before 7.86).
    """
    if not any(variables.get(name) or variables.get(name.upper()) for name in PROXIES):
        return {}
    before = f"{variables.get('no_proxy', '')},{variables.get('NO_PROXY', '')}".split(",")
    nodes = [layout.address(number) for number in range(1, layout.MAX_NODES + 1)]
    kept = ",".join(
        dict.fromkeys(word.strip() for word in (*before, *LOCAL, *nodes, *map(str, identity.VARIABLES)) if word.strip())
    )
    return {"no_proxy": kept, "NO_PROXY": kept}


def handed_on(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a program in the root folder, whose environment is empty, reaches the network as we do."""
    names = (*PROXIES, "no_proxy")
    return {name: variables[name] for each in names for name in (each, each.upper()) if variables.get(name)}
