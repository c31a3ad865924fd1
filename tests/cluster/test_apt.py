"""Debian packages: the holder of apt's lock is named, a failure is one sentence, and no signal breaks dpkg's database."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from embedded_cluster.base.say import UserError
from embedded_cluster.builds import apt

CLUSTER = Path(__file__).resolve().parents[2] / "cluster"
INSTALL = """
import sys
from embedded_cluster.base import ends
from embedded_cluster.builds import apt
apt.holder = lambda: ""
sys.exit(ends.run(lambda: apt._install(["slow"]) or 0, after="it goes on from here"))
"""
CONTROL = """Package: slow
Version: 1
Architecture: all
Maintainer: Nobody <nobody@example.com>
Description: takes its time
"""
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


def test_only_a_failure_of_the_network_has_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = "E: Sub-process /usr/bin/dpkg returned an error code (1)"
    _stub(tmp_path / "apt-get", f"[ $# = 6 ] || {{ echo '{error}' >&2; exit 100; }}")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(apt, "holder", lambda: "")
    with pytest.raises(UserError) as failed:
        apt._install(["iproute2"])
    assert str(failed.value).startswith(f"cannot install: apt-get install: {error}; run `apt-get ")
    assert apt.REMEDY not in str(failed.value)


def test_what_was_cut_short_is_finished_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """apt-get refuses to start while dpkg's journal has an entry."""
    asked, journal = tmp_path / "asked", tmp_path / "updates"
    journal.mkdir()
    (journal / "tmp.i").touch()
    for name in ("apt-get", "dpkg"):
        _stub(tmp_path / name, f'echo "{name} $*" >> {asked}')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(apt, "holder", lambda: "")
    monkeypatch.setattr(apt, "JOURNAL", journal)
    apt._install(["iproute2"])
    assert "dpkg " not in asked.read_text()
    asked.unlink()
    (journal / "0001").touch()
    apt._install(["iproute2"])
    assert asked.read_text().startswith("dpkg --configure -a\napt-get ")


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg is Debian's")
@pytest.mark.parametrize(("number", "whole"), [(signal.SIGINT, True), (signal.SIGTERM, False)], ids=["Ctrl-C", "TERM"])
def test_a_signal_ends_us_once_dpkg_is_done(tmp_path: Path, number: signal.Signals, whole: bool) -> None:
    """A real dpkg in a root of its own; the terminal's Ctrl-C reaches the whole process group."""
    root, begun = tmp_path / "root", tmp_path / "begun"
    database = root / "var/lib/dpkg"
    for folder in ("info", "updates", "triggers"):
        (database / folder).mkdir(parents=True)
    (database / "status").touch()
    package = _package(tmp_path, f"touch {begun}; sleep 1.5")
    options = f"--root={root} --force-script-chrootless --force-not-root --log={tmp_path}/log"
    _stub(
        tmp_path / "apt-get", f'case "$*" in *update*|*--download-only*) ;; *) exec dpkg {options} -i {package} ;; esac'
    )
    with subprocess.Popen(
        [sys.executable, "-c", INSTALL],
        cwd=CLUSTER,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}:/usr/sbin:/sbin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while not begun.exists():
            time.sleep(0.05)
            assert process.poll() is None, process.communicate()
        (os.killpg if whole else os.kill)(process.pid, number)
        out, said = process.communicate()
    query = ["dpkg-query", f"--admindir={database}", "-W", "-f", "${db:Status-Status}", "slow"]
    status = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    assert (process.returncode, status) == (128 + number, "installed"), out + said
    assert not list((database / "updates").iterdir())
    assert "must not be cut short" in out
    assert said.startswith("error: ") and said.endswith("it goes on from here\n") and said.count("\n") == 1


def _stub(file: Path, script: str) -> None:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def _package(folder: Path, script: str) -> Path:
    """An empty package whose installation ends with this script."""
    debian = folder / "slow" / "DEBIAN"
    debian.mkdir(parents=True)
    (debian / "control").write_text(CONTROL)
    _stub(debian / "postinst", script)
    command = ["dpkg-deb", "--root-owner-group", "--build", str(debian.parent), str(folder / "slow.deb")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "slow.deb"
