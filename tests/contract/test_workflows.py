"""The workflow files call our make targets, with actions by commit and no right that a job does not need.

actionlint 1.7.12 and zizmor 1.32.0 had no finding on 2026-11-28; neither is in the environment.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
USED = re.compile(r"^ *(?:- )?uses: (\S+)@(\S+)(?: # (\S+))?$", re.MULTILINE)


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    """Each workflow."""
    return request.param


def jobs(path: Path) -> dict[str, Any]:
    """Return the jobs of a workflow."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


def test_actions_are_pinned(path: Path) -> None:
    """By a commit with its version, the same in every workflow."""
    text = path.read_text(encoding="utf-8")
    assert len(USED.findall(text)) == text.count("uses:")
    for name, commit, version in USED.findall(text):
        assert re.fullmatch(r"[0-9a-f]{40}", commit) and re.fullmatch(r"v\d+\.\d+\.\d+", version), name
    everywhere = {each for file in WORKFLOWS for each in USED.findall(file.read_text(encoding="utf-8"))}
    assert len(everywhere) == len({name for name, _, _ in everywhere})


def test_rights_are_those_of_a_job(path: Path) -> None:
    """None by default; a job has a limit, keeps no credentials, and expands nothing into a shell."""
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {}
    for name, job in jobs(path).items():
        assert job["timeout-minutes"] and job["permissions"], name
        writes = {right for right, level in job["permissions"].items() if level == "write"}
        assert not writes or "environment" in job, f"{name}: what writes waits for an environment's protection"
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), f"{name}: {step['run']}"
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False, name


def test_make_targets_exist(path: Path) -> None:
    """Each with variables that its recipe or those of its prerequisites read."""
    runs = [step["run"] for job in jobs(path).values() for step in job["steps"] if "run" in step]
    called = [re.split(r"\s+", line) for run in runs for line in re.findall(r"^make (.*)$", run, re.MULTILINE)]
    assert called
    for target, *variables in called:
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
        for each in variables:
            assert f"$({each.partition('=')[0]})" in MAKEFILE or f"$(or $({each.partition('=')[0]})," in MAKEFILE, each
    for run in runs:
        assert subprocess.run(["bash", "-n"], input=run, text=True, check=False).returncode == 0, run
