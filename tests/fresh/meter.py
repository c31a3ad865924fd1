"""CPU-seconds of a command and of the cluster that it starts, by their cgroups: what runs beside does not count.

Used by test_whole.py. A group of its own holds the command; the nodes of a cluster are in the groups of its name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

GROUP = "trainlab-meter"
TOP = Path("/sys/fs/cgroup")


class Meter:
    """Reads user and system time of a command's group and of `clusters` (names of cgroups), seconds since it was made."""

    def __init__(self, clusters: Sequence[str]) -> None:
        self._top = TOP / "cpuacct" if (TOP / "cpuacct").is_dir() else TOP
        self._own, self._clusters = self._top / GROUP, [self._top / name for name in clusters]
        self._last: dict[Path, float] = {}
        self._gone = 0.0
        """Of groups that were removed: a cluster that is made anew begins at 0."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return `argv` so that it runs in the group."""
        return ["bash", "-c", 'echo $$ > "$0" && exec "$@"', str(self._own / "cgroup.procs"), *argv]

    def seconds(self) -> float:
        """Return the CPU-seconds so far."""
        for group in (self._own, *self._clusters):
            before, now = self._last.get(group, 0.0), self._read(group)
            self._gone += before if now < before else 0.0
            self._last[group] = now
        return self._gone + sum(self._last.values())

    def _read(self, group: Path) -> float:
        with contextlib.suppress(OSError):
            if (group / "cpuacct.usage").exists():
                return int((group / "cpuacct.usage").read_text()) / 1e9
            return int((group / "cpu.stat").read_text().split()[1]) / 1e6
        return 0.0

    @contextmanager
    def running(self) -> Iterator[Meter]:
        """Have the group exist meanwhile."""
        self._own.mkdir(exist_ok=True)
        try:
            yield self
        finally:
            with contextlib.suppress(OSError):
                self._own.rmdir()
