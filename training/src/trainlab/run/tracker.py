"""Publish the progress of a run (a page, progress.json, the termination message, the TrainJob's status), and show it: `trainlab watch`.

run/worker.py starts it on rank 0; the chart sets the port and the annotation by which OpenShift AI's trainer finds it. Without
the port (a laptop) only progress.json is written, which `trainlab watch RUN_DIR` reads.
"""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.errors import UserError
from trainlab.progress import Progress
from trainlab.run.attempts import LastStep
from trainlab.run.trainer_status import TrainerStatus

PORT_VARIABLE, MESSAGE_VARIABLE = "TRAINLAB_PROGRESS_PORT", "TRAINLAB_TERMINATION_MESSAGE"
FILE = "progress.json"
EVERY = 2.0  # seconds between writes of the file
WIDTH, MAX_MISSES = 24, 5  # characters of the bar; consecutive failed reads before giving up
Page = dict[str, Any]


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
        self._reports = TrainerStatus(progress)

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
        self._reports.end()

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

    class Handler(BaseHTTPRequestHandler):
        """Serves the current numbers."""

        def do_GET(self) -> None:
            """Answer /metrics, and nothing else."""
            known = self.path.split("?")[0] == "/metrics"
            body = json.dumps(progress.page() if known else {"error": "only /metrics is served"}).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: the log belongs to the training."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise UserError(f"{PORT_VARIABLE} is {port}: {error}; choose another port") from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="progress page", daemon=True).start()
    return server


def watch(source: str, every: float, once: bool, as_json: bool) -> int:
    """Show the progress of `source`, a run directory or a URL, until the run ends; return 0.

    UserError: nothing is there at the first read, or the run disappeared before its end.
    """
    last: Page = look(source)
    misses = 0
    while True:
        show(last, as_json)
        if once or last["progressPercentage"] == 100:
            break
        time.sleep(every)
        try:
            last, misses = look(source), 0
        except UserError:
            misses += 1
            if misses == MAX_MISSES:
                sys.stderr.write("\n")
                if last["totalSteps"] and last["currentStep"] == last["totalSteps"]:
                    break  # the pod ended between two reads, after its last step
                raise
    if sys.stdout.isatty():
        print()
    return 0


def look(source: str) -> Page:
    """Return the page of a run directory or URL. UserError: not there, or not a progress page."""
    try:
        if source.startswith(("http://", "https://")):
            with urllib.request.urlopen(f"{source.rstrip('/')}/metrics", timeout=5) as answer:
                page = json.load(answer)
        else:
            page = json.loads((Path(source) / FILE).read_text(encoding="utf-8"))
        if "progressPercentage" not in page:
            raise ValueError("no progressPercentage in it")
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise UserError(
            f"{source}: no progress there: {reason}; name the directory of a started run, or the address of "
            "its first pod: kubectl port-forward POD 28080, then trainlab watch http://localhost:28080"
        ) from None
    return dict(page)


def show(page: Page, as_json: bool) -> None:
    """Print the page: as JSON lines, as a bar on a terminal, else as a line each time."""
    if as_json:
        print(json.dumps(page), flush=True)
    elif sys.stdout.isatty():
        print(f"\r\033[K{line(page)}", end="", flush=True)
    else:
        print(line(page), flush=True)


def line(page: Page) -> str:
    """Return one line: bar, percentage, then the current activity with its numbers.

    >>> line({"progressPercentage": 50, "activity": "step 5/10 loss 2.000 eta 9 s", "evalMetrics": {"loss": 2.5}})
    '[############............]  50 %  step 5/10 loss 2.000 eta 9 s, validation loss 2.500'
    """
    done = page["progressPercentage"] * WIDTH // 100
    extra = "".join(f", validation {name} {value:.3f}" for name, value in (page.get("evalMetrics") or {}).items())
    bar = "#" * done + "." * (WIDTH - done)
    return f"[{bar}] {page['progressPercentage']:3d} %  {page.get('activity', '')}{extra}"
