"""A run directory as a whole: whether it is finished, what its gate says, and deciding or scoring it again.

Called by the ranks (run/worker.py), by the launcher and by the commands that look at a finished run. To its recipe's decision a stage
adds its parent, the stages so far, and a named person's override. It promotes nothing itself: every condition is in the recipe's gate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainlab import files, recipes
from trainlab.config import Phase
from trainlab.config.loading import load_values
from trainlab.errors import UserError
from trainlab.evaluation.tasks import compare_tasks
from trainlab.models import parents
from trainlab.recipes.adapters import ADAPTERS
from trainlab.recipes.base import Run, Scores
from trainlab.report import terminal

COMPLETE = "trainlab: {} is complete: nothing to do"
SCORES = ("eval_before.json", "eval_after.json")


@dataclass(frozen=True)
class Override:
    """Somebody's decision to let a stage that its gate refused go on."""

    who: str
    why: str

    @classmethod
    def of(cls, wanted: bool, who: str | None, why: str | None) -> "Override":
        """Return the override from the command line; raises UserError unless all three options are given."""
        if not wanted:
            raise UserError("--who and --why belong to --override; add it")
        for option, text in (("--who", who), ("--why", why)):
            if not text or not text.strip():
                raise UserError(f"{option} is missing: an override needs --who NAME and --why REASON")
        return cls(str(who).strip(), str(why).strip())


def finished(run_dir: Path) -> bool:
    """True when the run directory holds everything up to the report."""
    models = ("best_model/config.json", "lora_adapter/adapter_config.json", ADAPTERS)
    names = ("eval_after.json", "gate.json", "report.json", "manifest.json")
    complete = any((run_dir / name).exists() for name in models) and all((run_dir / name).exists() for name in names)
    return complete and bool(files.read_json(run_dir / "manifest.json")["ended"])


def evaluate_again(run_dir: Path, models: Path, data: Path | None) -> int:
    """Score base and tuned model of a finished run again in this process; write the results, gate and report.

    `data` is --data.
    """
    from trainlab.models import compute

    phase = phase_of(run_dir)
    compute.set_tf32(phase)
    recipe, model_dir = recipes.get_recipe(phase), parents.model_dir(phase, models, run_dir)
    recipe.rescore(Run(phase, run_dir, model_dir, recipe.data_dir(phase, models, data), models))
    gate_again(run_dir)
    print(write_report(run_dir))
    return 0


def gate_again(run_dir: Path, dry_run: bool = False, override: Override | None = None) -> dict[str, Any]:
    """Decide again from eval_before.json and eval_after.json; return gate.json, and write it unless `dry_run`."""
    before, after = files.read_json(run_dir / "eval_before.json"), files.read_json(run_dir / "eval_after.json")
    decision = decide(phase_of(run_dir), run_dir, before, after, override)
    if not dry_run:
        files.write_json(run_dir / "gate.json", decision)
    return decision


def write_report(run_dir: Path, *, out: Path | None = None) -> Path:
    """Write RUN_DIR/report.json and the page (`out`, else RUN_DIR/report.html); return the page's path.

    A pure function of the run directory's JSON files; parts whose files are missing are named in the report. Raises UserError
    when there is no run in `run_dir`.
    """
    files.read_json(run_dir / "phase.json")  # a clear error where there is no run
    recipe, gate = recipes.get_recipe(phase_of(run_dir)), run_dir / "gate.json"
    collected, text = recipe.report(run_dir)
    collected["rows"] = terminal.rows(files.read_json(gate) if gate.exists() else None, recipe.SCORES)
    history = run_dir / "training_history.json"
    collected["rows"] += terminal.gpu_use(files.read_json(history) if history.exists() else [])
    files.write_json(run_dir / "report.json", collected)
    target = out or run_dir / "report.html"
    files.write_text(target, text)
    return target


def decide(
    phase: Phase, run_dir: Path, before: Scores, after: Scores, override: Override | None = None
) -> dict[str, Any]:
    """Return the content of gate.json: the recipe's decision, what a stage adds, and the tasks, which decide nothing."""
    decision = _of_stage(recipes.get_recipe(phase).decide(before, after, phase), phase, run_dir, override)
    rows = compare_tasks(before, after, phase)
    return {**decision, "tasks": rows} if rows else decision


def phase_of(run_dir: Path) -> Phase:
    """Return the phase that a run directory was made from; the environment no longer changes it."""
    return load_values([run_dir / "phase.json"]).phase


def _of_stage(
    decision: dict[str, Any], phase: Phase, run_dir: Path, override: Override | None = None
) -> dict[str, Any]:
    """Return the recipe's decision with stage, parent, override and the stages so far; unchanged if it is no stage.

    A recorded override stands as long as the scores are the same. Raises UserError where there is nothing to override.
    """
    stage = phase.stage_block
    if stage is None:
        if override:
            raise UserError(f"{run_dir}: phase {phase.name} is not a stage; only a stage's gate can be overridden")
        return decision
    manifest = run_dir / "manifest.json"
    parent = files.read_json(manifest).get("parent") if manifest.exists() else None
    full = {**decision, "stage": stage.name, "parent": parent, "override": None}
    if override and decision["promoted"]:
        raise UserError(f"{run_dir}: its gate promoted it; there is nothing to override")
    note = _new_override(override, run_dir) if override else _old_override(run_dir)
    if note and not decision["promoted"]:
        overridden = f"Overridden by {note['who']} on {note['when']}: {note['why']}. The gate itself did not promote:"
        full |= {"promoted": True, "override": note, "reasons": [overridden, *decision["reasons"]]}
    return {**full, "stages": [*_earlier(run_dir), _own_row(full, run_dir)]}


def _earlier(run_dir: Path) -> list[dict[str, Any]]:
    """Return what the gates of the ancestors say, the first stage first."""
    path = run_dir / parents.FOLDER / parents.STAGES_SO_FAR
    return list(files.read_json(path)) if path.exists() else []


def _own_row(decision: Mapping[str, Any], run_dir: Path) -> dict[str, Any]:
    """Return what the report of a later stage says about this one; loss: mean nats per token of its held-out text or answers."""
    loss = decision.get("heldout_loss") or decision.get("answer_loss")
    summary, answers = run_dir / "training_summary.json", run_dir / "demo_outputs" / "after.json"
    known = files.read_json(summary) if summary.exists() else {}
    since = known.get("steps", 0) - known.get("resumed_from_step", 0)  # its tokens are those since the last start
    return {
        "stage": decision["stage"],
        "run": run_dir.name,
        "tokens": round(known["tokens"] * known["steps"] / since)
        if since and known.get("tokens")
        else known.get("tokens"),
        "loss": {side: loss[side] for side in ("before", "after")} if loss else None,
        "promoted": decision["promoted"],
        "verdict": decision["verdict"],
        "overridden": bool(decision["override"]),
        "answers": files.read_json(answers) if answers.exists() else [],
    }


def _digest(run_dir: Path) -> str:
    return " ".join(files.sha256(run_dir / name)[:16] for name in SCORES)


def _new_override(override: Override, run_dir: Path) -> dict[str, str]:
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"who": override.who, "why": override.why, "when": when, "scores": _digest(run_dir)}


def _old_override(run_dir: Path) -> dict[str, str] | None:
    """Return the override in gate.json if it was made for the current scores."""
    path = run_dir / "gate.json"
    note = files.read_json(path).get("override") if path.exists() else None
    return note if note and note.get("scores") == _digest(run_dir) else None
