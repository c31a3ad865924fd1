"""A run directory as a whole: whether it is finished, what its gate says, and deciding or scoring it again.

Called by the ranks (run/worker.py), by the launcher and by the commands that look at a finished run.
"""

from pathlib import Path
from typing import Any

from trainlab import files, recipes
from trainlab.config import Phase
from trainlab.config.loading import load_values
from trainlab.evaluation.benchmarks import task_comparison
from trainlab.recipes.base import Scores
from trainlab.report import terminal
from trainlab.run import stage_gate

COMPLETE = "trainlab: {} is complete: nothing to do"


def finished(run_dir: Path) -> bool:
    """True when the run directory holds everything up to the report."""
    results = ("best_model/config.json", "lora_adapter/adapter_config.json")
    names = ("eval_after.json", "gate.json", "report.json", "manifest.json")
    return (
        any((run_dir / name).exists() for name in results)
        and all((run_dir / name).exists() for name in names)
        and bool(files.read_json(run_dir / "manifest.json")["ended"])
    )


def evaluate_again(run_dir: Path, models: Path, given: Path | None) -> int:
    """Score base and tuned model of a finished run again in this process; write the results, gate and report."""
    recipes.of(phase_of(run_dir), models).rescore(run_dir, models, given)
    gate_again(run_dir)
    print(write_report(run_dir))
    return 0


def gate_again(run_dir: Path, dry_run: bool = False, override: stage_gate.Override | None = None) -> dict[str, Any]:
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
    recipe, gate = recipes.of(phase_of(run_dir)), run_dir / "gate.json"
    collected, text = recipe.report(run_dir)
    collected["rows"] = terminal.rows(files.read_json(gate) if gate.exists() else None, recipe.SCORES)
    files.write_json(run_dir / "report.json", collected)
    target = out or run_dir / "report.html"
    files.write_text(target, text)
    return target


def decide(
    phase: Phase, run_dir: Path, before: Scores, after: Scores, override: stage_gate.Override | None = None
) -> dict[str, Any]:
    """Return the content of gate.json: the recipe's decision, what a stage adds, and the tasks, which decide nothing."""
    decision = stage_gate.complete(recipes.of(phase).decide(before, after), phase, run_dir, override)
    rows = task_comparison.rows(before, after, phase)
    return {**decision, "tasks": rows} if rows else decision


def phase_of(run_dir: Path) -> Phase:
    """Return the phase that a run directory was made from; the environment no longer changes it."""
    return load_values([run_dir / "phase.json"]).phase
