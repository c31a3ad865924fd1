"""`molecule test`, as a user runs it: platform.yml against every obstacle that a cluster has, and its undo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from api_server.server import Server

REPO = Path(__file__).resolve().parents[2]


@pytest.mark.xdist_group("molecule")
def test_default_scenario(tmp_path: Path) -> None:
    """Install, idempotence, contradictions, faults, kills at each task, and an undo that leaves nothing."""
    program = Path(sys.executable).with_name("molecule")
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path / "molecule"), "ANSIBLE_HOME": str(tmp_path)}
    try:
        done = subprocess.run(
            [program, "test"], cwd=REPO, env=os.environ | own, capture_output=True, text=True, check=False
        )
    finally:
        Server(tmp_path / "molecule" / "api").stop()  # molecule leaves it running where the cleanup fails
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-4000:]}"
    assert not [*(tmp_path / "collections").glob("*")], (
        "other plays of this home would find that copy of the collection"
    )
