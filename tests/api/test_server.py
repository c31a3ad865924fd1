"""The API server of these tests itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from api_server import server
from waiting import until

START = """
import sys, time
from pathlib import Path
from api_server import server
one = server.Server(Path(sys.argv[1]), mortal=True)
one._run("etcd", ["sleep", "600"])
print((one.folder / "pids.json").read_text(), flush=True)
time.sleep(600)
"""


def test_ends_with_its_worker(tmp_path: Path) -> None:
    """pytest-xdist kills its workers at Ctrl-C; their servers would run on forever."""
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(server.PATH)}
    with subprocess.Popen(
        [sys.executable, "-c", START, tmp_path], env=own, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout
        pid = int(worker.stdout.readline().removeprefix('{"etcd": ').rstrip("}\n"))
        assert server._alive(pid)
        worker.kill()
    until(lambda: not server._alive(pid))
