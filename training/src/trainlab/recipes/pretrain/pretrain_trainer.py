"""Pre-training from random weights: the recipe cpt with a curriculum of sequence lengths; called by pretrain_recipe.py.

The order of blocks never changes with the curriculum: a batch of blocks is cut into shorter sequences, so that each step
has the same number of tokens and a resumed run continues at the length it had reached.
"""

from functools import partial
from typing import Any

from trainlab.config.methods import CurriculumStep, PretrainStage
from trainlab.recipes.cpt import cpt_trainer


class CurriculumTrainer(cpt_trainer.BlockTrainer):
    """Trains on blocks cut to the length of the step; validates on whole blocks."""

    def __init__(self, *args: Any, curriculum: tuple[CurriculumStep, ...], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._curriculum = curriculum

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's; the count of predicted tokens follows the cut, since a sequence's first one is given."""
        if model.training and self._curriculum:
            length = length_at(self._curriculum, self.state.global_step, self.state.max_steps)
            whole = inputs["input_ids"].shape[1]
            inputs = {name: tensor.view(-1, length) for name, tensor in inputs.items()}
            if kwargs.get("num_items_in_batch") is not None:
                kwargs["num_items_in_batch"] = (
                    kwargs["num_items_in_batch"] * (whole // length * (length - 1)) / (whole - 1)
                )
        return super().compute_loss(model, inputs, *args, **kwargs)


def length_at(curriculum: tuple[CurriculumStep, ...], step: int, total: int) -> int:
    """Return the sequence length of the optimizer step `step` (from 0) of `total`."""
    done = 0.0
    for part in curriculum:
        done += part.share
        if step < round(done * total):
            return part.length
    return curriculum[-1].length


def train(job: cpt_trainer.TextJob) -> dict[str, Any]:
    """Train, leave best_model/ and training_history.json; return the summary with the curriculum."""
    stage = job.phase.stage_block
    curriculum = stage.curriculum if isinstance(stage, PretrainStage) else ()
    summary = cpt_trainer.train(job, partial(CurriculumTrainer, curriculum=curriculum))
    return {**summary, "curriculum": [part.model_dump() for part in curriculum]}
