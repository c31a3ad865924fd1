"""How commands of the cluster end prematurely: killed, interrupted, without disk space, two at once; what they leave.

They are ended at each line `==>` that they print, not after a number of seconds, which differs on each machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_cluster.base import locks
from waiting import until

from e2e import machine

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("no_cluster")]
UP = ("up", "--nodes", "1")
STEPS = (3, 4)
"""Of the lines `==>` of an `up`, clear, prepare, start, node Ready, CoreDNS, those with a cluster in the making; a signal before
every line is in tests/cluster/test_children.py, without one."""
DELAYS = (0.0, 0.3, 1.0)
"""Seconds after the line, in turn: before the first program of that step, or in the middle of one."""
GONE_SECONDS = 10.0
CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130, signal.SIGTERM: 143}


def _ended(number: int, step: int, *argv: str) -> tuple[int, list[str]]:
    """Send a signal to the command itself, not to its programs, after its step number `step` has begun."""
    command = machine.command(*argv)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=machine.ENVIRONMENT, text=True, **pipes) as process:  # type: ignore[call-overload]
        lines, steps = [], 0
        for line in process.stdout:
            lines.append(line)
            steps += line.startswith("==> ")
            if line.startswith("==> ") and steps == step:
                time.sleep(DELAYS[step % len(DELAYS)])
                process.send_signal(number)
        process.wait()
    files = (machine.LOCK, *(machine.HOME / "cache").glob("*.lock"))
    ours = [file for file in files if locks.holder(file).startswith(f"pid {process.pid}:")]
    # not at once: a program between its fork and its exec has what the command had opened
    until(
        lambda: not any(map(locks.held, ours)), 2, lambda: f"a process that the command had started holds one of {ours}"
    )
    return process.returncode, lines


def _gone(found: Callable[[], list[str]]) -> None:
    """Nothing is found any more, once the kernel has killed what it was told to."""
    until(lambda: not found(), GONE_SECONDS, found, 0.1)


@pytest.mark.rest
def test_up_interrupted_at_every_step() -> None:
    """One sentence, and all that was made so far is gone: script, programs, nodes, folder. The next one continues."""
    for step in STEPS:
        number = (signal.SIGINT, signal.SIGTERM)[step % 2]
        code, lines = _ended(number, step, *UP)
        assert code == CODES[number], "".join(lines)
        assert lines[-1].startswith("error: ") and lines[-1].endswith("it continues from here\n")
        assert machine.ours() == {} and not machine.FOLDER.exists()


def test_up_killed_at_every_step() -> None:
    """The script and its children go, only nodes keep running: the next `up` clears what is partial and keeps the rest."""
    for step in STEPS:
        code, lines = _ended(signal.SIGKILL, step, *UP)
        assert code == -signal.SIGKILL, "".join(lines)
        _gone(lambda: list(machine.ours(outside=True).values()))
    assert "==> prepare" not in machine.cluster(*UP)
    assert list(machine.ready_nodes()) == ["n1"]
    _kill_nodes()


def _kill_nodes() -> None:
    for pid in machine.group():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.mark.rest
def test_images_killed_in_the_middle() -> None:
    """The image store's containerd ends with the command; the next one imports what is missing."""
    code, lines = _ended(signal.SIGKILL, 4, "images", "--force")
    assert code == CODES[signal.SIGKILL], "".join(lines)
    _gone(lambda: [words for words in _commands() if "/image-store-" in words])


def _commands() -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_text().replace("\0", " "))
        except OSError:
            continue
    return [words for words in found if words.startswith(("containerd", "ctr", "unshare", "bash", "setpriv"))]


@pytest.mark.rest
def test_down_after_kill_and_two_ups_at_once() -> None:
    """What a killed `up` left is removed completely; of two, the second names the first, or finds the work done."""
    machine.cluster("down")
    before = machine.snapshot()
    assert _ended(signal.SIGKILL, 3, *UP)[0] == -signal.SIGKILL
    assert machine.cluster("down").endswith("changed=true\n")
    assert machine.changes(before, machine.snapshot()) == {}
    with subprocess.Popen(machine.command(*UP), env=machine.ENVIRONMENT, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout and any(line.startswith("==> ") for line in first.stdout)
        second = subprocess.run(
            machine.command(*UP), env=machine.ENVIRONMENT, capture_output=True, text=True, check=False
        )
        out, _ = first.communicate()
    assert first.returncode == 0, out
    if second.returncode:
        assert second.returncode == 2
        assert f"error: another up or down is running (pid {first.pid}: cluster up --nodes 1); waited " in second.stderr
    else:
        assert second.stdout.endswith("changed=false\n")


@pytest.mark.parametrize(
    "limit",
    [pytest.param("size=400k", id="bytes"), pytest.param("nr_inodes=24", id="inodes", marks=pytest.mark.rest)],
)
def test_a_full_disk(limit: str, tmp_path: Path) -> None:
    """A small file system of its own: one sentence with the remedy, and `down` works from there."""
    machine.cluster("down")
    home, cache = tmp_path / "home", machine.HOME / "cache"
    home.mkdir()
    command = " ".join(machine.command())
    script = (
        f"mount -t tmpfs -o {limit} tmpfs {home} && mkdir {home}/cache && mount --bind {cache} {home}/cache && cd / || exit 99\n"
        f"{command} up --nodes 1; echo code=$?; {command} down; echo code=$?; ls {home}"
    )
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script],
        env=machine.ENVIRONMENT | {"TRAINLAB_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    _, down, left = done.stdout.split("code=")
    assert down.startswith("2\n") and down.endswith("changed=true\n")
    assert left.split() == ["0", "cache", f"lock-{machine.CLUSTER}"]
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr and f"{home} has " in done.stderr
    assert "free some space" in done.stderr and "set TRAINLAB_HOME to a folder on a larger disk" in done.stderr
    assert machine.ours() == {}
