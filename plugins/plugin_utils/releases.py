"""The releases of OpenShift AI, as meta/releases.yml has them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).resolve().parents[2] / "meta" / "releases.yml"


@cache
def releases() -> dict[str, dict[str, Any]]:
    """Return the table; the file documents its keys."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def span(release: str) -> str:
    """Return, as text, the OpenShift releases on which a release is supported."""
    first, *last = releases()[release]["openshift"]
    return f"{first} to {last[0]}" if last else f"{first} and later"


def pair(version: str) -> tuple[int, int]:
    """Return major and minor version, for comparing."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
