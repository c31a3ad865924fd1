"""Waiting, in tests, for what becomes true by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def patience() -> float:
    """Return by what to multiply seconds: the tasks that want to run for each processor, at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def until(
    answer: Callable[[], Answer], seconds: float = 30, said: Callable[[], object] = str, every: float = 0.3
) -> Answer:
    """Ask until the answer is true, and return it; the test fails after `seconds` (times patience), with what `said` tells then."""
    end = time.monotonic() + seconds * patience()
    while not (result := answer()):
        assert time.monotonic() < end, said()
        time.sleep(every)
    return result
