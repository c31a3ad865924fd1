"""Skips every test that needs the embedded cluster, with the preflight's own reason, where it cannot run."""

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(REPO / "cluster" / "lab")]


def _reason() -> str:
    """What the preflight says; empty when this machine can host the cluster."""
    command = ["python3", "cluster/lab", "check", "--nodes", "2"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no embedded cluster here: {done.stdout.strip()} {done.stderr.strip()}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the e2e tests as skipped, never as passed, where the machine cannot host the cluster."""
    ours = [item for item in items if item.get_closest_marker("e2e")]
    if not ours or "not e2e" in config.getoption("markexpr", ""):
        return
    if reason := _reason():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=reason))
