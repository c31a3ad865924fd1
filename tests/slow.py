"""What `make check` and `make test` leave to `make test-rest`, where one case of several is enough for a gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def but_the_first(cases: Sequence[Any]) -> list[Any]:
    """Return the cases of a `parametrize` by one argument or by tuples, all but the first marked `rest`."""
    first, *others = cases
    return [
        first,
        *(pytest.param(*(other if isinstance(other, tuple) else (other,)), marks=pytest.mark.rest) for other in others),
    ]
