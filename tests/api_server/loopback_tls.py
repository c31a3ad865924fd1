"""TLS for the small HTTP servers of the tests; used by front.py and admission.py, and for an Ingress."""

from __future__ import annotations

import ssl
import subprocess
from http.server import HTTPServer
from pathlib import Path


def secure(http: HTTPServer, beside: Path, address: str = "127.0.0.1") -> Path:
    """Let a server that listens on this address speak TLS; return the file of its certificate, which is its own authority."""
    certificate, key = self_signed(beside, f"IP:{address}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # the handshake in the thread of the request: one client that sends nothing must not hold up the others
    http.socket = context.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
    return certificate


def self_signed(beside: Path, name: str) -> tuple[Path, Path]:
    """Write the certificate of a server with this subjectAltName, which is its own authority, and its key; return both files."""
    certificate, key = beside.with_suffix(".crt"), beside.with_suffix(".key")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=front", "-addext", f"subjectAltName={name}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
