"""How much of `make demo` is done, and how long the rest will take: a line with a bar; called by demo.py.

Told in processor seconds: those of a step that has ended count as expected, those of the step at work as it measures itself, or
else as the processors were busy since it began. A processor without AVX-512 takes two to three times the seconds that are
expected, so what ended steps took scales the step at work. The rest is divided by the pace so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
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
SLOWER = 1.6
"""Processor seconds of a machine of which nothing is known for each that is expected: between 1 and 2.5, both measured."""
KNOWN_FROM = 100.0
"""Expected processor seconds of ended steps from which they tell how slow this machine is."""


def busy(stat: Path = Path("/proc/stat")) -> float:
    """Processor seconds that this machine has worked since it started (proc(5): all but idle and waiting for a disk)."""
    ticks = [int(word) for word in stat.read_text(encoding="ascii").split("\n")[0].split()[1:8]]
    return (sum(ticks) - ticks[3] - ticks[4]) / HERTZ


class Progress:
    """The steps to come, with the processor seconds that each is expected to take."""

    def __init__(
        self,
        expected: dict[str, float],
        work: Callable[[], float] = busy,
        measured: Mapping[str, Callable[[], float | None]] | None = None,
    ) -> None:
        """Start; a step that has nothing to do is left out or expected to take 0. `measured` tells the share of a step, once it can."""
        self.expected, self._measured = expected, measured or {}
        self._work, self._began = work, time.monotonic()
        self._done = self._took = 0.0
        self._step, self._since, self._most = "", work(), 0.0

    def _step_share(self) -> float:
        """Share of the step at work, by its own measure or by the processors; above 1 where it takes longer than expected."""
        measured = self._measured[self._step]() if self._step in self._measured else None
        if measured is None:
            slower = self._took / self._done if self._done >= KNOWN_FROM else SLOWER
            measured = (self._work() - self._since) / max(self.expected.get(self._step, 0.0) * slower, 1.0)
        self._most = max(self._most, measured)
        return self._most

    def share(self) -> float:
        """Between 0 and 1."""
        done = self._done + self.expected.get(self._step, 0.0) * min(self._step_share(), ALMOST)
        return done / max(sum(self.expected.values()), done, 1.0)

    def line(self) -> str:
        """The bar and the minutes that are left, at the pace so far; no minutes once a step takes longer than expected."""
        share = self.share()
        drawn = f"[{'#' * int(share * WIDTH):-<{WIDTH}}] {share:4.0%}"
        elapsed = time.monotonic() - self._began
        if elapsed < EVERY or share < 0.02:
            return drawn
        if self._step and self._most > 1:  # as share() has just seen it
            return f"{drawn}, this step takes longer than expected"
        left = elapsed / share * (1 - share)
        return f"{drawn}, " + (f"about {left / 60:.0f} min left" if left >= 90 else "less than 2 min left")

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Print the line every EVERY seconds while this step runs."""
        self._step, self._since, self._most = name, self._work(), 0.0
        with say.repeating(EVERY, lambda: say.line(self.line())):
            yield
        self._done += self.expected.get(name, 0.0)
        self._took += self._work() - self._since
        self._step = ""
