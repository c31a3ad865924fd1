"""The hooks of the recipes pretrain and dpo; found by recipes.of. Imports torch only where it is needed."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab import files
from trainlab.config import DpoPhase, PretrainPhase
from trainlab.errors import UserError
from trainlab.prepare import blocks as prepared
from trainlab.progress import Progress
from trainlab.recipes.base import Scores
from trainlab.recipes.language import Language
from trainlab.staged import init, pairs, stored
from trainlab.text import text_sources
from trainlab.text.text_recipe import TextRecipe

if TYPE_CHECKING:
    from trainlab.text.pack import Blocks


class Pretrain(TextRecipe):
    """Weights drawn at random in the model volume; running text, or blocks of tokens prepared beforehand."""

    phase: PretrainPhase

    def fetch(self, models: Path, wheels: Path | None) -> Path:
        """As Recipe.fetch: the text where it lies on a hub, the tokenizer, the random weights."""
        text_sources.fetch(self.phase, models)
        return init.draw(self.phase, models, text_sources.place(self.phase, models, None), wheels)

    def folders(self, models: Path, given: Path | None) -> tuple[Path, Path]:
        """As Recipe.folders."""
        return init.place(self.phase, models), text_sources.place(self.phase, models, given)

    def preflight(self, model_dir: Path, data_dir: Path) -> None:
        """As Recipe.preflight; prepared blocks are compared with their digests."""
        if not prepared.is_prepared(data_dir):
            super().preflight(model_dir, data_dir)
            init.check_text(self.phase, model_dir, data_dir)
            return
        if not model_dir.is_dir():
            raise UserError(f"{model_dir}: no model; run `trainlab fetch` with the same --models")
        stored.opened(data_dir, self.phase).verify()

    def origin(self, model_dir: Path, data_dir: Path) -> dict[str, dict[str, Any]]:
        """As Recipe.origin; the digest of an index covers its shards, whose digests stand in it."""
        if not prepared.is_prepared(data_dir):
            return super().origin(model_dir, data_dir)
        index = data_dir / prepared.INDEX
        facts = {key: files.read_json(index).get(key) for key in ("blocks", "tokens", "documents")}
        return {
            "model": dict(files.read_json(model_dir / "source.json")),
            "data": {"source": self.phase.data.source, "sha256": files.sha256(index), **facts},
        }

    def _blocks(self, tokenizer: Any, data_dir: Path, progress: Progress) -> "Blocks":
        if not prepared.is_prepared(data_dir):
            return super()._blocks(tokenizer, data_dir, progress)
        blocks = stored.load(data_dir, self.phase, tokenizer, init.architecture(self.phase).vocab)
        progress.say(f"prepared {blocks.sentence()}")
        return blocks


class Preferences(Language):
    """The parent's model, preference pairs; judged by how far it moved from its parent, pair by pair."""

    phase: DpoPhase

    def rows(self, data_dir: Path) -> tuple[list[Any], list[Any]]:
        """As Language.rows, each row with `rejected`."""
        return pairs.load(self.phase, data_dir)

    def _scores(self, model: Any, tokenizer: Any, heldout: Any) -> Scores:
        """As Language._scores; besides, the log-probability of each chosen and rejected answer, in nats, EOS included."""
        from trainlab import dist, evaluate

        scores = super()._scores(model, tokenizer, heldout)
        own = heldout[dist.rank() :: dist.world_size()]
        rejected = [{**row, "answer": row["rejected"]} for row in own]
        lost = evaluate.losses(model, tokenizer, self.phase, rejected)
        found = {row["id"]: -mean * count for row, (mean, count) in zip(own, lost, strict=True)}
        known = {key: value for part in dist.gather(found) for key, value in part.items()}
        for item in scores["items"]:
            item["chosen_logp"] = -item["loss"] * item["tokens"]
            item["rejected_logp"] = known[item["id"]]
        return scores

    def decide(self, before: Scores, after: Scores) -> dict[str, Any]:
        """As Recipe.decide: the margin of each pair is beta x (how much more the chosen gained than the rejected)."""
        from trainlab import answer_gate
        from trainlab.paired_bootstrap import SAME, compare

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
