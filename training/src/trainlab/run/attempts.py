"""How often a run was started, and what each loss cost: attempts.json in the run directory.

The first pod's launcher records each start and ends a job that has used up its restarts: a PyTorchJob counts none itself, and
JobSet, which does, sees the same number (charts/trainjob). A pod that was told to end (SIGTERM) is no loss. Rank 0 leaves the last
step that it reached in a file of its own.
"""

import contextlib
import itertools
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.engine import checkpoints
from trainlab.errors import STOPPED, UserError

FILE, STEP = "attempts.json", "last_step"
LOSSES = 128
"""Exit codes from here on tell an operator to make the pod again: a signal, or a peer that is lost."""


class UsedUp(UserError):
    """The job lost something more often than it may (exit code 1, after which no operator starts it again)."""

    code = 1


def begin(run_dir: Path, allowed: int | None) -> str:
    """Record a start; return the line to print, empty at the first one.

    `allowed` is phase.resources.restarts under an operator, None where nothing restarts the run. Raises UsedUp when the attempt
    before was the last one; the next start is then a new first one, as only a person makes it.
    """
    starts = read(run_dir)
    good = checkpoints.last_good(run_dir / "checkpoints", lambda _: None)
    resumed = checkpoints.step(good) if good else 0
    if (run_dir / "training_summary.json").exists():  # only its scores are missing
        resumed = max(resumed, reached(run_dir))
    restart = 0
    if starts:
        before = starts[-1]
        before["reached"] = max(reached(run_dir), before["resumed"])
        ended = before.get("ended")
        if ended in (None, STOPPED):
            restart = before["restart"] + (ended is None)
        if allowed is not None and restart > allowed:
            before["ended"] = UsedUp.code
            _write(run_dir, starts)
            raise UsedUp(used_up(allowed))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    _write(run_dir, [*starts, {"at": now, "resumed": resumed, "restart": restart}])
    with contextlib.suppress(FileNotFoundError):
        (run_dir / STEP).unlink()
    if not starts:
        return ""
    lost_before = "ended" not in starts[-1]
    again = f"restart {restart} of {allowed}" if lost_before and allowed is not None else "started again"
    lost = max(0, starts[-1]["reached"] - resumed)
    return f"{again}: goes on at step {resumed}, {lost} {'step is' if lost == 1 else 'steps are'} repeated"


def end(run_dir: Path, code: int) -> None:
    """Record that this attempt ended by itself, so that the next start is nobody's restart, or was told to (STOPPED).

    What is told to end counts nothing, and leaves what losses before it have counted.
    """
    starts = read(run_dir)
    if starts:
        starts[-1]["ended"] = code
        with contextlib.suppress(OSError):  # of a full volume, which the ranks reported
            _write(run_dir, starts)


def is_last(run_dir: Path, allowed: int) -> bool:
    """True when the attempt in progress may not be followed by another."""
    starts = read(run_dir)
    return bool(starts) and starts[-1]["restart"] >= allowed


def used_up(allowed: int) -> str:
    """Return the sentence for a job that may not start again."""
    times = "once" if allowed == 1 else f"{allowed} times"
    return (
        f"phase.resources.restarts is {allowed}: the job was started again {times} and lost a rank or pod once more, so it "
        f"ends; see the events of its pods and nodes for the cause; then {checkpoints.RESUMES}"
    )


def summary(run_dir: Path) -> dict[str, int]:
    """Return how often the run was started again, and how many steps were taken twice for it."""
    starts = read(run_dir)
    pairs = itertools.pairwise(starts)
    repeated = sum(max(0, first.get("reached", 0) - second["resumed"]) for first, second in pairs)
    return {"restarts": max(0, len(starts) - 1), "repeated_steps": repeated}


def read(run_dir: Path) -> list[dict[str, Any]]:
    """Return the recorded starts, oldest first; UserError when the file is unreadable."""
    path = run_dir / FILE
    return list(files.read_json(path)["starts"]) if path.exists() else []


def reached(run_dir: Path) -> int:
    """Return the last step that rank 0 left on the volume, 0 before the first one."""
    try:
        return int((run_dir / STEP).read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):  # an empty file: the pod ended in its first write
        return 0


class LastStep:
    """Keeps the newest step on the volume, at every step: a killed process leaves what it wrote."""

    def __init__(self, run_dir: Path) -> None:
        """Nothing is written before the first step."""
        self._path, self._file = run_dir / STEP, -1

    def __call__(self, step: int) -> None:
        """Overwrite the number in place, without a new file: steps may be short, and volumes are networks."""
        with contextlib.suppress(OSError):  # a full volume: the training reports that, and better
            if self._file < 0:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
            os.pwrite(self._file, f"{step:12d}\n".encode(), 0)


def _write(run_dir: Path, starts: list[dict[str, Any]]) -> None:
    files.write_json(run_dir / FILE, {"starts": starts})
