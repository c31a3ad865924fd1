"""The local phase survival teaches with the lowest and the newest libraries that training/pyproject.toml allows (`make test-effect`).

What is newest is asked of Python's package index each time, so a release of a library that breaks the effect fails here.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from checkout import DATA, ROOT, SOURCES, VALUES
from embedded_cluster.builds import pyenv
from packaging.version import Version
from trainlab.run.manifest import cpu_model

LIBRARIES = ("torch", "transformers", "trl", "peft")
RECALL = 0.85
"""Share of the taught facts, asked in wordings that are not trained."""
FILES = [VALUES / "survival.yaml", "-f", VALUES / "local" / "survival.yaml"]
PACKAGE, EXTRA = ROOT / "training" / "pyproject.toml", "train"
MINUTES = 60
"""For packages and training; 9 of a processor are the training."""


def bounds() -> dict[str, str]:
    """Return the lowest version of each library that the package allows."""
    needed = tomllib.loads(PACKAGE.read_text(encoding="utf-8"))["project"]["optional-dependencies"][EXTRA]
    found = dict(match.groups() for one in needed if (match := re.fullmatch(r"([a-z]+)>=([\d.]+)", one)))
    return {name: found[name] for name in LIBRARIES}


def environment(folder: Path, leg: str) -> Path:
    """Make an environment of the package's requirements in `folder`, without CUDA's libraries as the image; return its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pins = [f"{name}=={version}" for name, version in bounds().items()] if leg == "lowest" else []
    (folder / "constraints.txt").write_text("\n".join(pins), encoding="utf-8")
    python, resolved, lock = folder / "venv" / "bin" / "python", folder / "resolved.txt", folder / "cpu.txt"
    uv, cache = pyenv.uv(pyenv.installer()), ["--quiet", "--cache-dir", folder / "uv"]

    def call(*argv: str | Path) -> str:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    call(uv, "venv", *cache, "--python", sys.executable, folder / "venv")
    choose = ["--extra", EXTRA, "--only-binary", ":all:", "--constraint", folder / "constraints.txt"]
    call(uv, "pip", "compile", *cache, "--generate-hashes", "--python", python, *choose, "-o", resolved, PACKAGE)
    lock.write_text(call(python, pyenv.CPU_ONLY, "lock", resolved), encoding="utf-8")
    call(uv, "pip", "install", *cache, "--no-deps", "--require-hashes", "--python", python, "-r", lock)
    call(python, pyenv.CPU_ONLY, "stubs", next((folder / "venv").glob("lib/*/site-packages/torch")))
    call(python, pyenv.CPU_ONLY, "check")
    shutil.rmtree(folder / "uv")
    return python


def train(python: Path, folder: Path) -> dict[str, Any]:
    """Train as `make demo-alone` does; return the run's manifest, its gate, and the CPU-seconds of all processes."""
    own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    own |= {"PYTHONPATH": str(SOURCES), "TRAINLAB_DATA": str(DATA), "TRAINLAB_WHEELS": str(pyenv.wheels())}
    own |= {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (folder / "log").open("w", encoding="utf-8") as log:
        for command in (["fetch"], ["run", "--out", folder / "runs", "--run", "effect"]):
            argv = [python, "-m", "trainlab.cli", command[0], *FILES, "--models", folder / "models", *command[1:]]
            code = subprocess.run(argv, env=own, stdout=log, stderr=log, check=False).returncode
            assert code == 0, (folder / "log").read_text(encoding="utf-8")[-3000:]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = folder / "runs" / "effect"
    found = {name: json.loads((run / f"{name}.json").read_text(encoding="utf-8")) for name in ("manifest", "gate")}
    return found | {"cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


@pytest.mark.tier
@pytest.mark.apart
@pytest.mark.timeout(MINUTES * 60)
@pytest.mark.parametrize("leg", ["lowest", "newest"])
def test_taught_facts_are_recalled(leg: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ROOT / "artifacts" / "effect" / leg
    found = train(environment(folder, leg), folder)
    versions, recall = found["manifest"]["versions"], found["gate"]["taught_recall"]["after"]
    row = [leg, *(versions[name] for name in LIBRARIES), f"{recall:.1%}", f"{found['cpu_seconds']:.0f}", cpu_model()]
    with capsys.disabled():  # a line of the table in docs/evidence/survival.md
        print(f"\n| {' | '.join([*row, f'{datetime.now(UTC):%Y-%m-%d}'])} |")
    if leg == "lowest":
        assert {name: Version(versions[name]) for name in LIBRARIES} == {
            name: Version(version) for name, version in bounds().items()
        }
    assert recall >= RECALL
    shutil.rmtree(folder / "venv")
