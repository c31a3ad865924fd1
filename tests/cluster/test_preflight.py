"""Everything that a machine lacks is reported at once, each with its remedy, and a check creates nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_cluster import commands
from embedded_cluster.base import cgroups, paths, say, system
from embedded_cluster.nodes import kept
from embedded_cluster.tasks import preflight
from trainlab.config.loading import load_values
from trainlab.config.types import quantity


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root on a Debian with everything, and nothing made yet."""
    monkeypatch.setattr(paths, "HOME", tmp_path / "trainlab")
    monkeypatch.setattr(paths, "CACHE", tmp_path / "trainlab" / "cache")
    monkeypatch.setattr(paths, "BIN", tmp_path / "trainlab" / "cache" / "bin")
    monkeypatch.setattr(paths, "CLUSTER", tmp_path / "trainlab" / "cluster")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(system, "release", lambda: {"ID": "debian"})
    monkeypatch.setattr(cgroups, "exists", lambda: False)
    monkeypatch.setattr(system, "memory_total", lambda: 24 * 2**30)


def _disk(monkeypatch: pytest.MonkeyPatch, gib: float) -> None:
    usage = shutil.disk_usage("/")._replace(free=int(gib * 2**30))
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)


def _memory(monkeypatch: pytest.MonkeyPatch, gib: float) -> None:
    monkeypatch.setattr(system, "memory_available", lambda: int(gib * 2**30))


def test_a_user_is_told_before_anything_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert preflight.problems(2) == ["the cluster needs root, and this is uid 1000: use sudo, or log in as root"]


def test_a_user_who_wants_to_push_is_told_how_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where podman or docker can build what this command cannot."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["cluster", "trainer-image", "--push", "registry.example.com/team/trainer"])
    with pytest.raises(say.UserError) as error:
        commands._main()
    assert str(error.value).startswith(
        "the cluster needs root, and this is uid 1000: use sudo, or log in as root; or build it"
    )
    assert "`podman build -f images/trainer/Containerfile --build-arg BASE=" in str(error.value)
    assert "`podman push --digestfile digest registry.example.com/team/trainer`" in str(error.value)


@pytest.mark.parametrize("tool", preflight.TOOLS)
def test_a_missing_tool_is_named_by_its_package(monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **more: None if name == tool else found(name, **more))
    assert preflight._tools() == [f"missing tools: apt-get install {preflight.TOOLS[tool]}"]


def test_memory_and_disk_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    _disk(monkeypatch, 12.0)
    _memory(monkeypatch, 11.98)
    memory, disk = preflight._resources(2)
    assert memory == "memory available: 11.9 GiB, needed 12 GiB: stop other programs or add memory"
    assert disk.startswith(
        f"disk at {paths.HOME.parent}: 12.0 GiB free, needed 40 GiB for programs, Python packages, images"
    )
    assert disk.endswith("free some, or set TRAINLAB_HOME to a folder on a larger disk")


def test_a_machine_whose_nodes_could_not_hold_the_pods_is_refused_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    _disk(monkeypatch, 41.0)
    _memory(monkeypatch, 12.5)
    monkeypatch.setattr(system, "memory_total", lambda: 13 * 2**30)
    words = "memory of this machine: 13.0 GiB, 2 nodes need 16 GiB: add memory, or set NODES=1"
    assert preflight._resources(2) == [words]
    assert preflight._resources(1) == []


def test_the_pods_of_survival_fit_the_machine_that_the_pages_ask_for() -> None:
    """A node has half of it, of which containerd, kubelet and the operators' pods take a gibibyte."""
    phase = load_values([paths.REPO / "values" / name for name in ("survival.yaml", "local/survival.yaml")]).phase
    a_node = preflight.MACHINE_GIB / 2 - 1
    assert quantity(phase.resources.memory) * phase.resources.nodes / 2 <= a_node * 2**30


def test_enough_of_both_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    _disk(monkeypatch, 41.0)
    _memory(monkeypatch, 12.5)
    assert preflight._resources(2) == []


def test_a_cluster_that_is_there_has_its_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its own images and volumes took is no reason to go on without it."""
    assert "the cluster itself" in preflight.to_come()
    monkeypatch.setattr(kept, "exists", lambda: True)
    assert "the cluster itself" not in preflight.to_come()


def test_a_cluster_that_runs_has_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its own pods use is no reason to refuse a second run."""
    _disk(monkeypatch, 41.0)
    _memory(monkeypatch, 2.0)
    monkeypatch.setattr(cgroups, "exists", lambda: True)
    assert preflight._resources(2) == []


