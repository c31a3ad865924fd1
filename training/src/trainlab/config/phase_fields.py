"""The fields of `phase:`; what may not go together in one is in rules.py, and Phase puts both together."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trainlab.config.section_stage import Stage
from trainlab.config.section_text import Text
from trainlab.config.section_vision import Vision
from trainlab.config.sections import Data, Evaluate, Gate, Lora, Model, Resources, Serve, Train, Unfreeze
from trainlab.config.strict import MOST_EXACT, Name, Strict

NOT_TRAINING = ("title", "questions")
"""Blocks of a phase that change nothing of what is trained, and so not the name of its run either.

`serve` trains nothing, but KServe 0.15 takes a changed ServingRuntime only when its InferenceService is made anew.
"""


class PhaseFields(Strict):
    """Every key of a phase with its type, bounds and default."""

    name: Name = Field(description="Short name of the phase.")
    recipe: Literal["sft", "resnet", "cpt", "pretrain", "dpo"] = Field(
        description="The algorithm: sft = supervised fine-tuning of the last layers or of adapters, "
        "resnet = image classifier from scratch, cpt = continued pre-training on running text, pretrain = the same from "
        "random weights, dpo = preferences."
    )
    title: str = Field(description="One line for people.")
    seed: int = Field(42, ge=0, le=MOST_EXACT, description="Seed of everything random.")
    model: Model
    data: Data
    unfreeze: Unfreeze = Unfreeze()
    lora: Lora = Lora()
    vision: Vision = Vision()
    text: Text = Text()
    stage: Stage = Stage()
    train: Train = Train()
    resources: Resources = Resources()
    evaluate: Evaluate = Evaluate()
    gate: Gate = Gate()
    serve: Serve = Serve()
    questions: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = Field(
        (),
        description="Questions asked (recipe cpt: texts continued) before and after training for demo_outputs/ and the report.",
    )

    @property
    def world_size(self) -> int:
        """Ranks of the whole job."""
        return self.resources.nodes * self.resources.processes_per_node

    @property
    def effective_batch(self) -> int:
        """Rows per optimiser step over all ranks."""
        return self.train.batch_size * self.train.gradient_accumulation * self.world_size
