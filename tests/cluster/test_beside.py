"""What a cluster that runs next to ours keeps: caches that it uses, its images, the kernel settings it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from e2e import beside
from embedded_cluster.base import cgroups, locks, others, paths
from embedded_cluster.base.home import MARK, TAG
from embedded_cluster.builds import pyenv
from embedded_cluster.nodes import kernel

CLUSTER = Path(__file__).resolve().parents[2] / "cluster"
MODULE = '#!/bin/sh\necho "$@" >> {log}\ncase $1 in --remove) rm -r {bridges} ;; *) mkdir {bridges} && for f in {calls}; do echo 1 > {bridges}/$f; done ;; esac\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TRAINLAB_HOME with a cluster named `second`, into which an image was loaded."""
    monkeypatch.setattr(paths, "HOME", tmp_path)
    monkeypatch.setattr(paths, "CLUSTER", tmp_path / "cluster")
    monkeypatch.setattr(paths, "LOCK", tmp_path / "lock")
    node = tmp_path / "cluster-second" / "nodes" / "n1"
    node.mkdir(parents=True)
    (node / "images.json").write_text(json.dumps({"localhost/trainlab-trainer:1": "sha256:1"}))
    paths.CLUSTER.mkdir()
    for folder in (paths.CLUSTER, tmp_path / "cluster-second"):
        (folder / MARK).write_text(TAG, encoding="ascii")
    return tmp_path


def test_another_cluster_is_seen(home: Path) -> None:
    assert others.folders() == {"second": home / "cluster-second"}
    assert others.at_work() == ["second"]
    assert others.images() == {"localhost/trainlab-trainer:1"}


