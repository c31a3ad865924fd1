"""A user's demo that runs next to the tests: the real one if there is one, else the traces that one would leave."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embedded_cluster.base import home

from e2e import machine

GROUP, LINK, LINKS = "trainlab", "trainlab0", Path("/sys/class/net")
WORDS = "a cluster of the user's"
OF_USER = ("admin.conf", "state.json", "share/rwx/*", "nodes/*/root/var/lib/*")
"""What is looked for in a user's cluster: how to reach it, its volumes, and what its nodes hold."""
CLUSTER, ARTIFACTS = machine.HOME / "cluster", machine.REPO / "artifacts"


@dataclass(frozen=True)
class User:
    """Processes, files and the link that have to still be there."""

    pids: frozenset[int]
    files: frozenset[Path]

    def losses(self) -> list[str]:
        """What of it is gone."""
        result = [f"process {pid}" for pid in self.pids if pid not in _processes()]
        result += [f"{file}" for file in sorted(self.files) if not file.exists()]
        return result + [f"link {LINK}"] * (not (LINKS / LINK).exists())


def _groups() -> list[Path]:
    """The default cluster's folder in each cgroup hierarchy."""
    tops = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]
    return [top / GROUP for top in tops if (top / GROUP).is_dir()]


def _processes() -> set[int]:
    found: set[int] = set()
    for group in _groups():
        for folder, _, _ in os.walk(group):  # which passes over what ends in the meantime
            with contextlib.suppress(OSError):
                found |= {int(word) for word in (Path(folder) / "cgroup.procs").read_text().split()}
    return found


@contextlib.contextmanager
def user() -> Iterator[User]:
    """What the tests must not touch; created here, and removed again, when no demo runs."""
    results = ARTIFACTS / "survival-decoy"
    (results / "plots").mkdir(parents=True, exist_ok=True)
    (results / "report.html").write_text("a run of the user's")
    try:
        with contextlib.ExitStack() as stack:
            running = frozenset(_processes())
            files = stack.enter_context(folder()) | {results / "report.html"}
            yield User(running or frozenset([stack.enter_context(_decoy())]), files)
    finally:
        shutil.rmtree(results)


@contextlib.contextmanager
def folder() -> Iterator[frozenset[Path]]:
    """The files that must stay in the default cluster's folder: the user's, running or stopped, else a decoy's, which goes again."""
    if CLUSTER.exists():
        yield frozenset(kept for pattern in OF_USER for kept in CLUSTER.glob(pattern))
        return
    CLUSTER.mkdir(parents=True)
    (CLUSTER / "admin.conf").write_text(WORDS)
    (CLUSTER / home.MARK).write_text(home.TAG)
    try:
        yield frozenset([CLUSTER / "admin.conf"])
    finally:
        with contextlib.suppress(OSError):  # a real demo may have started in the meantime and taken its place
            if (CLUSTER / "admin.conf").read_text() == WORDS:
                shutil.rmtree(CLUSTER)


@contextlib.contextmanager
def _decoy() -> Iterator[int]:
    """A process in the default cluster's cgroup, with that cluster's link."""
    top = next(
        path for path in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")) if (path / "cgroup.procs").exists()
    )
    group = top / GROUP / "outer"
    sleeper = subprocess.Popen(["sleep", "infinity"])
    index = ""
    try:
        group.mkdir(parents=True, exist_ok=True)  # tests that were killed leave this, and the link
        (group / "cgroup.procs").write_text(str(sleeper.pid))
        subprocess.run(["ip", "link", "del", LINK], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "add", LINK, "type", "bridge"], check=True)
        index = (LINKS / LINK / "ifindex").read_text()
        yield sleeper.pid
    finally:
        sleeper.kill()
        sleeper.wait()
        with contextlib.suppress(OSError):  # as above
            if (LINKS / LINK / "ifindex").read_text() == index:
                subprocess.run(["ip", "link", "del", LINK], check=False)
        for part in (group, group.parent):
            with contextlib.suppress(OSError):
                part.rmdir()
