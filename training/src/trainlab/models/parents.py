"""The run that a stage continues from: found, checked, linked into the run directory as parent_model/. For run/launch.py.

The files are hard links where the volume supports them (they take no space), so a run keeps its parent whatever happens
to the parent's directory, continues from the same weights after a restart, and is served without it. No torch.
"""

from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import LanguagePhase, Phase, PretrainPhase
from trainlab.config.methods import STAGES, ChildStage
from trainlab.errors import UserError
from trainlab.models import architectures, fetch
from trainlab.progress import note

FOLDER = "parent_model"
STAGES_SO_FAR = "stages.json"  # what the gates of the parent and its ancestors say


def model_dir(phase: Phase, models: Path, run_dir: Path) -> Path:
    """Return the folder of the model a run started from: its parent's, the random one, or one in the model volume."""
    if phase.parent:
        return run_dir / FOLDER
    return (
        architectures.random_init_dir(phase, models)
        if isinstance(phase, PretrainPhase)
        else fetch.model_dir(phase.model.source, models)
    )


def adopt(phase: LanguagePhase, out: Path, run_dir: Path) -> Path:
    """Make sure that RUN_DIR/parent_model holds the parent's model; return it. The first pod does this, others wait.

    Raises UserError for a parent that is missing, unfinished, of another stage or size, or not promoted by its gate.
    """
    target = run_dir / FOLDER
    if (target / fetch.RECORD).exists():
        _note_newer_parent(phase, out, target)
        return target
    parent = find(phase, out)
    gate = check(phase, parent)
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written: {error.strerror}; name a writable folder") from None

    def fill(folder: Path) -> dict[str, Any]:
        for path in sorted((parent / "best_model").iterdir()):
            if path.is_file() and path.name != fetch.RECORD:
                files.link_or_copy(path, folder / path.name)
        files.write_json(folder / STAGES_SO_FAR, gate.get("stages", []))
        return _record(phase, parent, gate)

    return fetch.once(target, (target / fetch.RECORD).exists, fill)


def find(phase: Phase, out: Path) -> Path:
    """Return the parent's run directory: `stage.parent_run`, else the newest finished run of that stage and model size."""
    if run := _named(phase):
        path = out / run
        if not (path / "phase.json").exists():
            raise UserError(f"phase.stage.parent_run is {run}: no run {path}; correct the name")
        return path
    newest = _newest(phase, out)
    if newest is None:
        raise UserError(
            f"phase.stage.parent is {phase.parent}: no finished run of stage {phase.parent} with model "
            f"{_size(phase.model.source)} in {out}; run that stage first, with the same release (or --out), or name its "
            "directory with phase.stage.parent_run"
        )
    return newest


def check(phase: LanguagePhase, parent: Path) -> dict[str, Any]:
    """Return the parent's gate.json; raises UserError unless it is of the right stage and size, finished and promoted."""
    wanted = phase.parent
    gate = files.read_json(parent / "gate.json")
    stage = gate.get("stage") if isinstance(gate, dict) else None
    if stage not in STAGES:
        raise UserError(
            f"{parent / 'gate.json'}: stage is {stage!r}: unknown; known stages: {', '.join(STAGES)}; decide again with "
            f"`trainlab gate {parent}`, or name another run with phase.stage.parent_run"
        )
    if stage != wanted:
        raise UserError(f"{parent}: a run of stage {stage}, but phase.stage.parent is {wanted}; name another run")
    source = _phase(parent)["model"]["source"]
    if _size(source) != _size(phase.model.source):
        raise UserError(
            f"{parent}: its model is {_size(source)}, phase.model.source is {phase.model.source}; set parent:{_size(source)}, "
            "or name another run"
        )
    context = architectures.of_phase(phase).context
    if phase.model.max_length > context:
        raise UserError(
            f"phase.model.max_length is {phase.model.max_length}: {_size(source)} has {context} positions; lower it"
        )
    if not gate.get("promoted"):
        failed = [
            condition["reason"] for condition in gate.get("conditions", []) if not condition["passed"]
        ] or gate.get("reasons", [])
        raise UserError(
            f"{parent}: the gate of stage {stage} did not promote it: {' '.join(failed)} Train it again, or record why "
            f"it may continue: `trainlab gate {parent} --override --who NAME --why REASON`"
        )
    if not (parent / "best_model" / "config.json").exists():
        raise UserError(f"{parent}: holds no best_model/; train stage {stage} again")
    return dict(gate)


def _named(phase: Phase) -> str | None:
    """Return `stage.parent_run`."""
    return phase.stage_block.parent_run if isinstance(phase.stage_block, ChildStage) else None


def _newest(phase: Phase, out: Path) -> Path | None:
    ended = [(when, path) for path in sorted(out.glob("*")) if (when := _ended(path, phase))]
    return max(ended)[1] if ended else None


def _note_newer_parent(phase: Phase, out: Path, kept: Path) -> None:
    """Say that a run keeps the parent that it started from although there is now a newer one."""
    own, newest = files.read_json(kept / fetch.RECORD)["parent"]["run"], None if _named(phase) else _newest(phase, out)
    if newest and newest.name != own:
        note(
            f"{kept.parent.name} continues from run {own}, as it started; run {newest.name} of stage "
            f"{phase.parent} is newer: set phase.stage.parent_run: {newest.name} for a run that continues from it"
        )


def _ended(path: Path, phase: Phase) -> str | None:
    """Return when the run in `path` ended if it could be the parent, else None."""
    if not all((path / name).is_file() for name in ("phase.json", "manifest.json", "gate.json")):
        return None
    block = _phase(path)
    if (block.get("stage") or {}).get("name") != phase.parent:  # null in a standalone phase of a recipe that has stages
        return None
    if _size(block["model"]["source"]) != _size(phase.model.source):
        return None
    ended = files.read_json(path / "manifest.json").get("ended")
    return str(ended) if ended else None


def _phase(path: Path) -> dict[str, Any]:
    return dict(files.read_json(path / "phase.json")["phase"])


def _size(source: str) -> str:
    """Return llama-2.4M for init:llama-2.4M and parent:llama-2.4M."""
    return source.partition(":")[2]


def _record(phase: Phase, parent: Path, gate: dict[str, Any]) -> dict[str, Any]:
    digest = files.folder_sha256(parent / "best_model")
    note: dict[str, Any] = {
        "stage": phase.parent,
        "run": parent.name,
        "path": f"{parent.name}/best_model",
        "sha256": digest,
        "gate": {key: gate.get(key) for key in ("promoted", "verdict", "override", "time")},
    }
    return {"source": phase.model.source, "sha256": digest, "parent": note}
