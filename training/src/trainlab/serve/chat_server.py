"""Listening: a socket, uvicorn, signals; called by the CLI."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from trainlab.config import LanguagePhase
from trainlab.errors import UserError

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp

DRAIN = 20  # seconds that in-flight requests get after SIGTERM; Kubernetes kills after 30


def serve(
    phase: LanguagePhase,
    models: Path,
    run_dir: Path,
    host: str,
    port: int,
    pages: Callable[[str], "ASGIApp"] | None = None,
) -> NoReturn:
    """Serve until SIGTERM or SIGINT, then let in-flight requests finish and exit with 0.

    `pages` returns the pages for an audience, which ask the server at that address. Raises UserError when the address is
    taken or a model cannot be loaded.
    """
    listener = listen(host, port)  # before torch: a port in use is reported at once
    import torch

    from trainlab.serve import inference_engine
    from trainlab.serve.api import create_app

    if "OMP_NUM_THREADS" not in os.environ:  # base and tuned are asked side by side: each gets half of the cores
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))

    def load() -> inference_engine.Engine:
        began = time.monotonic()
        loaded = inference_engine.load(phase, models, run_dir)
        print(
            f"trainlab: serving {', '.join(loaded.names)} on port {listener.getsockname()[1]}, loaded in "
            f"{time.monotonic() - began:.0f} s; base and tuned share {loaded.shared_bytes / 2**20:.0f} MiB of weights",
            flush=True,
        )
        return loaded

    audience = pages(address(listener)) if pages else None
    run(lambda failed: create_app(phase, run_dir, load, failed, audience), listener)


def run(make: Callable[[Callable[[Exception], None]], "FastAPI"], listener: socket.socket) -> NoReturn:
    """Serve the application of `make` until SIGTERM or SIGINT, then let in-flight requests finish and exit with 0.

    `make` gets a callback for the error that ends the server, which is then raised here.
    """
    import uvicorn

    failures: list[Exception] = []

    def failed(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    settings = uvicorn.Config(make(failed), log_level="warning", access_log=False, timeout_graceful_shutdown=DRAIN)
    server = uvicorn.Server(settings)
    # uvicorn drains on these signals, then re-raises them with the previous handlers: ours exit cleanly.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    server.run(sockets=[listener])
    if failures:
        raise failures[0]
    sys.exit(0)


def address(listener: socket.socket) -> str:
    """Return where this machine itself reaches a bound socket: by the host that it is bound to, localhost for all of them."""
    host, port = listener.getsockname()[:2]
    name = "localhost" if host in ("0.0.0.0", "::", "127.0.0.1", "::1") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """Return a bound socket; raises UserError when that is impossible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        remedy = "stop the process that uses it or choose another --port"
        raise UserError(f"cannot listen on {host} port {port}: {error.strerror}; {remedy}") from None
    listener.set_inheritable(True)
    return listener
