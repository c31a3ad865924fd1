"""Programs that the embedded cluster has not, as processes of its nodes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from embedded_cluster.builds import build

from e2e import machine

KUBECONFIG = "/share/admin.conf"
"""As a node sees it."""


def inside(program: str) -> str:
    """Where the nodes see a program that runs there."""
    return f"/share/{program}"


@contextmanager
def running(program: str, lines: Mapping[str, tuple[str, ...]], log: Path) -> Iterator[None]:
    """Build a program of cluster/, and run in each of these nodes the line that starts it there, until the end."""
    build.build_all([program])
    shutil.copy(build.binary(program), machine.FOLDER / "share" / program)
    processes = []
    try:
        with log.open("w", encoding="utf-8") as out:
            for node, line in lines.items():
                command = machine.command("exec", node, *line)
                processes.append(
                    subprocess.Popen(command, env=machine.ENVIRONMENT, stdout=out, stderr=out, start_new_session=True)
                )
        yield
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