@pytest.mark.parametrize(
    ("version", "controllers", "words"),
    [
        (0, set(), "no cgroup file system at /sys/fs/cgroup"),
        (2, {"cpu", "memory", "pids"}, "cgroup controllers missing in /sys/fs/cgroup: cpuset"),
        (1, {"cpu", "cpuacct", "cpuset", "memory"}, "cgroup controllers missing in /sys/fs/cgroup: devices, pids"),
    ],
)
def test_cgroups_without_what_the_kubelet_needs(
    monkeypatch: pytest.MonkeyPatch, version: int, controllers: set[str], words: str
) -> None:
    monkeypatch.setattr(cgroups, "version", lambda: version)
    monkeypatch.setattr(cgroups, "controllers", lambda: controllers)
    assert preflight._cgroups() == [f"{words}; {preflight.RIGHTS}"]


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        ({"cgroup.procs": "1\n", "cgroup.type": "domain\n", "cgroup.subtree_control": ""}, True),
        (
            {"cgroup.procs": "1\n", "cgroup.type": "domain\n", "cgroup.subtree_control": "cpuset cpu memory pids\n"},
            False,
        ),
        ({"cgroup.procs": "", "cgroup.type": "domain\n", "cgroup.subtree_control": ""}, False),
        ({"cgroup.procs": "1\n", "cgroup.subtree_control": ""}, False),
    ],
    ids=["container", "its init moved the processes", "none there", "the machine's own root"],
)
def test_a_container_with_a_cgroup_namespace_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], refused: bool
) -> None:
    """Docker's default on version 2: making groups works there, handing controllers down is EBUSY (cgroups(7), no internal processes)."""
    for name, text in (files | {"cgroup.controllers": "cpuset cpu memory pids\n"}).items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cgroups, "hierarchies", lambda: (cgroups.Hierarchy(tmp_path, 2),))
    problems = preflight._cgroups()
    assert bool(problems) == refused
    assert not refused or "hands no controllers down (cpu, cpuset, memory, pids" in problems[0]


def test_a_container_without_rights_is_told_the_kernels_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(argv, 1, "", "unshare: unshare failed: Operation not permitted\n")

    monkeypatch.setattr(subprocess, "run", refused)
    assert preflight._namespaces() == [
        f"namespaces cannot be created: unshare: unshare failed: Operation not permitted; {preflight.RIGHTS}"
    ]


def test_everything_is_told_at_once_and_nothing_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacks(what: str) -> Callable[..., list[str]]:
        return lambda *_: [what]

    for check in ("_tools", "_cgroups", "_namespaces", "_subnets", "_resources"):
        monkeypatch.setattr(preflight, check, lacks(check))
    assert preflight.report(9) == preflight.CANNOT_HOST
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "this machine cannot host the cluster: 6 thing(s) missing"
    assert said[1:-1] == [
        f"  - {one}"
        for one in ("--nodes 9: give 1 to 4", "_tools", "_cgroups", "_namespaces", "_subnets", "_resources")
    ]
    assert not paths.HOME.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="tries namespaces and mounts")
def test_a_try_leaves_nothing(tmp_path: Path) -> None:
    before = Path("/proc/self/mountinfo").read_text()
    preflight._namespaces()
    assert list(tmp_path.iterdir()) == [] and Path("/proc/self/mountinfo").read_text() == before


def test_a_disk_of_20_gib_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _disk(monkeypatch, 20.0)
    _memory(monkeypatch, 24.0)
    for check in ("_tools", "_cgroups", "_namespaces", "_subnets"):
        monkeypatch.setattr(preflight, check, list)
    assert preflight.report(2) == preflight.CANNOT_HOST
    said = capsys.readouterr().out
    assert (
        "1 thing(s) missing\n" in said and "20.0 GiB free, needed 40 GiB for programs, Python packages, images" in said
    )
    assert not paths.HOME.exists()


def test_readme_and_docs_ask_for_what_is_checked() -> None:
    disk, memory = sum(preflight.DISK_GIB.values()), preflight.MEMORY_GIB
    page = (paths.REPO / "docs" / "start" / "one-machine.md").read_text(encoding="utf-8")
    assert f"| disk | {disk:.0f} GiB below `/var/lib/trainlab` |" in page
    assert f"| memory | {preflight.MACHINE_GIB:.0f} GiB; {memory:.0f} GiB of it must be free." in page
    of_page = re.search(r"\| memory \| (\d+ GiB);", page)
    assert of_page is not None
    assert f"{of_page[1]} memory, {disk:.0f} GiB disk." in (paths.REPO / "README.md").read_text(encoding="utf-8")
