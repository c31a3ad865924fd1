"""A program's name is the hash of all that it is built from, so one that exists is never stale."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from embedded_cluster.base import processes
from embedded_cluster.builds import build, modules, toolchain
from waiting import patience

CLUSTER = Path(__file__).resolve().parents[2] / "cluster"


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """The name of a program of one module, computed anew."""
    (tmp_path / "go.mod").write_text("module one\n")
    monkeypatch.setattr(modules, "folder", lambda _: tmp_path)
    monkeypatch.setattr(toolchain, "go_version", lambda: "go1.26.0")
    monkeypatch.setattr(build, "_flags", lambda _: ["-trimpath"])

    def named() -> str:
        build._digest.cache_clear()
        return build.binary("one").name

    yield named
    build._digest.cache_clear()


@pytest.mark.parametrize("what", ["go.mod", "go.sum", "main.go", "flags", "settings", "go"])
def test_each_input_changes_the_name(
    what: str, name: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = name()
    assert name() == before
    if what == "flags":
        monkeypatch.setattr(build, "_flags", lambda _: ["-trimpath", "-race"])
    elif what == "settings":
        monkeypatch.setitem(build.SETTINGS, "CGO_ENABLED", "1")
    elif what == "go":
        monkeypatch.setattr(toolchain, "go_version", lambda: "go1.26.6")
    else:
        (tmp_path / what).write_text("changed\n")
    assert name() != before


def test_a_removal_in_the_background_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever started a build reads its output until no process has it open."""
    runs = tmp_path / "runs"
    runs.touch()
    (tmp_path / "cache" / "go-build").mkdir(parents=True)
    (tmp_path / "nice").write_text(f"#!/bin/sh\nfor _ in $(seq 900); do [ ! -e {runs} ] || sleep 0.1; done\n")
    (tmp_path / "nice").chmod(0o755)
    monkeypatch.setenv("TRAINLAB_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(CLUSTER))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    began = time.monotonic()
    child = processes.Child(
        "build",
        [
            sys.executable,
            "-c",
            "from embedded_cluster.builds import build; build.ROOM_TO_SPARE = 1 << 60; build.drop_caches()",
        ],
    )
    assert (child.wait(), child.last) == (0, "")
    assert time.monotonic() - began < 60 * patience()
    runs.unlink()


def test_the_users_go_settings_are_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "GOTMPDIR", tmp_path / "go-tmp")
    for name in ("GOROOT", "GOARCH", "GOEXPERIMENT"):
        monkeypatch.setenv(name, "/usr/local/go")
        assert name not in build.environment()
    assert toolchain.go().endswith("go")


def test_what_a_killed_build_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go's objects are not in /tmp, and neither they nor half a program stay."""
    monkeypatch.setattr(build, "GOTMPDIR", tmp_path / "go-tmp")
    monkeypatch.setattr(build.paths, "BIN", tmp_path)
    monkeypatch.setattr(build.others, "at_work", lambda: True)
    monkeypatch.setattr(build, "_build", lambda _: "")
    assert build.environment()["GOTMPDIR"] == str(tmp_path / "go-tmp")
    (tmp_path / "go-tmp" / "go-build1").mkdir()
    (tmp_path / ".etcd-1.part").touch()
    build.build_all(["etcd"])
    assert not list(tmp_path.rglob("go-build*"))
    assert not list(tmp_path.glob(".*.part"))
