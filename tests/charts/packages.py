"""The chart as `make package` leaves it, and a web server for it; used by test_package.py and by tests on an API server."""

import functools
import http.server
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ports import Handler, serve_in_thread

from charts.rendering import ROOT, binary


def packaged(tree: Path, *variables: str) -> Path:
    """Run `make package` in a tree with the chart alone; return the folder that it leaves."""
    for name in ("Makefile", "charts"):
        (tree / name).symlink_to(ROOT / name)
    of_make = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    env = {key: value for key, value in os.environ.items() if key not in of_make}
    command = ["make", "-C", str(tree), "--old-file=gen", "package", f"HELM={binary('helm')}", *variables]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return tree / "artifacts" / "charts"


class Quiet(Handler, http.server.SimpleHTTPRequestHandler):
    """Serves files without a line for each."""


@contextmanager
def served(packages: Path) -> Iterator[str]:
    """Yield the address of the repository on loopback."""
    handler = functools.partial(Quiet, directory=str(packages))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serve_in_thread(server)
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
