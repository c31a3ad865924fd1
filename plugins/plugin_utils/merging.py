"""Merging values files as Helm does; used by the plugin resolve_phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def merged(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge deep, later wins, lists are replaced.

    A null stays a null: Helm then does with it what it does with several -f files, so that both ways of installing
    give the same values and the same run name.
    """
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            old = result.get(key)
            both = isinstance(old, dict) and isinstance(value, Mapping)
            result[key] = merged([old, value]) if both else value  # type: ignore[list-item]
    return result
