"""Publish the progress of a run: a page on a port, progress.json, the pod's termination message.

run/worker.py starts it on rank 0; the chart sets the port and the annotation by which OpenShift AI's trainer finds it. Without
the port (a laptop) only progress.json is written, which `trainlab watch RUN_DIR` reads.
"""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from trainlab import files
from trainlab.errors import UserError
from trainlab.progress import Progress
from trainlab.run.attempts import LastStep

PORT_VARIABLE, MESSAGE_VARIABLE = "TRAINLAB_PROGRESS_PORT", "TRAINLAB_TERMINATION_MESSAGE"
FILE = "progress.json"
EVERY = 2.0  # seconds between writes of the file


class Tracker:
    """Publishes `progress` until `end`; create it on rank 0 only."""

    def __init__(self, progress: Progress, run_dir: Path) -> None:
        """Start the thread and, where the environment names a port, the server. UserError: the port is taken."""
        self._progress, self._file = progress, run_dir / FILE
        self._over = threading.Event()
        progress.at_step = LastStep(run_dir)
        if port := os.environ.get(PORT_VARIABLE):
            listen(progress, _number(port))
        self._writer = threading.Thread(target=self._write, name="tracker", daemon=True)
        self._writer.start()

    def end(self) -> None:
        """Publish the end: 100 per cent, in the file and as the termination message of a pod that succeeded.

        A failed pod keeps the message that Kubernetes takes from its last log lines: they say why.
        """
        self._over.set()
        self._writer.join()  # or a write in progress would overwrite the end
        self._progress.ended = True
        page = self._progress.page()
        files.write_json(self._file, page)
        if message := os.environ.get(MESSAGE_VARIABLE):
            Path(message).write_text(json.dumps(page), encoding="utf-8")

    def _write(self) -> None:
        while not self._over.wait(EVERY):
            try:
                files.write_json(self._file, self._progress.page())
            except OSError:  # a full disk: the training itself reports that, and better
                continue


def _number(port: str) -> int:
    try:
        return int(port)
    except ValueError:
        raise UserError(f"{PORT_VARIABLE} is {port!r}: not a number; set a port from 1 to 65535, or unset it") from None


def listen(progress: Progress, port: int, host: str = "") -> ThreadingHTTPServer:
    """Serve GET /metrics on `port` of all addresses (or of `host`) in a thread. UserError: the port cannot be used."""

    class Page(BaseHTTPRequestHandler):
        """Serves the current numbers."""

        def do_GET(self) -> None:
            """Answer /metrics, and nothing else."""
            found = self.path.split("?")[0] == "/metrics"
            body = json.dumps(progress.page() if found else {"error": "only /metrics is served"}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: the log belongs to the training."""

    try:
        server = ThreadingHTTPServer((host, port), Page)
    except (OSError, OverflowError) as error:
        raise UserError(f"{PORT_VARIABLE} is {port}: {error}; choose another port") from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="progress page", daemon=True).start()
    return server
