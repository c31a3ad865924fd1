"""`make demo` is ended at each line of its first minute, on a machine without caches: nothing of it runs on.

Real downloads, real builds; every process of a run is known by the TRAINLAB_HOME in its environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import locks
import pytest
import system

REPO = Path(__file__).resolve().parents[2]
SECONDS = 60.0
# The disk that a whole cold demo needs may not be free beside the caches of the machine that tests.
DEMO = """
import runpy, sys
sys.path.insert(0, "cluster/lab")
import preflight
preflight.DISK_GIB = dict.fromkeys(preflight.DISK_GIB, 0.0)
sys.argv = ["cluster/lab", "demo"]
runpy.run_path("cluster/lab/__main__.py", run_name="__main__")
"""
LINES = [
    ("Can this machine host the cluster?", signal.SIGINT),
    ("Programs from Go modules", signal.SIGTERM),
    ("Debian bookworm root folder", signal.SIGTERM),
    ("build ", signal.SIGINT),
    ("wheels of the training stack", signal.SIGTERM),
]
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not system.has_apt(), reason="the demo makes its cluster as root on Debian only"
)


def _of(home: Path) -> list[str]:
    """Command lines of all processes of this TRAINLAB_HOME."""
    word, found = f"TRAINLAB_HOME={home}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.mark.parametrize(("line", "number"), LINES)
def test_nothing_runs_on_after_a_signal(tmp_path: Path, line: str, number: int) -> None:
    """One sentence, the signal's exit code, no process, no lock; only the first process is told, as `kill` does."""
    env = {**os.environ, "TRAINLAB_HOME": str(tmp_path / "home"), "TRAINLAB_CLUSTER": "stops"}
    process = subprocess.Popen(
        ["cluster/python", "-c", DEMO],
        cwd=REPO,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    guard = threading.Timer(SECONDS, process.kill)
    guard.start()
    said = []
    assert process.stdout is not None
    for text in process.stdout:
        said.append(text)
        if f"==> {line}" in text:
            process.send_signal(number)
            break
    said += process.stdout.readlines()
    code = process.wait()
    guard.cancel()
    output = "".join(said)
    assert code == 128 + number, output
    assert said[-1].startswith("error: ") and said[-1].endswith("goes on from here\n"), output
    assert "Traceback" not in output
    end = time.monotonic() + 5
    while (left := _of(tmp_path / "home")) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left
    assert not [file for file in (tmp_path / "home").rglob("*lock") if file.is_file() and locks.held(file)]
