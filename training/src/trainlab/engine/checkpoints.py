"""Checkpoints known to be complete: a marker with all file sizes, written last; used by the recipes.

A checkpoint without a marker, or whose files differ from it, is skipped on resume with a sentence.
"""

import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainlab import files
from trainlab.errors import UserError
from trainlab.plan import units, volumes

MARKER = "complete.json"
FINAL = "final_model"
"""Folder of the last step's weights, with train.save_final_model."""
FULL_SIGNS = (
    "no space left",
    "os error 28",
    "errno 28",
    "disk quota exceeded",
    "failed writing file",
    "inline_container",
)


class DiskFull(UserError):
    """The run volume filled up while something was written; the run failed (exit code 1) and can be resumed."""

    code = 1


def mark(folder: Path) -> None:
    """Mark a checkpoint complete: record the size of each of its files."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MARKER)  # sharded ones hold folders
    sizes = {p.relative_to(folder).as_posix(): p.stat().st_size for p in paths}
    files.write_json(folder / MARKER, sizes)


def fault(folder: Path) -> str | None:
    """Return what is wrong with a checkpoint, None if it is complete."""
    marker = folder / MARKER
    if not marker.exists():
        return f"{MARKER} is missing: it was being written when the run ended"
    try:
        sizes = dict(files.read_json(marker))
    except (UserError, TypeError, ValueError):
        return f"{MARKER} is unreadable"
    for name, size in sizes.items():
        path = folder / name
        actual = path.stat().st_size if path.exists() else 0
        if actual != size:
            return f"{name} has {actual} of {size} bytes"
    return None


def step(checkpoint: Path) -> int:
    """Return the optimizer step of a checkpoint folder, from its name: a finished run may have rotated it away."""
    return int(checkpoint.name.split("-")[-1])


def listed(folder: Path) -> list[Path]:
    """Return the checkpoint folders, oldest first."""
    paths = (p for p in folder.glob("checkpoint-*") if p.is_dir() and p.name.split("-")[-1].isdigit())
    return sorted(paths, key=step)


def last_good(folder: Path, say: Callable[[str], None]) -> Path | None:
    """Return the newest complete checkpoint, None if there is none; say which ones are skipped and why."""
    for path in reversed(listed(folder)):
        problem = fault(path)
        if problem is None:
            return path
        say(f"{path.name} is skipped: {problem}")
    return None


def rotate(folder: Path, keep: int) -> None:
    """Remove all but the `keep` newest complete checkpoints."""
    for path in [path for path in listed(folder) if fault(path) is None][:-keep]:
        shutil.rmtree(path)


class Clock:
    """When to write a checkpoint: at `count` even steps at most, never at the last one, and never for more than a share of the time.

    The share is volumes.SHARE. Writing is taken to be as fast as units.DEFAULT_STORAGE until it is seen to be slower.
    """

    def __init__(self, steps: int, count: int, size: float) -> None:
        """`steps` of the training, from which `size` bytes are written at each checkpoint."""
        self._steps, self._every = steps, math.ceil(steps / count)
        self._pause = volumes.pause(size / units.storage(units.DEFAULT_STORAGE))
        self._since = self._began = time.monotonic()

    def due(self, step: int) -> bool:
        """Tell whether to write one after this step, every rank as rank 0; every rank must ask after each step."""
        from trainlab.engine import dist

        if step % self._every or step >= self._steps:
            return False
        self._began = time.monotonic()
        return dist.gather(self._began - self._since >= self._pause)[0]

    def saved(self) -> None:
        """Note that the one that was due is written, on rank 0 and any other."""
        self._since = time.monotonic()
        if self._pause:
            self._pause = max(self._pause, volumes.pause(self._since - self._began))


RESUMES = "the same command goes on from the last complete checkpoint"
"""What every message about an ended rank closes with."""


def drop(run_dir: Path, say: Callable[[str], None]) -> None:
    """Remove the checkpoints of a complete run: nothing resumes from them, and each is several times the result's size."""
    folder = run_dir / "checkpoints"
    if not folder.exists():
        return
    try:
        shutil.rmtree(folder)
    except OSError as error:  # the run is complete all the same
        say(f"warning: {folder}: not removed: {error.strerror}; remove it, nothing needs it any more")


def last_good_everywhere(folder: Path, say: Callable[[str], None]) -> Path | None:
    """Return rank 0's choice of checkpoint on every rank: ranks may briefly see different states of a volume.

    Rank 0 removes those that a kill cut off: each preemption of a large model leaves another, until the volume is full.
    """
    from trainlab.engine import dist

    good = None
    if dist.is_main():
        good = last_good(folder, say)
        for path in listed(folder):
            if not (path / MARKER).exists():
                shutil.rmtree(path, ignore_errors=True)
                say(f"{path.name}: removed, it was cut off while it was written")
    return dist.gather(good)[0]


def explain_full(error: BaseException, folder: Path, what: str) -> DiskFull | None:
    """Return the sentence for an error that means `volume full` (OSError, safetensors, torch.save), else None."""
    text = str(error).lower()
    if getattr(error, "errno", None) not in (28, 122) and not any(sign in text for sign in FULL_SIGNS):
        return None
    good = last_good(folder, lambda _: None)
    kept = f"the last good checkpoint is {good}" if good else "there is no earlier checkpoint"
    return DiskFull(
        f"{folder}: the volume is full while {what} was written ({files.free_text(folder)}); {kept}; free space or "
        "enlarge the volume and start the same run again: it resumes from there"
    )


@contextmanager
def explained_if_full(folder: Path, what: str) -> Iterator[None]:
    """Raise the sentence of `explain_full` for an error of the block that means `volume full`, any other as it is."""
    try:
        yield
    except Exception as error:  # OSError, SafetensorError or torch's RuntimeError, depending on the file
        if full := explain_full(error, folder, what):
            raise full from None
        raise
