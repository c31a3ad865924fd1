"""Runs what the project printed, word for word, with the embedded cluster's own kubectl and Helm."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from embedded_cluster.base import paths
from embedded_cluster.builds import build


def programs(folder: Path, helm: str = "helm") -> Path:
    """Return `folder` with kubectl and a Helm in it, for the PATH; fails the test when one is not built.

    `oc`, too, for what it shares with kubectl.
    """
    folder.mkdir(exist_ok=True)
    for name, component in (("kubectl", "kubernetes"), ("helm", helm)):
        program = build.binary(component)
        if not program.exists():
            pytest.fail(f"{program} is not built: make binaries")
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(program)
    (folder / "oc").write_text('#!/bin/sh\nexec kubectl "$@"\n')
    (folder / "oc").chmod(0o755)
    return folder


def run(
    line: str, folder: Path, kubeconfig: Path, helm: str = "helm", environment: Mapping[str, str] | None = None
) -> str:
    """Run a printed line in the root of the checkout; return its output, fail the test when it fails.

    `folder` gets the programs and is HOME; `kubeconfig` applies when the line names none.
    """
    path = f"{programs(folder / f'programs-{helm}', helm)}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(folder), "KUBECONFIG": str(kubeconfig), **(environment or {})}
    ran = subprocess.run(line, shell=True, cwd=paths.REPO, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{line}: {ran.stderr}"
    return ran.stdout
