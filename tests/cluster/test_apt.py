"""Debian packages: the holder of apt's lock is named, and an unreachable archive is one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from embedded_cluster import apt
from embedded_cluster.say import UserError

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""


def test_the_holder_of_a_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """dpkg locks with fcntl(2), as this other process does."""
    lock = tmp_path / "lock-frontend"
    monkeypatch.setattr(apt, "LOCKS", (str(tmp_path / "none"), str(lock)))
    lock.touch()
    assert apt.holder() == ""
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert apt.holder() == f"{Path(sys.executable).name} (process {other.pid})"
        other.communicate("\n")
    assert apt.holder() == ""


def test_who_uses_apt_for_too_long_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(apt, "holder", lambda: "unattended-upgr (process 7)")
    monkeypatch.setattr(apt, "WAIT_SECONDS", 0.0)
    with pytest.raises(
        UserError, match=r"unattended-upgr \(process 7\) has been using apt for 0 s: wait for it or end it"
    ):
        apt._install(["iproute2"])
    assert "unattended-upgr (process 7) is using apt: waiting for it" in capsys.readouterr().out


def test_an_archive_out_of_reach_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """apt-get's own first error is the reason; its warnings are not."""
    program = tmp_path / "apt-get"
    errors = "W: a warning\\nE: Failed to fetch x  Could not resolve\\nE: Some index files failed\\nE: a third\\n"
    program.write_text(f"#!/bin/sh\nprintf '{errors}' >&2\nexit 100\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(apt, "holder", lambda: "")
    with pytest.raises(UserError) as failed:
        apt._install(["iproute2"])
    assert str(failed.value) == (
        "cannot reach Debian's package archive: apt-get update: E: Failed to fetch x  Could not resolve; "
        "check the network, its proxy (http_proxy, https_proxy) and /etc/apt/sources.list"
    )
