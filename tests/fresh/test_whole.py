"""`make demo` and `make test`, in full, on machines without a cache: `make test-fresh`, which takes hours and says how long.

The kernel is shared, so the cluster has a name and addresses of its own, and no other cluster may use these names.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_cluster.base import paths
from embedded_cluster.builds import apt, prebuilt

from fresh.fresh_machine import OWN, Machine, booted
from fresh.meter import Meter

pytestmark = [pytest.mark.fresh, pytest.mark.tier, pytest.mark.apart, pytest.mark.timeout(4 * 3600)]
GROUPS = (f"trainlab-{OWN['TRAINLAB_CLUSTER']}", "trainlab-test")
"""The cgroups of the demo's cluster and of the one that `make test` makes."""
SECONDS = {"make demo": 90 * 60, "PHASE=quick make demo": 60 * 60, "make test": 3 * 3600}


def groups() -> list[Path]:
    """Return the existing cgroup folders of these clusters."""
    top = Path("/sys/fs/cgroup")
    return sorted(path for name in GROUPS for path in [top / name, *top.glob(f"*/{name}")] if path.is_dir())


@pytest.fixture
def _alone() -> Iterator[None]:
    """Check that these clusters run nowhere else; cgroups left by a killed machine are removed."""
    assert not groups(), f"a cluster of the same name runs, take it down first: {groups()[0]}"
    yield
    for top in groups():
        for folder in sorted(top.rglob("*"), key=lambda path: -len(path.parts)):
            if folder.is_dir():
                with contextlib.suppress(OSError):
                    folder.rmdir()
        with contextlib.suppress(OSError):
            top.rmdir()


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize(
    ("suite", "command"), [(suite, command) for command in SECONDS for suite in ("bookworm", "trixie")]
)
def test_whole(suite: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It exits with 0, ran the cluster if this machine can, its programs are those of the lock, `make demo-down` leaves no cgroup."""
    log = (
        paths.REPO
        / "artifacts"
        / f"fresh-{suite}-{command.replace('make ', '').replace('PHASE=', '').replace(' ', '-')}.log"
    )
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    with booted(Machine(more=apt.PACKAGES)) as fresh:
        check = fresh.run("cluster/python cluster check", seconds=60)
    hosts = check.code == 0
    assert check.code in (0, 3), check.shown()
    machine = Machine(suite)
    with booted(machine) as fresh, Meter(GROUPS).running() as meter:
        again = f" && {command}" if "demo" in command else ""  # warm: with what the first one left
        ended = fresh.run(f"{command}{again} && make demo-down", seconds=SECONDS[command], log=log, meter=meter)
        built = fresh.run(f"cd {machine.trainlab_home}/cache/bin && sha256sum *-????????????", seconds=300)
    with capsys.disabled():
        where = "with the cluster" if hosts else f"without a cluster: {check.text.strip()}"
        print(f"\n{command} on a bare {suite}: {ended.seconds / 60:.1f} min, {where}; {log}")
        print("\n".join(f"{seconds:7.0f} s {cpu:7.0f} CPU-s  {line}" for seconds, cpu, line in ended.stages))
    assert ended.code == 0, ended.shown()
    assert "Traceback" not in ended.text, ended.shown()
    assert not ended.left, ended.shown()
    assert not groups()
    programs = {name: digest for digest, name in re.findall(r"^([0-9a-f]{64})  (\S+)$", built.text, re.MULTILINE)}
    locked = {name: digest for name, (digest, _) in prebuilt.locked().items()}
    assert hosts == (len(programs) > 7), built.shown()
    assert programs == {name: locked[name] for name in programs}  # whoever builds them: the same bytes
    if "demo" in command:
        assert ("==> make demo done" in ended.text) == hosts, ended.shown()
        assert ("No cluster was used" in ended.text) != hosts, ended.shown()
        if command != "make demo":
            return  # phase quick is its own first answer
        first, _, rest = ended.text.partition("Both models answered here; the tuned one was trained in ")
        assert bool(rest) == hosts, ended.shown()
        assert not hosts or ("image       tuned  " in first and "==> Embedded cluster of" not in first), ended.shown()
    else:
        assert " passed, 0 failed" in ended.text, ended.shown()
        assert ("this machine cannot host the cluster" in ended.text) != hosts, ended.shown()
