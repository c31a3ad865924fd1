"""MLflow and Weights & Biases (site.reportTo): what is logged goes to them as well, by the integrations of transformers, from rank 0.

Each has a thread of its own, so that one that hangs or is gone delays no step: it is warned about once, and left. The history in
the run directory is complete without them. Every attempt of a run is a run of theirs, by the name of ours.
"""

import getpass
import importlib.util
import os
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trainlab.config import Phase
from trainlab.errors import UserError
from trainlab.progress import Progress

VARIABLE = "TRAINLAB_REPORT_TO"
"""Where the chart says it: names, with commas."""
LAST = 60.0  # seconds that a run waits at its end for a tracker that has not taken all
STOPPED = 5.0  # the same for one that was stopped (SIGTERM)
DEFAULTS = {
    # Of their own, MLflow tries for some four minutes and W&B for 90 seconds.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "WANDB_INIT_TIMEOUT": "30",
    "MLFLOW_EXPERIMENT_NAME": "trainlab",
    "WANDB_PROJECT": "trainlab",
    "WANDB_SILENT": "true",
    "GIT_PYTHON_REFRESH": "quiet",  # MLflow asks git for a commit; without git that is 40 lines of the log
}
OFFLINE = ("offline", "dryrun", "disabled")
"""Values of WANDB_MODE that take no key."""


@dataclass(frozen=True)
class Known:
    """A tracker: its title, its package, the variable without which it has no address or no key."""

    title: str
    package: str
    variable: str


KNOWN = {
    "mlflow": Known("MLflow", "mlflow", "MLFLOW_TRACKING_URI"),
    "wandb": Known("Weights & Biases", "wandb", "WANDB_API_KEY"),
}


def chosen(option: str | None, site: Sequence[str]) -> tuple[str, ...]:
    """Return the trackers: those of --report-to, else of the environment, else of site.reportTo. UserError: unknown."""
    where, text = ("--report-to", option) if option is not None else (VARIABLE, os.environ.get(VARIABLE))
    if text is None:
        return tuple(site)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if unknown := [name for name in names if name not in KNOWN]:
        raise UserError(f"{where}: {unknown[0]} is no tracker; take {' or '.join(KNOWN)}, or both with a comma")
    return names


def check(names: Sequence[str]) -> None:
    """Raise UserError where the package of a tracker, its address or its key is missing; nothing is asked of the network."""
    for name in names:
        known = KNOWN[name]
        if importlib.util.find_spec(known.package) is None:
            raise UserError(
                f"site.reportTo: {name}, but this environment has no package {known.package}; build the image with -e image_tracking=true "
                f"(playbooks/image.yml; elsewhere install images/trainer/tracking.lock), or remove {name}"
            )
        offline = name == "wandb" and os.environ.get("WANDB_MODE") in OFFLINE
        if not os.environ.get(known.variable) and not offline:
            raise UserError(
                f"site.reportTo: {name}, but {known.variable} is not set; make it a key of a Secret that site.envSecrets names (outside of a "
                f"cluster: export it), or remove {name}"
            )


@contextmanager
def reporting(names: Sequence[str], phase: Phase, run_dir: Path, progress: Progress) -> Iterator[None]:
    """Send what is passed to `progress.log` within the block; their runs end as it ends: finished, or killed."""
    if not names:
        yield
        return
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if trusted := os.environ.get("SSL_CERT_FILE"):
        os.environ.setdefault("REQUESTS_CA_BUNDLE", trusted)  # MLflow's client reads no other
    try:
        getpass.getuser()
    except (KeyError, OSError):  # a pod's UID has no name, of which MLflow would warn
        os.environ["USER"] = "trainlab"
    os.environ.setdefault("WANDB_DIR", str(run_dir))  # what is not sent (WANDB_MODE=offline) stays with the run
    with ExitStack() as stack:
        trackers = [stack.enter_context(Tracker(name, phase, run_dir, progress)) for name in names]

        def log(step: int, entry: Mapping[str, Any]) -> None:
            numbers = {key: value for key, value in entry.items() if isinstance(value, int | float)}
            for tracker in trackers:
                tracker.put(step, numbers)

        progress.log = log
        yield


class Tracker:
    """One of them, in a thread: begun with the block, fed by `put`, closed with the block."""

    def __init__(self, name: str, phase: Phase, run_dir: Path, progress: Progress) -> None:
        self._name, self._phase, self._run_dir, self._progress = name, phase, run_dir, progress
        self._entries: queue.SimpleQueue[tuple[int, Mapping[str, float]] | None] = queue.SimpleQueue()
        self._finished = False
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)

    def put(self, step: int, numbers: Mapping[str, float]) -> None:
        """Let the thread log these numbers."""
        self._entries.put((step, numbers))

    def __enter__(self) -> "Tracker":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._finished = kind is None
        self._entries.put(None)
        limit = LAST if self._finished else STOPPED
        self._thread.join(limit)
        if self._thread.is_alive():
            self._warn(f"it did not take all within {limit:g} seconds of the end")

    def _work(self) -> None:
        try:
            self._send()
        except Exception as error:  # whatever a library raises: the training goes on
            self._warn(" ".join(str(error).split())[:200] or type(error).__name__)

    def _send(self) -> None:
        from transformers import TrainerControl, TrainerState, integrations

        callback: Any = {"mlflow": integrations.MLflowCallback, "wandb": integrations.WandbCallback}[self._name]()
        parameters = flat(self._phase.model_dump(mode="json"))
        arguments: Any = SimpleNamespace(
            run_name=self._run_dir.name, output_dir=str(self._run_dir), to_dict=lambda: dict(parameters)
        )
        state, control = TrainerState(is_world_process_zero=True), TrainerControl()
        callback.on_train_begin(arguments, state, control)
        # of MLflow's: its own thread would log an error for each step, and `__del__` end the run, as `_close` does
        callback._async_log = callback._auto_end_run = False
        while (entry := self._entries.get()) is not None:
            state.global_step, numbers = entry
            callback.on_log(arguments, state, control, logs=dict(numbers))
        self._close()

    def _close(self) -> None:
        if self._name == "mlflow":
            import mlflow

            mlflow.flush_async_logging()  # the parameters
            mlflow.end_run("FINISHED" if self._finished else "KILLED")
        else:
            import wandb

            wandb.finish(exit_code=0 if self._finished else 1)

    def _warn(self, why: str) -> None:
        self._progress.say(
            f"warning: {KNOWN[self._name].title} gets no more numbers: {why}; the training goes on, and training_history.json has all"
        )


def flat(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """Return nested keys with dots between them.

    >>> flat({"train": {"epochs": 2}, "questions": []})
    {'train.epochs': 2, 'questions': []}
    """
    result: dict[str, Any] = {}
    for key, value in values.items():
        result |= flat(value, f"{at}{key}.") if isinstance(value, Mapping) and value else {f"{at}{key}": value}
    return result
