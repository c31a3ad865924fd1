"""A named checkpoint to go on from, `train.resume_from`: taken up once, by the first pod's launcher, before any rank starts.

The checkpoint becomes the newest one of the run, from which every recipe resumes. A note in the run directory says that it was taken
up: a restart of the job then goes on from what was written since.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from trainlab import files
from trainlab.config import Phase
from trainlab.engine import checkpoints
from trainlab.errors import UserError
from trainlab.recipes.base import Run
from trainlab.run import identity

NOTE = "resume_from.json"
KEY = "phase.train.resume_from"
ALLOWED = ("phase.name", *(f"phase.resources.{key}" for key in ("memory", "shared_memory", "timeout_minutes")))
"""Keys that another run may have otherwise: those that a person raises after the run was ended for them."""


def take_up(run: Run, ranks: int, first: bool, say: Callable[[str], None]) -> None:
    """Make the named checkpoint the run's newest, unless that was done at an earlier start; only the `first` pod changes anything.

    `ranks` are those of the whole job. Raises UserError for a checkpoint that is missing, incomplete, or of a run that trains something
    else.
    """
    wish, note = run.phase.train.resume_from, run.run_dir / NOTE
    if wish is None:
        if first:
            note.unlink(missing_ok=True)
        return
    if note.exists() and files.read_json(note)["from"] == wish:
        return
    *owners, name = wish.split("/checkpoints/")
    other = run.run_dir.with_name(owners[0]) if owners else None
    source = (other or run.run_dir) / "checkpoints" / name
    _check(source, wish)
    if other:
        _check_owner(run, other, ranks)
    if not first:
        return
    step, folder = checkpoints.step(source), run.run_dir / "checkpoints"
    later = [path for path in checkpoints.listed(folder) if checkpoints.step(path) > step]
    for path in later:
        shutil.rmtree(path)
    if other:
        from trainlab.engine.acceleration import CHOICE  # with torch, which is not there before the environment is set

        _copy(source, folder / name, wish)
        if (other / CHOICE).exists():
            shutil.copy(other / CHOICE, run.run_dir / CHOICE)
    for left in ("training_summary.json", "eval_after.json", "gate.json", "report.json"):  # of other weights
        (run.run_dir / left).unlink(missing_ok=True)
    files.write_json(note, {"from": wish})
    say(f"{KEY}: {wish}" + (f"; removed {', '.join(path.name for path in later)}" if later else ""))


def _check(source: Path, wish: str) -> None:
    """Raise UserError unless the checkpoint is complete."""
    why = checkpoints.fault(source) if source.is_dir() else f"no folder {source}"
    if why:
        complete = [path.name for path in checkpoints.listed(source.parent) if checkpoints.fault(path) is None]
        named = f"name one of {', '.join(complete)}, or remove it" if complete else "none is complete: remove it"
        raise UserError(f"{KEY} is {wish}: {why}; {named}")


def _check_owner(run: Run, other: Path, ranks: int) -> None:
    """Raise UserError unless the other run trains the same, with the same inputs, on as many ranks."""
    from trainlab import recipes

    phase: Phase = run.phase
    origin = recipes.get_recipe(phase).origin(phase, run.model_dir, run.data_dir, run.models)
    why = "; ".join(identity.changes(other, phase, besides=ALLOWED))
    if why or (why := identity.other_input(other, {**origin, "world_size": ranks}) or ""):
        raise UserError(
            f"{KEY} is {phase.train.resume_from}: {other.name} trains something else: {why}; train with its values, or remove the key"
        )


def _copy(source: Path, target: Path, wish: str) -> None:
    """Copy a checkpoint whole, by hard links where the volume has them; raises UserError if it was removed meanwhile."""
    try:
        with files.atomic_folder(target) as folder:
            shutil.copytree(source, folder, dirs_exist_ok=True, copy_function=files.link_or_copy)
    except (FileNotFoundError, shutil.Error):
        shutil.rmtree(target, ignore_errors=True)
    if not target.is_dir() or checkpoints.fault(target):
        shutil.rmtree(target, ignore_errors=True)
        raise UserError(f"{KEY} is {wish}: it was removed while it was copied; name another, or remove the key")
