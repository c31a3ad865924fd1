"""The hooks of recipe pretrain; found by recipes.of. Imports torch only where it is needed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab import files
from trainlab.config import PretrainPhase
from trainlab.data import corpus
from trainlab.data.prepare import blocks as prepared
from trainlab.models import architectures
from trainlab.progress import Progress
from trainlab.recipes.cpt.cpt_recipe import CptRecipe
from trainlab.recipes.pretrain import first_step, random_weights, stored_blocks

if TYPE_CHECKING:
    from trainlab.data.pack import Blocks


class PretrainRecipe(CptRecipe):
    """Weights drawn at random in the model volume; running text, or blocks of tokens prepared beforehand."""

    phase: PretrainPhase

    def fetch(self, models: Path, wheels: Path | None) -> Path:
        """As Recipe.fetch: the text if it is on a hub, its blocks if text.prepare asks for them, tokenizer, random weights."""
        corpus.fetch(self.phase, models)
        first_step.prepare_text(self.phase, models, wheels)
        return random_weights.draw(self.phase, models, corpus.place(self.phase, models, None), wheels)

    def folders(self, models: Path, given: Path | None) -> tuple[Path, Path]:
        """As Recipe.folders."""
        return architectures.random_init_dir(self.phase, models), corpus.place(self.phase, models, given)

    def preflight(self, model_dir: Path, data_dir: Path) -> None:
        """As Recipe.preflight; the tokenizer must have been trained on this text."""
        super().preflight(model_dir, data_dir)
        if not prepared.is_prepared(data_dir):
            random_weights.check_text(self.phase, model_dir, data_dir)

    def check_data(self, data_dir: Path) -> None:
        """As Language.check_data; prepared blocks are verified against their digests."""
        if prepared.is_prepared(data_dir):
            stored_blocks.opened(data_dir, self.phase).verify()
        else:
            super().check_data(data_dir)

    def data_origin(self, data_dir: Path) -> dict[str, Any]:
        """As Language.data_origin; the digest of an index covers its shards, whose digests it contains."""
        if not prepared.is_prepared(data_dir):
            return super().data_origin(data_dir)
        index = data_dir / prepared.INDEX
        facts = {key: files.read_json(index).get(key) for key in ("blocks", "tokens", "documents")}
        return {"source": self.phase.data.source, "sha256": files.sha256(index), **facts}

    def _blocks(self, tokenizer: Any, data_dir: Path, progress: Progress) -> "Blocks":
        if not prepared.is_prepared(data_dir):
            return super()._blocks(tokenizer, data_dir, progress)
        blocks = stored_blocks.load(data_dir, self.phase, tokenizer, architectures.of_phase(self.phase).vocab)
        progress.say(f"prepared {blocks.sentence()}")
        return blocks
