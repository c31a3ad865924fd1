"""A user's files survive every command, whatever TRAINLAB_HOME is, and a command that uses the cache keeps it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from embedded_cluster import commands
from embedded_cluster.base import cgroups, home, locks, others, paths, programs
from embedded_cluster.base.say import UserError
from embedded_cluster.nodes import cluster, host, kernel
from embedded_cluster.tasks import alone
from embedded_cluster.tasks.down import run

THEIRS = (
    *("package-lock.json", "clock.py", ".gitlock", "alone-in-the-dark/x", "cluster/thesis.tex", "cluster-notes/x"),
    *(
        "lock",
        "lock-picking",
        "locks/x",
        "demo-tape.lock",
        "alone/server.pid",
        "alone-runs/runs/x",
        "alone-logs/server.log",
        "alone-logs/notes.txt",
    ),
)
ALL_OF_UP = ("run/switch", "log/n1.log", "share/rwx/x", "nodes/n1/images.json", "admin.conf")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TRAINLAB_HOME of root, on a machine without processes, links and groups of a cluster."""
    result = tmp_path / "home"
    result.mkdir()
    for name, path in {"HOME": "", "CACHE": "cache", "CLUSTER": "cluster", "LOCK": "lock", "REPO": "checkout"}.items():
        monkeypatch.setattr(paths, name, result / path)
    monkeypatch.setattr(alone, "FOLDER", result / "alone")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(cgroups, "exists", lambda: False)
    monkeypatch.setattr(cgroups, "processes", lambda *_: set())
    monkeypatch.setattr(cgroups, "remove", lambda: None)
    monkeypatch.setattr(host, "link_exists", lambda: False)
    monkeypatch.setattr(kernel, "restore", lambda: None)
    monkeypatch.setattr(host, "LOCK_SECONDS", 0.1)
    return result


def _write(top: Path, *names: str) -> None:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(f"years of work on {name}")


def _kept(top: Path) -> list[str]:
    return [name for name in THEIRS if (top / name).is_file()]


@pytest.fixture
def somebody(folder: Path) -> Path:
    """A user's home directory as TRAINLAB_HOME, with a cache that an earlier command made."""
    _write(folder, *THEIRS)
    (folder / "cache").mkdir()
    (folder / "cache" / home.MARK).write_text(home.TAG, encoding="ascii")
    (folder / "cache" / "bin").mkdir()
    return folder


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("name", ["", "-notes"])
def test_demo_down_keeps_what_it_did_not_make(
    somebody: Path, monkeypatch: pytest.MonkeyPatch, name: str, cache: bool
) -> None:
    """Nor of a cluster that is named like a folder of the user."""
    monkeypatch.setattr(paths, "LOCK", somebody / "lock-second")  # `lock` is the user's here
    monkeypatch.setattr(paths, "CLUSTER", somebody / f"cluster{name}")
    assert run(cache) is cache
    assert _kept(somebody) == list(THEIRS)
    assert (somebody / "cache").exists() is not cache


def test_without_root_the_cluster_of_root_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sudo make demo`, then `make demo-down`: what is the user's own goes, and the command does not end well."""
    home.make(paths.CACHE)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(cgroups, "exists", lambda: True)
    for cache in (False, True):
        with pytest.raises(UserError, match="still does: sudo make demo-down"):
            run(cache)
        assert paths.CACHE.exists() is not cache


def test_up_refuses_a_folder_of_somebody_else_before_it_builds(somebody: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "up", lambda *_: pytest.fail("goes on"))
    monkeypatch.setattr(sys, "argv", ["cluster", "up"])
    monkeypatch.setenv("TMPDIR", "/tmp")
    with pytest.raises(UserError) as refused:
        commands._main()
    assert str(refused.value) == (
        f"{somebody}/cluster exists and was not made by trainlab: set TRAINLAB_HOME to another folder, e.g. {somebody}/trainlab"
        ", or TRAINLAB_CLUSTER to another name, or move it away; nothing in it was touched"
    )
    assert _kept(somebody) == list(THEIRS)


def test_demo_alone_refuses_a_folder_of_somebody_else(somebody: Path) -> None:
    with pytest.raises(UserError, match=r"/alone exists and was not made by trainlab: .* TRAINLAB_CLUSTER to another"):
        home.make(alone.FOLDER)
    assert (somebody / "alone" / "server.pid").exists()


def test_what_we_make_is_marked_and_goes(folder: Path) -> None:
    for made in (paths.CACHE, paths.CLUSTER, alone.FOLDER, folder / "alone-second"):
        home.make(made)
        home.make(made)
        _write(made, "x")
    assert run(cache=False)
    assert sorted(path.name for path in folder.iterdir()) == ["alone", "alone-second", "cache", "lock"]
    assert run(cache=True)
    assert list(folder.iterdir()) == []


def test_what_a_killed_removal_leaves_is_still_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.make(paths.CLUSTER)
    _write(folder / "cluster", *ALL_OF_UP)

    def killed(*argv: str, **_: object) -> str:
        """Removes some of what is named to it, the mark before all else if that is."""
        named = sorted((Path(each) for each in argv[argv.index("--") + 1 :]), key=lambda each: each.name != home.MARK)
        for each in named[:3]:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(programs, "run", killed)
        run(cache=False)
    assert run(cache=False) and not paths.CLUSTER.exists()


def test_the_state_of_the_cluster_that_goes_is_what_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of no other: it is looked for in the folder that is removed."""
    home.make(paths.CLUSTER)
    _write(folder / "cluster", *ALL_OF_UP, "state.json")

    def killed(*_: str, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(programs, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        run(cache=False)
    assert [name for name in (*ALL_OF_UP, "state.json") if not (paths.CLUSTER / name).exists()] == ["state.json"]


def test_a_link_to_another_disk_stays(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    paths.CACHE.symlink_to(tmp_path / "disk")
    home.claim()
    _write(paths.CACHE, "bin/x")
    assert run(cache=True)
    assert paths.CACHE.is_symlink() and list((tmp_path / "disk").iterdir()) == []


@pytest.mark.parametrize("name", ["demo.lock", "alone.lock", "lock", "apt.lock", "cache/trainer.lock"])
def test_the_cache_stays_while_a_command_uses_it(folder: Path, name: str) -> None:
    home.make(paths.CACHE)
    with locks.waiting(folder / name, "never"), pytest.raises(UserError) as refused:
        run(cache=True)
    assert f"another command uses {paths.CACHE} (pid {os.getpid()}: " in str(refused.value)
    assert str(refused.value).endswith(" s: wait for it or end it, then try again")
    assert paths.CACHE.is_dir() and (folder / name).exists()
    run(cache=True)
    assert list(folder.iterdir()) == []


def test_a_demo_of_another_cluster_counts(folder: Path) -> None:
    home.make(paths.CACHE)
    with locks.waiting(folder / "demo-second.lock", "never"), pytest.raises(UserError, match="another command uses"):
        run(cache=True)


def test_the_server_of_another_name_keeps_its_models(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.make(folder / "alone-second")
    monkeypatch.setattr(alone, "server", lambda where: 1 if where.name == "alone-second" else None)
    with pytest.raises(UserError, match=r"is used by second: take that down first \(TRAINLAB_CLUSTER=second make demo"):
        run(cache=True)
    assert (folder / "alone-second").is_dir() and others.folders() == {}
