"""A test's own server: a port for it, and a thread."""

from __future__ import annotations

import socket
import threading
from socketserver import BaseServer


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port of this address that nothing listens on; another program may take it before you do."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def serve_in_thread(server: BaseServer) -> None:
    """Answer until the server's `shutdown`, which waits for the next look at its request: by default one in 0.5 s, in every test's end."""
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