def test_what_a_user_named_like_a_cluster_is_none(home: Path) -> None:
    for name in ("cluster-notes/x", "clusters/x", "lock-picking", "locks/x"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text("x")
    assert others.at_work() == ["second"]


def test_a_command_of_another_cluster_is_seen(home: Path) -> None:
    """Its `up` has made images, but no folder yet."""
    with locks.waiting(home / "lock-third", "never"), locks.waiting(paths.LOCK, "never"):
        assert others.at_work() == ["second", "third"]
    assert others.at_work() == ["second"]


def test_the_usual_cluster_is_seen_from_another(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "CLUSTER", home / "cluster-second")
    assert others.at_work() == ["trainlab"]


@pytest.mark.skipif(os.geteuid() != 0, reason="the cluster's commands need root")
def test_the_cache_of_another_cluster_is_not_removed(home: Path) -> None:
    """With the remedy; nothing is removed, not even what would have been ours."""
    (home / "cache").mkdir()
    env = os.environ | {"TRAINLAB_HOME": str(home), "TRAINLAB_CLUSTER": "decoy"}
    command = [sys.executable, str(CLUSTER), "demo-down", "--cache"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"error: {home}/cache is used by second, trainlab: take that down first (TRAINLAB_CLUSTER="
    )
    assert (home / "cache").is_dir() and (home / "cluster-second").is_dir() and (home / "cluster").is_dir()


def test_wheels_of_another_checkout_and_of_a_running_build_are_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that neither has go."""
    monkeypatch.setattr(paths, "CACHE", tmp_path)
    monkeypatch.setattr(pyenv, "download", lambda _words, target, _what: target.mkdir())

    def wheels(name: str) -> Path:
        checkout = tmp_path / name
        checkout.mkdir()
        (checkout / "requirements.lock").write_text(name)
        monkeypatch.setattr(paths, "REPO", checkout)
        monkeypatch.setattr(pyenv, "TRAINER_LOCKS", (checkout / "requirements.lock",))
        return pyenv.wheels()

    linked = wheels("linked")
    venv = tmp_path / f"venv-{'a' * 12}"
    venv.mkdir()
    (venv / pyenv.CHECKOUTS).write_text(json.dumps([str(tmp_path / "linked"), str(tmp_path / "gone")]))
    (tmp_path / "linked" / ".venv").symlink_to(venv)
    built = wheels("built")
    words = [sys.executable, "-c", "input()", "build", "--volume", f"{built}:/wheels:ro"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as build:
        unused = wheels("unused")
        ours = wheels("ours")
        assert [one.exists() for one in (linked, built, unused, ours)] == [True, True, False, True]
        build.kill()
    newest = wheels("newest")
    assert [one.exists() for one in (linked, built, ours, newest)] == [True, False, False, True]


def test_the_tests_leave_a_users_stopped_cluster_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reboot no process of it runs, but it holds what was trained; where there is none, a decoy's folder goes again."""
    monkeypatch.setattr(beside, "CLUSTER", tmp_path / "cluster")
    with beside.folder() as decoy:
        assert all(file.is_file() for file in decoy)
    assert list(tmp_path.iterdir()) == []
    theirs = {"admin.conf": "how to reach it", "share/rwx/pvc-1_demo_runs/survival-1/model.safetensors": "weights"}
    for name, words in theirs.items():
        (tmp_path / "cluster" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cluster" / name).write_text(words)
    with beside.folder() as kept:
        assert kept == {tmp_path / "cluster" / name for name in ("admin.conf", "share/rwx/pvc-1_demo_runs")}
    assert {name: (tmp_path / "cluster" / name).read_text() for name in theirs} == theirs


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose kernel has no br_netfilter, and a modprobe that creates what the real one does."""
    monkeypatch.setattr(kernel, "NOTE", tmp_path / "note.json")
    monkeypatch.setattr(kernel, "BRIDGES", tmp_path / "bridges")
    monkeypatch.setattr(kernel, "_in_use", lambda: any(_calls(tmp_path)))
    program = tmp_path / "modprobe"
    names = {"log": tmp_path / "log", "bridges": tmp_path / "bridges", "calls": " ".join(kernel.CALLS)}
    program.write_text(MODULE.format(**names))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def _calls(machine: Path) -> list[int]:
    return [int((machine / "bridges" / name).read_text()) for name in kernel.CALLS]


def test_the_module_goes_with_the_last_cluster(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters come up, the first goes down, then the second."""
    monkeypatch.setattr(cgroups, "others", lambda: [])
    kernel.prepare()
    assert _calls(machine) == [0, 0, 0]  # the host's own bridges behave as without the module
    kernel.prepare()
    monkeypatch.setattr(cgroups, "others", lambda: ["trainlab"])
    kernel.restore()
    assert (machine / "bridges").exists()
    monkeypatch.setattr(cgroups, "others", lambda: [])
    kernel.restore()
    assert not (machine / "bridges").exists() and not kernel.NOTE.exists()
    assert (machine / "log").read_text() == "br_netfilter\n--remove br_netfilter\n"


def test_a_module_that_was_there_stays(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "others", lambda: [])
    subprocess.run([str(machine / "modprobe"), kernel.MODULE], check=True)
    kernel.prepare()
    assert _calls(machine) == [1, 1, 1]
    kernel.restore()
    assert _calls(machine) == [1, 1, 1]


def test_a_module_that_others_use_by_now_stays(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "others", lambda: [])
    kernel.prepare()
    (machine / "bridges" / kernel.CALLS[0]).write_text("1")
    kernel.restore()
    assert (machine / "bridges").exists()


def test_groups_of_other_clusters_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with processes: not ours, not an empty one, not one of another name."""
    monkeypatch.setattr(cgroups, "hierarchies", lambda: (cgroups.Hierarchy(tmp_path, 1, "pids"),))
    for group, pids in (
        ("trainlab", "1\n"),
        ("trainlab-second", "2\n"),
        ("trainlab-check-3", ""),
        ("trainlabs", "4\n"),
    ):
        (tmp_path / group / "n1").mkdir(parents=True)
        (tmp_path / group / "n1" / "cgroup.procs").write_text(pids)
    assert cgroups.others() == ["trainlab-second"]
