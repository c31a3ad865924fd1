"""A login may lack a home directory, a machine room for temporary files; what only looks creates nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from embedded_cluster.base import home, paths
from embedded_cluster.containers import image_store
from embedded_cluster.tasks import environment

CLUSTER = Path(__file__).resolve().parents[2] / "cluster"
NOBODY = """
import os, pwd, sys
def unknown(uid):
    raise KeyError(uid)
pwd.getpwuid, os.geteuid = unknown, lambda: 12345
from embedded_cluster import commands
sys.argv = ["cluster", "check"]
sys.exit(commands.main())
"""


def _check(**settings: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], **settings}
    command = [sys.executable, "-c", NOBODY]
    return subprocess.run(command, cwd=CLUSTER, env=env, capture_output=True, text=True, check=False)


def test_a_uid_that_no_file_knows_needs_one_of_two_variables(tmp_path: Path) -> None:
    done = _check()
    assert (done.returncode, done.stderr) == (
        2,
        "error: this machine has no home directory for uid 12345: set HOME or TRAINLAB_HOME\n",
    )
    for settings in ({"HOME": str(tmp_path)}, {"TRAINLAB_HOME": str(tmp_path)}):
        done = _check(**settings)
        assert (done.returncode, done.stderr) == (3, ""), settings
        assert "the cluster needs root, and this is uid 12345" in done.stdout


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TRAINLAB_HOME that does not exist, on a machine with a small temporary folder."""
    for name, path in {"HOME": "", "CACHE": "cache", "CLUSTER": "cluster"}.items():
        monkeypatch.setattr(paths, name, tmp_path / "trainlab" / path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(1 << 30, 1 << 30, 1))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", "")
    monkeypatch.delenv("TMPDIR")
    return tmp_path / "trainlab"


def test_roots_path_without_sbin_finds_chroot(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian's `su` and cron set it."""
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/games")
    environment.prepare()
    assert shutil.which("chroot") and os.environ["PATH"].startswith("/usr/local/bin:")


def test_looking_into_the_image_store_makes_none(nothing: Path) -> None:
    assert image_store.refs() == {} and not nothing.exists()


def test_only_commands_that_make_something_make_the_temporary_folder(nothing: Path) -> None:
    """`check`, `status` and `down` prepare their environment and claim nothing."""
    environment.prepare()
    assert not nothing.exists() and "TMPDIR" not in os.environ
    home.claim()
    assert os.environ["TMPDIR"] == tempfile.gettempdir() == f"{nothing}/cache/tmp"
    assert Path(tempfile.gettempdir()).is_dir()
