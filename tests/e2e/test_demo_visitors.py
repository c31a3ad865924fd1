"""The demo's server among visitors: visitors.py."""

from collections.abc import Iterator

import pytest

from e2e import visitors
from e2e.commands import NAMESPACE, PHASE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
REFUSALS = {413: "request_too_large", 400: "context_length_exceeded"}


@pytest.fixture(scope="module")
def server(demo: str) -> Iterator[visitors.Server]:
    """What `make demo` ends with."""
    ours = visitors.Server(NAMESPACE, PHASE, line=64, program="serve", refusals=REFUSALS)
    with visitors.reachable(ours) as found:
        yield found


class TestOurServer(visitors.Visits):
    """All of them."""
