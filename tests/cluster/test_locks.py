"""Commands that wait for each other say for which one and how long."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from embedded_cluster.base import locks, paths, say
from embedded_cluster.containers import images

CLUSTER = Path(__file__).resolve().parents[2] / "cluster"
HOLD = """
import sys
from pathlib import Path
from embedded_cluster.base import locks
with locks.waiting(Path(sys.argv[1]), "why", shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def held(path: Path, kind: str = "alone") -> Iterator[subprocess.Popen[str]]:
    """Another process holds the lock until it is told to release it."""
    command = [sys.executable, "-c", HOLD, str(path), kind]
    with subprocess.Popen(command, cwd=CLUSTER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_who_gives_up_names_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        held(path) as other,
        pytest.raises(say.UserError) as error,
        locks.waiting(path, "another up runs", seconds=0.3),
    ):
        pass
    assert str(error.value).startswith(f"another up runs (pid {other.pid}: -c {path} alone); waited ")
    assert str(error.value).endswith(" s: wait for it or end it, then try again")


def test_who_waits_says_for_whom_and_how_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lock"
    with held(path) as other:
        assert locks.held(path)
        assert other.stdin
        threading.Timer(0.5, other.stdin.close).start()
        with locks.waiting(path, "another build runs"):
            pass
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2, lines
    first, last = lines
    assert first == f"    another build runs (pid {other.pid}: -c {path} alone); waiting for it"
    assert re.fullmatch(r"    waited \d+\.\d s", last)


def test_whoever_waits_for_an_image_waits_for_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paths, "CACHE", tmp_path)
    with held(tmp_path / "trainer.lock") as other:
        assert other.stdin
        threading.Timer(0.3, other.stdin.close).start()
        with images.exclusive_build():
            pass
    assert capsys.readouterr().out.startswith(f"    another build of an image is running (pid {other.pid}: ")


def test_shared_ones_do_not_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lock"
    with held(path, "shared"), locks.waiting(path, "another command", shared=True, seconds=0.1):
        pass
    assert capsys.readouterr().out == ""


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held(path) as other:
        other.kill()
        other.wait()
        assert not locks.held(path)
        with locks.waiting(path, "another", seconds=0.1):
            assert locks.holder(path).startswith("pid ")


def test_nothing_else_locks() -> None:
    """One way of locking, so that every wait is reported."""
    others = [file for file in CLUSTER.rglob("*.py") if "fcntl.flock(" in file.read_text(encoding="utf-8")]
    assert [file.name for file in others] == ["locks.py"]
