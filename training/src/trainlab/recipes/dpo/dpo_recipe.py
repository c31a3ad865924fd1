"""The hooks of recipe dpo; found by recipes.of. Imports torch only where it is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainlab.config import DpoPhase
from trainlab.recipes.base import Scores
from trainlab.recipes.dpo import pairs
from trainlab.recipes.language import Language


class DpoRecipe(Language):
    """The parent's model, preference pairs; judged by how far it moved from its parent, pair by pair."""

    SCORES = {"preference_margin": "pairs", "preference_accuracy": "pairs", **Language.SCORES}
    phase: DpoPhase

    def rows(self, data_dir: Path) -> tuple[list[Any], list[Any]]:
        """As Language.rows, each row with `rejected`."""
        return pairs.load(self.phase, data_dir)

    def _scores(self, model: Any, tokenizer: Any, heldout: Any, questions: Sequence[str] = ()) -> Scores:
        """As Language._scores, plus the log-probability of each chosen and rejected answer, in nats, the end of the turn included."""
        from trainlab.engine import dist
        from trainlab.evaluation import answer_score

        scores = super()._scores(model, tokenizer, heldout, questions)
        own = heldout[dist.rank() :: dist.world_size()]
        rejected = [{**row, "answer": row["rejected"]} for row in own]
        lost = answer_score.losses(model, tokenizer, self.phase, rejected)
        found = {row["id"]: -mean * count for row, (mean, count) in zip(own, lost, strict=True)}
        known = {key: value for part in dist.gather(found) for key, value in part.items()}
        for item in scores["items"]:
            item["chosen_logp"] = -item["loss"] * item["tokens"]
            item["rejected_logp"] = known[item["id"]]
        return scores

    def decide(self, before: Scores, after: Scores) -> dict[str, Any]:
        """As Recipe.decide."""
        from trainlab.recipes.dpo import preference_gate

        return preference_gate.decide(before, after, self.phase)
