"""Labels and annotations by which the plugins know their own objects and those of the chart."""

from __future__ import annotations

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
RUN = f"{DOMAIN}/run"
"""Label that the chart gives to what belongs to a run."""
