"""A port for a test's own server."""

from __future__ import annotations

import socket


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port of this address that nothing listens on; another program may take it before you do."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
