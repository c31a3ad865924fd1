"""One finding of the planner; made by checks and claims, printed by table."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """A reason to stop (refuse) or to think (warn); `code` is stable, `text` has numbers and remedy."""

    level: Literal["refuse", "warn"]
    code: str
    text: str


def refuse(code: str, text: str) -> Finding:
    """Return a finding that makes `trainlab plan` exit 1."""
    return Finding("refuse", code, text)


def warn(code: str, text: str) -> Finding:
    """Return a finding that is only printed."""
    return Finding("warn", code, text)
