"""A chat server in a thread of this process, for the tests that ask one."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn
from trainlab.config import Phase
from trainlab.room.beside import pages
from trainlab.serve import chat_server
from trainlab.serve.api import create_app
from trainlab.serve.inference_engine import Engine

HTTP = httpx.Client(timeout=60)  # one: making a client costs more than what it asks here


@contextmanager
def running(phase: Phase, run_dir: Path, engine: Engine) -> Iterator[str]:
    """Yield the address of a server that is ready."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        beside = pages(phase, run_dir, chat_server.address(listener))
        app = create_app(phase, run_dir, lambda: engine, pages=beside)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        wait_ready(address)
        yield address
        server.should_exit = True
        thread.join(20)


def wait_ready(address: str, seconds: float = 60) -> None:
    """Return once the server at `address` has its models."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if HTTP.get(f"{address}/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("the server did not become ready")
