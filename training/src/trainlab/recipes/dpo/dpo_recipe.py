"""The hooks of recipe dpo; found by recipes.of. Imports torch only where it is needed."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab.config import DpoPhase
from trainlab.recipes.base import Scores
from trainlab.recipes.dpo import pairs
from trainlab.recipes.language import Language

if TYPE_CHECKING:
    from trainlab.engine.training_job import TrainingJob


class DpoRecipe(Language):
    """The parent's model, preference pairs; judged by how far it moved from its parent, pair by pair."""

    phase: DpoPhase

    def rows(self, data_dir: Path) -> tuple[list[Any], list[Any]]:
        """As Language.rows, each row with `rejected`."""
        return pairs.load(self.phase, data_dir)

    def _scores(self, model: Any, tokenizer: Any, heldout: Any) -> Scores:
        """As Language._scores; besides, the log-probability of each chosen and rejected answer, in nats, EOS included."""
        from trainlab.engine import dist
        from trainlab.evaluation import answer_score

        scores = super()._scores(model, tokenizer, heldout)
        own = heldout[dist.rank() :: dist.world_size()]
        rejected = [{**row, "answer": row["rejected"]} for row in own]
        lost = answer_score.losses(model, tokenizer, self.phase, rejected)
        found = {row["id"]: -mean * count for row, (mean, count) in zip(own, lost, strict=True)}
        known = {key: value for part in dist.gather(found) for key, value in part.items()}
        for item in scores["items"]:
            item["chosen_logp"] = -item["loss"] * item["tokens"]
            item["rejected_logp"] = known[item["id"]]
        return scores

    def _train(self, job: "TrainingJob[Any, Any]") -> dict[str, Any]:
        """As Language._train."""
        from trainlab.recipes.dpo import dpo_trainer

        return dpo_trainer.train(job)

    def decide(self, before: Scores, after: Scores) -> dict[str, Any]:
        """As Recipe.decide: the margin of each pair is beta x (how much more the chosen gained than the rejected)."""
        from trainlab.evaluation import answer_gate
        from trainlab.evaluation.paired_bootstrap import SAME, compare

        phase, settings = self.phase, self.phase.evaluate
        both = answer_gate.paired(before, after)
        margins = [phase.stage.beta * (_lead(b) - _lead(a)) for a, b in both]
        gain = None
        if all(math.isfinite(margin) for margin in margins):
            gain = compare(
                [0.0] * len(margins),  # the parent against itself
                margins,
                higher_is_better=True,
                samples=settings.bootstrap_samples,
                confidence=settings.confidence,
                seed=phase.seed,
            )
        share = sum(margin > 0 for margin in margins) / len(margins)
        return {
            "promoted": bool(gain and gain["low"] > phase.gate.min_gain),
            "verdict": gain["verdict"] if gain else SAME,
            "metric": phase.gate.metric,
            "gain": gain,
            "answer_loss": answer_gate.compared(both, "loss", phase),
            "fact_recall": answer_gate.compared(both, "recall", phase),
            "form_adherence": None,
            "preference_accuracy": share,
            "reasons": [_reason(gain, share, phase.gate.min_gain, settings.confidence)],
            "thresholds": {
                "min_gain": phase.gate.min_gain,
                "confidence": settings.confidence,
                "bootstrap_samples": settings.bootstrap_samples,
            },
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def _lead(item: Mapping[str, Any]) -> float:
    """Return by how many nats the chosen answer is likelier than the rejected one."""
    return float(item["chosen_logp"] - item["rejected_logp"])


def _reason(gain: Mapping[str, Any] | None, share: float, needed: float, confidence: float) -> str:
    if gain is None:
        return "The margins could not be compared: a value is not a finite number."
    enough = "above" if gain["low"] > needed else "not above"
    return (
        f"Against its parent the model prefers the chosen answer by {gain['mean']:+.3f} nats of reward over {gain['pairs']} "
        f"held-out pairs, {confidence:.0%} interval {gain['low']:+.3f} to {gain['high']:+.3f}; its lower end is {enough} the "
        f"required {needed:g}. It moved the right way on {share:.1%} of the pairs."
    )
