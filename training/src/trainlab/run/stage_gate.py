"""What a stage's gate.json has beside its recipe's decision: the parent, the stages so far, a named person's override.

Used by run/worker.py and by `trainlab gate`. It promotes nothing itself: every condition is in the recipe's gate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import Phase
from trainlab.errors import UserError
from trainlab.models import parents

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


def complete(decision: dict[str, Any], phase: Phase, run_dir: Path, override: Override | None = None) -> dict[str, Any]:
    """Return the recipe's decision with stage, parent, override and the stages so far; unchanged if it is no stage.

    A recorded override stands as long as the scores are the same. Raises UserError where there is nothing to override.
    """
    stage = phase.stage_block
    if stage is None:
        if override:
            raise UserError(f"{run_dir}: phase {phase.name} is not a stage; only a stage's gate can be overridden")
        return decision
    full = {**decision, "stage": stage.name, "parent": _parent(run_dir), "override": None}
    if override and decision["promoted"]:
        raise UserError(f"{run_dir}: its gate promoted it; there is nothing to override")
    note = _new(override, run_dir) if override else _old(run_dir)
    if note and not decision["promoted"]:
        overridden = f"Overridden by {note['who']} on {note['when']}: {note['why']}. The gate itself did not promote:"
        full |= {"promoted": True, "override": note, "reasons": [overridden, *decision["reasons"]]}
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
