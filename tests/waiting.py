"""Waiting, in tests, for what becomes true by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def until(
    answer: Callable[[], Answer], seconds: float = 30, said: Callable[[], object] = str, every: float = 0.3
) -> Answer:
    """Ask until the answer is true, and return it; the test fails after `seconds`, with what `said` tells then."""
    end = time.monotonic() + seconds
    while not (result := answer()):
        assert time.monotonic() < end, said()
        time.sleep(every)
    return result
