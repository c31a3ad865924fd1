"""How much of `make demo` is done, and how long the rest will take: a line with a bar; called by demo.py.

Told in processor seconds, which differ less between machines than minutes do: those of a step that has ended count as
expected, those of the step at work as the processors were busy since it began. The rest is divided by the pace so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from embedded_cluster.base import say

EVERY = 30.0
"""Seconds between two lines."""
WIDTH = 30
ALMOST = 0.97
"""The most that a step counts before it has ended, however long it takes."""
HERTZ = 100.0
"""Of the counters in /proc/stat."""


def busy(stat: Path = Path("/proc/stat")) -> float:
    """Processor seconds that this machine has worked since it started (proc(5): all but idle and waiting for a disk)."""
    ticks = [int(word) for word in stat.read_text(encoding="ascii").split("\n")[0].split()[1:8]]
    return (sum(ticks) - ticks[3] - ticks[4]) / HERTZ


class Progress:
    """The steps to come, with the processor seconds that each is expected to take."""

    def __init__(self, expected: dict[str, float], work: Callable[[], float] = busy) -> None:
        """Start; a step that has nothing to do is left out or expected to take 0."""
        self.expected = expected
        self._work, self._began = work, time.monotonic()
        self._done, self._step, self._since = 0.0, "", work()

    def share(self) -> float:
        """Between 0 and 1."""
        step = self.expected.get(self._step, 0.0)
        done = self._done + min(self._work() - self._since, step * ALMOST)
        return done / max(sum(self.expected.values()), done, 1.0)

    def line(self) -> str:
        """The bar and the minutes that are left, at the pace so far."""
        share = self.share()
        drawn = f"[{'#' * int(share * WIDTH):-<{WIDTH}}] {share:4.0%}"
        elapsed = time.monotonic() - self._began
        if elapsed < EVERY or share < 0.02:
            return drawn
        left = elapsed / share * (1 - share)
        return f"{drawn}, " + (f"about {left / 60:.0f} min left" if left >= 90 else "less than 2 min left")

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Print the line every EVERY seconds while this step runs."""
        self._step, self._since = name, self._work()
        with say.repeating(EVERY, lambda: say.line(self.line())):
            yield
        self._done += self.expected.get(name, 0.0)
        self._step = ""
