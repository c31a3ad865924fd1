"""What a stage's gate adds to its recipe's: machine-readable checks, and an override by a named person.

Used by run/worker.py and by `trainlab gate`. Every check but `max_perplexity` is relative to the parent (of pretrain: to the
random weights): an absolute bound that fits one model size means nothing for another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import Phase, SftPhase
from trainlab.config.section_stage import PairStage, PretrainStage
from trainlab.errors import UserError
from trainlab.models import parents

SCORES = ("eval_before.json", "eval_after.json")
OWN = ("max_perplexity", "min_preference_accuracy", "max_answer_loss_rise")  # checks that the recipe's gate lacks


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


def complete(
    decision: dict[str, Any], after: Mapping[str, Any], phase: Phase, run_dir: Path, override: Override | None = None
) -> dict[str, Any]:
    """Return the recipe's decision with stage, parent, checks and override; unchanged if the phase is not a stage.

    A recorded override stands as long as the scores are the same. Raises UserError where there is nothing to override.
    """
    stage = phase.stage_block
    if stage is None:
        if override:
            raise UserError(f"{run_dir}: phase {phase.name} is not a stage; only a stage's gate can be overridden")
        return decision
    found = checks(decision, after, phase)
    passed = all(one["passed"] for one in found)
    reasons = [*decision["reasons"], *(one["reason"] for one in found if one["check"] in OWN)]
    full = {
        **decision,
        "promoted": passed,
        "stage": stage.name,
        "parent": _parent(run_dir),
        "checks": found,
        "override": None,
        "reasons": reasons,
    }
    full["thresholds"] = {
        **decision["thresholds"],
        **{one["check"]: one["threshold"] for one in found if one["check"] in OWN},
    }
    if override and passed:
        raise UserError(f"{run_dir}: its gate promoted it; there is nothing to override")
    note = _new(override, run_dir) if override else _old(run_dir)
    if note and not passed:
        full |= {"promoted": True, "override": note}
        reasons.insert(
            0, f"Overridden by {note['who']} on {note['when']}: {note['why']}. The gate itself did not promote:"
        )
    return {**full, "stages": [*_earlier(run_dir), _told(full, run_dir)]}


def _earlier(run_dir: Path) -> list[dict[str, Any]]:
    """Return what the gates of the ancestors say, the first stage first."""
    path = run_dir / parents.FOLDER / parents.STAGES_SO_FAR
    return list(files.read_json(path)) if path.exists() else []


def _told(decision: Mapping[str, Any], run_dir: Path) -> dict[str, Any]:
    """Return what the report of a later stage says about this one; loss: mean nats per token of its held-out text or answers."""
    loss = decision.get("heldout_loss") or decision.get("answer_loss")
    summary, answers = run_dir / "training_summary.json", run_dir / "demo_outputs" / "after.json"
    return {
        "stage": decision["stage"],
        "run": run_dir.name,
        "tokens": files.read_json(summary).get("tokens") if summary.exists() else None,
        "loss": {side: loss[side] for side in ("before", "after")} if loss else None,
        "promoted": decision["promoted"],
        "verdict": decision["verdict"],
        "overridden": bool(decision["override"]),
        "answers": files.read_json(answers) if answers.exists() else [],
    }


def checks(decision: Mapping[str, Any], after: Mapping[str, Any], phase: Phase) -> list[dict[str, Any]]:
    """Return one entry per condition: check, value, op, threshold, relative_to, passed, reason. Values in the metric's unit."""
    stage, gain = phase.stage_block, decision.get("gain")
    before = phase.parent or "random weights"
    low = gain["low"] if gain else None
    found = [_check("min_gain", low, ">", phase.gate.min_gain, before, f"lower end of the gain in {phase.gate.metric}")]
    drops = {}
    if isinstance(phase, SftPhase):
        drops = {"fact_recall": phase.gate.max_fact_recall_drop, "form_adherence": phase.gate.max_form_adherence_drop}
        if phase.gate.metric == "taught_recall":
            loss = decision.get("answer_loss")
            rise = round(-loss["high"], 9) if loss else None
            what = "lower end of the rise in answer loss, nats per token"
            found.append(_check("max_sure_answer_loss_rise", rise, "<=", 0.0, before, what))
    for name, bound in drops.items():
        if decision.get(name):
            drop = round(-decision[name]["mean"], 9)
            found.append(_check(f"max_{name}_drop", drop, "<=", bound, before, f"drop in {name}"))
    if isinstance(stage, PretrainStage) and stage.max_perplexity is not None:
        what = "perplexity on held-out blocks"
        found.append(_check("max_perplexity", after["perplexity"], "<=", stage.max_perplexity, None, what))
    if isinstance(stage, PairStage):
        share, loss = decision["preference_accuracy"], decision.get("answer_loss")
        rise = round(-loss["mean"], 9) if loss else None
        what = "share of held-out pairs ranked correctly"
        found.append(_check("min_preference_accuracy", share, ">", stage.min_preference_accuracy, before, what))
        what = "rise in the loss on right answers, nats per token"
        found.append(_check("max_answer_loss_rise", rise, "<=", stage.max_answer_loss_rise, before, what))
    return found


def _check(
    name: str, value: float | None, op: str, threshold: float, relative_to: str | None, what: str
) -> dict[str, Any]:
    passed = value is not None and (value > threshold if op == ">" else value <= threshold)
    shown = "not measured" if value is None else f"{value:.4g}"
    against = f", against {relative_to}" if relative_to else ""
    verb = "passed" if passed else "failed"
    return {
        "check": name,
        "value": value,
        "op": op,
        "threshold": threshold,
        "relative_to": relative_to,
        "passed": passed,
        "reason": f"{name} {verb}: {what} is {shown}, must be {op} {threshold:g}{against}.",
    }


def _parent(run_dir: Path) -> Any:
    path = run_dir / "manifest.json"
    return files.read_json(path).get("parent") if path.exists() else None


def _digest(run_dir: Path) -> str:
    return " ".join(files.sha256(run_dir / name)[:16] for name in SCORES)


def _new(override: Override, run_dir: Path) -> dict[str, str]:
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"who": override.who, "why": override.why, "when": when, "scores": _digest(run_dir)}


def _old(run_dir: Path) -> dict[str, str] | None:
    """Return the override in gate.json if it was made for the current scores."""
    path = run_dir / "gate.json"
    note = files.read_json(path).get("override") if path.exists() else None
    return note if note and note.get("scores") == _digest(run_dir) else None
