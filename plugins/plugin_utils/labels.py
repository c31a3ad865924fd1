"""Labels and annotations by which the plugins know their own objects and those of the chart."""

from __future__ import annotations

from collections.abc import Iterable

from .kube import Json

DOMAIN = "trainlab.dev"
"""Also in charts/trainjob/templates/_names.tpl and roles/attendees/vars/main.yml."""
OWNER = f"{DOMAIN}/owner"
"""What we created carries this label; nothing without it is ever changed or removed."""
APPLIED = f"{DOMAIN}/applied"
"""Annotation: hash of the document as it was applied; detects a field that was removed from the document."""
SERVED_BEFORE = f"{DOMAIN}/served-before"
"""Annotation of our Namespaces and Subscriptions: API groups that were there before the operator, so that removal spares them."""
ATTENDEE = f"{DOMAIN}/attendee"
"""Label of what belongs to an attendee: their name."""
RESTARTS = f"{DOMAIN}/restarts"
"""Annotation that the chart gives to training jobs: phase.resources.restarts."""
SERVED_UNTIL = f"{DOMAIN}/served-until"
"""Annotation that a promotion gives to an InferenceService that is served for a time (phase.serve.hours): when that ends."""
RUN = f"{DOMAIN}/run"
"""Label that the chart gives to what belongs to a run."""


def attendees(items: Iterable[Json]) -> dict[str, str]:
    """Return the attendee of each Namespace that is one's."""
    return {item["metadata"]["name"]: who for item in items if item["kind"] == "Namespace" and (who := attendee(item))}


def attendee(item: Json) -> str:
    """Return the name of the attendee that an object belongs to; empty for what they share."""
    return str((item["metadata"].get("labels") or {}).get(ATTENDEE, ""))


def attendee_space(item: Json, known: dict[str, str]) -> str:
    """Return the attendee's namespace that an object is in or, outside of them, whose name its own ends with; empty without one.

    The label alone does not tell: two attendees have the same name where the prefixes of their namespaces differ.
    """
    metadata, who = item["metadata"], attendee(item)
    if not who:
        return metadata["namespace"] if metadata.get("namespace") in known else ""
    return max(
        (space for space, name in known.items() if name == who and metadata["name"].endswith(f"-{space}")),
        key=len,
        default="",
    )
