"""Publish the progress of a run (a page, progress.json, the termination message, the TrainJob's status), and show it: `trainlab watch`.

run/worker.py starts it on rank 0; the chart sets the port and the annotation by which OpenShift AI's trainer finds it. Without
the port (a laptop) only progress.json is written, which `trainlab watch RUN_DIR` reads.
"""

import http.client
import json
import os
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.errors import UserError
from trainlab.progress import Progress
from trainlab.run.attempts import LastStep

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
            # a port-forward is never behind a proxy, though NO_PROXY may not say so
            here = urllib.parse.urlsplit(source).hostname in ("localhost", "127.0.0.1", "::1")
            opener = urllib.request.build_opener(*[urllib.request.ProxyHandler({})] * here)
            with opener.open(f"{source.rstrip('/')}/metrics", timeout=5) as answer:
                page = json.load(answer)
        else:
            page = json.loads((Path(source) / FILE).read_text(encoding="utf-8"))
        if "progressPercentage" not in page:
            raise ValueError("no progressPercentage in it")
    except (OSError, ValueError, TypeError, http.client.HTTPException) as error:
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
    filled = "#" * done + "." * (WIDTH - done)
    return f"[{filled}] {page['progressPercentage']:3d} %  {page.get('activity', '')}{extra}"


ADDRESS, AUTHORITY, TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))
REPORTED, ANSWER = 5.0, 5.0  # seconds between reports, as transformers has them, and until one has to be answered
NOT_TWICE = "DISABLE_KUBEFLOW_INTEGRATION"
LARGEST, LONGEST = 2**31 - 1, 64  # an int32, and characters of a metric, in the CustomResourceDefinition


class TrainerStatus:
    """Reports `progress` every 5 s until `end` to Kubeflow Trainer, which writes it into `status.trainerStatus` of the TrainJob.

    The address, the CA and the token are in the environment where Trainer 2.2 or later has the feature gate TrainJobStatus on
    (pkg/runtime/framework/plugins/trainjobstatus of v2.3.0). A report that fails is said once and costs nothing else. transformers'
    KubeflowCallback speaks the same protocol, but only within its own Trainer, which training on images has not; it says 100 percent
    before the scores, and divides the time of a resumed process by all steps, so that too little is left. It adds itself where there
    is an address, `report_to: none` or not (5.23), so it is switched off: with both, the status changed between their numbers.
    """

    def __init__(self, progress: Progress) -> None:
        """Start the thread where the environment has an address, in which transformers then sees none; changes `os.environ`."""
        self._progress, self._address = progress, os.environ.get(ADDRESS, "")
        self._over, self._failed = threading.Event(), ""
        self._thread = threading.Thread(target=self._report, name="trainer status", daemon=True)
        if self._address:
            os.environ[NOT_TWICE] = "TRUE"
            self._thread.start()

    def end(self) -> None:
        """Report the end, after the reports before it; at most 10 s where nothing answers."""
        if self._address:
            self._over.set()
            self._thread.join()
            self._send()

    def _report(self) -> None:
        self._send()
        while not self._over.wait(REPORTED):
            self._send()

    def _send(self) -> None:
        try:
            _post(self._address, {"trainerStatus": status(self._progress.page())})
        except (OSError, ValueError) as error:
            if not self._failed:
                self._progress.say(
                    f"status.trainerStatus of the TrainJob is not written, training goes on: {self._address}: {error}; where "
                    "NetworkPolicies bound what pods reach, let that port out (workspace_egress_ports)"
                )
            self._failed = str(error)


def status(page: dict[str, Any]) -> dict[str, Any]:
    """Return a page of Progress as Trainer's type TrainerStatus (pkg/apis/trainer/v1alpha1/trainjob_types.go); metrics as in transformers."""
    metrics: dict[str, Any] = {
        "current_step": page["currentStep"],
        "total_steps": page["totalSteps"],
        "current_epoch": page["currentEpoch"],
        **page["trainMetrics"],
        **{f"eval_{name}": value for name, value in page["evalMetrics"].items()},
    }
    left = page["estimatedRemainingSeconds"]
    return {
        "lastUpdatedTime": datetime.now(UTC).isoformat(timespec="seconds"),
        "progressPercentage": page["progressPercentage"],
        **({} if left is None else {"estimatedRemainingSeconds": min(left, LARGEST)}),
        "metrics": [
            {"name": name[:LONGEST], "value": str(value)[:LONGEST]}
            for name, value in metrics.items()
            if value is not None
        ],
    }


def _post(address: str, body: dict[str, Any]) -> None:
    """Send a report; OSError or ValueError where that fails. The token is read each time, because the kubelet renews it."""
    token = Path(os.environ.get(TOKEN, "")).read_text(encoding="utf-8").strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers, method="POST")
    trusted = ssl.create_default_context(cafile=os.environ.get(AUTHORITY) or None)
    within = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
    )  # a Service of the cluster is behind no proxy
    with within.open(request, timeout=ANSWER) as answer:
        answer.read()
