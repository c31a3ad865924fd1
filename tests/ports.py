"""A test's own server: a port for it, and a thread."""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import tempfile
import threading
from pathlib import Path
from socketserver import BaseServer
from typing import TextIO

RANGE = range(20000, 30000)
"""Below those that the kernel gives to clients (ip_local_port_range), so that no connection takes one meanwhile."""
_held: list[TextIO] = []


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port of this address that nothing listens on and that no other test process gets before this one ends."""
    folder = Path(tempfile.gettempdir()) / f"trainlab-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    first = os.getpid() * 7 % len(RANGE)  # each process begins elsewhere
    for port in itertools.chain(RANGE[first:], RANGE[:first]):
        lock = (folder / str(port)).open("w", encoding="ascii")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError:
            lock.close()
            continue
        _held.append(lock)
        return port
    raise AssertionError(f"no free port of {address} in {RANGE}")


def serve_in_thread(server: BaseServer) -> None:
    """Answer until the server's `shutdown`, which waits for the next look at its request: by default one in 0.5 s, in every test's end."""
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
