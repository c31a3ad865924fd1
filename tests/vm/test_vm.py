"""The embedded cluster on what people's machines boot: systemd, cgroup 2, nftables, Debian's own kernel, in QEMU.

One machine for each release; all its tests read the stages of one run. Its output is in artifacts/vm-RELEASE.log.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from embedded_cluster.base import locks, paths

from vm import disks, qemu

pytestmark = [pytest.mark.vm, pytest.mark.apart, pytest.mark.timeout(3 * 3600)]
REPO = paths.REPO
RELEASES = {"bookworm": ("12.", "6.1."), "trixie": ("13.", "6.12.")}
PATIENCE = 15.0  # Python on the host and inside, and the two cores are not always ours alone
QUIET_SECONDS = 900.0
STAGE_SECONDS = 3600.0


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    """A folder for the disks next to the cache, for hard links; one such test at a time, and nothing of it stays."""
    cache = disks.paths.CACHE
    with locks.waiting(cache / "vm.lock", "another test in a virtual machine runs: waiting for it"):
        for left in cache.glob("vm-*/"):
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix="vm-", dir=cache) as folder:
            yield Path(folder)


@pytest.fixture(scope="module")
def parts(work: Path) -> Path:
    """The disk with everything that was built on the host."""
    disk = work / "parts.img"
    disks.make_parts(work / "parts", disk)
    return disk


@pytest.fixture(scope="module", params=sorted(RELEASES))
def ran(request: pytest.FixtureRequest, work: Path, parts: Path) -> dict[str, Any]:
    """Stage -> how it ended, of one machine from boot to power-off; `release` names it."""
    release, capture = request.param, request.config.pluginmanager.getplugin("capturemanager")
    begin, log = time.monotonic(), REPO / "artifacts" / f"vm-{release}.log"

    def tell(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"    {release} {(time.monotonic() - begin) / 60:5.1f} min  {text}", flush=True)

    log.parent.mkdir(exist_ok=True)
    root = work / f"{release}.img"
    kernel, initrd = disks.make_root(release, work / release, root, PATIENCE, STAGE_SECONDS)
    tell(f"disks are made; output of the machine: {log}")
    machine = qemu.Machine(kernel, initrd, root, parts, log, log.with_suffix(".console.log"))
    stages: dict[str, Any] = {"release": release, "log": log}
    for one in machine.run(work, QUIET_SECONDS):
        if "beat" in one:
            tell(f"last line: {one['beat'][:150]}")
        else:
            stages[one["stage"]] = one
            tell(f"{one['stage']}: {'done' if one['ok'] else 'FAILED'} in {one['seconds']:.0f} s")
    root.unlink()
    return stages


def said(ran: dict[str, Any], stage: str) -> dict[str, Any]:
    """What a stage found; fails with its error when it was not reached."""
    assert stage in ran, f"{stage} was not begun; see {ran['log']}"
    assert ran[stage]["ok"], f"{ran[stage]['said'].get('error')}\nsee {ran['log']}"
    return dict(ran[stage]["said"])


def test_machine_is_a_stock_debian(ran: dict[str, Any]) -> None:
    found, (debian, kernel) = said(ran, "boot"), RELEASES[ran["release"]]
    assert found["debian"].startswith(debian) and found["kernel"].startswith(kernel)
    assert found["cgroups"] == "cgroup2fs" and found["state"] == "running" and not found["failed"]


def test_check_finds_nothing_missing(ran: dict[str, Any]) -> None:
    assert "this machine can host the cluster with 1 node(s)" in said(ran, "check")["said"]


def test_cluster_comes_up(ran: dict[str, Any]) -> None:
    assert list(said(ran, "up")["nodes"]) == ["n1"]


def test_operators_become_available(ran: dict[str, Any]) -> None:
    said(ran, "operators")


def test_phase_trains_by_plain_helm(ran: dict[str, Any]) -> None:
    assert said(ran, "train")["job"] == "Succeeded"


def test_phase_is_served(ran: dict[str, Any]) -> None:
    assert said(ran, "serve")["model"]["name"] == "tuned"


def test_down_leaves_the_machine_as_it_was(ran: dict[str, Any]) -> None:
    said(ran, "down")
    found = said(ran, "after")
    assert not found["changes"]
    assert found["is"] == found["was"]
