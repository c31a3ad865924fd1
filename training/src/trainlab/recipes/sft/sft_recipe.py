"""The hooks of recipe sft; found by recipes.of. Imports torch only where it is needed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab.config import SftPhase
from trainlab.data import answer_forms, chat_rows, hub_rows, row_files
from trainlab.data.nearest import with_nearest
from trainlab.progress import Progress
from trainlab.recipes.base import Scores
from trainlab.recipes.language import Language

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class SftRecipe(Language):
    """Rows from JSON Lines, or from a hub; judged by the answers to held-out questions."""

    phase: SftPhase

    def rows(self, data_dir: Path) -> tuple[list[Any], list[Any]]:
        """As Language.rows, with the probes of the phase."""
        data = self.phase.data
        return chat_rows.load_train(data, data_dir), chat_rows.load_heldout(data, data_dir, self.phase.evaluate.probes)

    def fetch(self, models: Path, wheels: Path | None) -> Path:
        """As Recipe.fetch: the base model and, from a hub, the rows."""
        model = super().fetch(models, wheels)
        hub_rows.fetch(self.phase, models, model)
        return model

    def data_folder(self, models: Path, given: Path | None) -> Path:
        """As Language.data_folder; rows from a hub are where they were fetched to."""
        return row_files.folder(self.phase.data, models, given, fetched=hub_rows.place(self.phase, models))

    def data_origin(self, data_dir: Path) -> dict[str, Any]:
        """As Language.data_origin, with what is known of a hub's rows and, where facts are taught, which of the phase's questions
        are not."""
        found = super().data_origin(data_dir) | hub_rows.origin(self.phase, data_dir)
        if self.phase.data.taught:
            found["never_taught"] = chat_rows.never_taught(self.phase.questions, self.phase.data, data_dir)
        return found

    def _inputs(self, tokenizer: "PreTrainedTokenizerBase", data_dir: Path, progress: Progress) -> tuple[Any, Any]:
        rows, heldout = super()._inputs(tokenizer, data_dir, progress)
        begins = next((row["refusal"] for row in heldout if "refusal" in row), None)
        if begins:
            self._trained = sorted(
                {row["answer"] for row in rows if not answer_forms.is_refusal(row["answer"], begins)}
            )
        return rows, with_nearest(heldout, rows)

    def decide(self, before: Scores, after: Scores) -> dict[str, Any]:
        """As Recipe.decide."""
        from trainlab.evaluation import answer_gate

        return answer_gate.decide(before, after, self.phase)
