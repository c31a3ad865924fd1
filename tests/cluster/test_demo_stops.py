"""`make demo` is ended at each line of its first minute, on a machine without caches or with some: nothing of it keeps running.

Real downloads and real builds; test_demo.py in tests/e2e ends it during a play.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e import stopping
from embedded_cluster.base import locks, paths, system
from embedded_cluster.base.home import MARK
from fresh import checkout

# The disk space of a whole cold demo may not be free next to the caches of the test machine, nor its memory next to a cluster.
DEMO = """
import sys
from embedded_cluster import commands
from embedded_cluster.tasks import preflight
preflight.DISK_GIB = dict.fromkeys(preflight.DISK_GIB, 0.0)
preflight.MEMORY_GIB = preflight.MEMORY_OF_ONE_GIB = 0.0
sys.argv = ["cluster", "demo"]
sys.exit(commands.main())
"""
OWN = {  # a demo that runs here uses the default ones
    "TRAINLAB_CLUSTER": "stops",
    "TRAINLAB_NODE_SUBNET": "10.246.9.0/24",
    "TRAINLAB_POD_SUBNET": "10.253.0.0/16",
    "TRAINLAB_SERVICE_SUBNET": "10.254.0.0/16",
}
DOWNLOADED = ("wheels-*", "installer-*")
FOLDERS = (*DOWNLOADED, "rootfs-*", "trainer-base-*")
LINES: list[tuple[str, signal.Signals, tuple[str, ...]]] = [
    ("buildah: stage packages", signal.SIGINT, FOLDERS),
    ("Can this machine host the cluster?", signal.SIGINT, ()),
    ("Programs from Go modules", signal.SIGTERM, ()),
    ("Debian bookworm root folder", signal.SIGTERM, ()),
    ("build ", signal.SIGINT, ()),
    ("wheels of the training stack", signal.SIGTERM, ()),
    ("Python environment", signal.SIGINT, DOWNLOADED),
    ("base image", signal.SIGTERM, FOLDERS),
]
"""A line, the signal there, and what an earlier run has left in the cache."""
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not system.has_apt(), reason="the demo makes its cluster as root on Debian only"
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A home on the file system of the caches, whose files can be linked, with a checkout: a demo links its .venv."""
    paths.CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stops-", dir=paths.CACHE) as folder:
        checkout.clone(Path(folder, "checkout"), os.getuid())
        yield Path(folder)


@pytest.mark.parametrize(("line", "number", "left"), LINES)
@pytest.mark.rest
def test_nothing_runs_on_after_a_signal(home: Path, line: str, number: signal.Signals, left: tuple[str, ...]) -> None:
    """One sentence, the signal's exit code, no process, no lock."""
    if left:
        (home / "cache").mkdir()
        shutil.copy2(paths.CACHE / MARK, home / "cache")  # made by trainlab
    for folder in (found for pattern in left for found in paths.CACHE.glob(pattern) if found.is_dir()):
        subprocess.run(["cp", "--archive", "--link", str(folder), str(home / "cache")], check=True)
    env = {"TRAINLAB_HOME": str(home), "PYTHONPATH": str(home / "checkout" / "cluster"), **OWN}
    ended = stopping.at(f"==> {line}", number, ["cluster/python", "-c", DEMO], env, home / "checkout")
    output = "".join(ended.lines)
    assert ended.code == 128 + number, output
    assert ended.lines[-1].startswith("error: ") and ended.lines[-1].endswith("continues from here\n"), output
    assert "Traceback" not in output
    assert not ended.left
    assert not [file for file in home.rglob("*lock*") if file.is_file() and locks.held(file)]
