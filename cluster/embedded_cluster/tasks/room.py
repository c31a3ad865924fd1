"""`make room`: people in one network teach a model on this machine from their phones; without Kubernetes.

What answers is the server of `make demo-alone`, started with phase quick where none runs; the room is a process of this terminal.
"""

from __future__ import annotations

import os
import socket

from embedded_cluster.base import identity, locks, paths, processes, programs, say
from embedded_cluster.builds import pyenv
from embedded_cluster.tasks import alone

ROOM_PORT = "8090"


def run() -> int:
    """Serve the room until it is interrupted; returns the exit code."""
    port = os.environ.get("ROOM_PORT") or ROOM_PORT
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise say.UserError(f"ROOM_PORT={port}: give 1 to 65535")
    lock = paths.HOME / f"alone-room{identity.SUFFIX}.lock"
    with locks.waiting(lock, "another make room is running", seconds=0):
        if alone.with_adapters(alone.FOLDER) is None:
            os.environ["PHASE"] = "quick"
            alone.run()
        return _serve(port)


def _serve(port: str) -> int:
    folder, serving = alone.FOLDER, alone.with_adapters(alone.FOLDER)
    if serving is None:
        raise say.UserError("the server of phase quick has ended; make room starts it again")
    engine, run = serving
    address = os.environ.get("ROOM_ADDRESS") or f"http://{_own_address()}:{port}"
    options = {
        "--engine": engine,
        "--values": run / "phase.json",
        "--run-dir": run,
        "--state": folder / "room",
        "--cards": paths.REPO / "data" / "cards",
        "--charts": paths.REPO / "charts",
        "--job": paths.REPO / "values" / "room" / "adapters.yaml",
        "--models": folder / "models",
        "--runs": folder / "runs",
        "--address": address,
        "--port": port,
    }
    # a room that outlived a killed make would keep the port, and the next one could not begin
    command = [*programs.with_us(), str(pyenv.environment(dev=True) / "bin" / "trainlab"), "room"]
    command += [str(part) for option in options.items() for part in option]
    say.line(f"==> the room: phones in the same network open {address}; Ctrl-C ends it")
    return processes.run(command, {"PYTHONPATH": str(paths.REPO / "training" / "src")})


def _own_address() -> str:
    """The address at which other machines see this one; a datagram's route names it, and nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # RFC 5737: of documentation
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
