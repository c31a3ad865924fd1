"""An attendee's token is kept while more than half of its lifetime is left."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import pytest
from ansible_collections.trainlab.rhoai.plugins.action import attendees_kubeconfigs as tokens


@pytest.mark.parametrize(
    ("now", "seconds", "kept"),
    [
        (1_000, 1_000, True),
        (1_499, 1_000, True),
        (1_501, 1_000, False),
        (2_001, 1_000, False),
        (1_001, 2_000, False),
        (1_499, 60, True),
    ],
)
def test_a_token_is_renewed_once_half_of_its_life_is_over_or_a_longer_one_is_asked_for(
    now: int, seconds: int, kept: bool
) -> None:
    claims = {"iat": 1_000, "exp": 2_000, "kubernetes.io": {"serviceaccount": {"uid": "ada"}}}
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    moment = datetime.fromtimestamp(now, UTC)
    assert tokens.still_serves(f"head.{part}.signature", "ada", moment, seconds) is kept
    assert not tokens.still_serves(f"head.{part}.signature", "grace", moment, seconds)
