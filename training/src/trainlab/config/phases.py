"""A phase by its recipe: each kind has the sections that its recipe reads, and no others."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from trainlab.config.section_data import AnswerData, ChatData, Data, ImageData, PairData, TextData
from trainlab.config.section_model import LanguageModel, Model, NetworkModel, ParentModel, RandomModel, TunedModel
from trainlab.config.section_pods import AnswerServe, Needs, OwnServe, Resources, Serve, TextServe
from trainlab.config.section_scores import (
    AnswerEvaluate,
    AnswerGate,
    Evaluate,
    Gate,
    ImageGate,
    LanguageEvaluate,
    PairGate,
    TaughtEvaluate,
    TextGate,
)
from trainlab.config.section_stage import AnswerStage, PairStage, PretrainStage, Stage
from trainlab.config.section_text import PretrainText, Text, TunedText
from trainlab.config.section_train import AdamTrain, AnswerTrain, Lora, Train, Unfreeze
from trainlab.config.section_vision import Vision
from trainlab.config.strict import MOST_EXACT, Name, Strict

NOT_TRAINING = ("title", "questions", "needs", "serve", "resources.restarts")
"""Keys of a phase that do not change what is trained, and so do not change the name of its run either."""


Protocol = Literal["openai", "v2"]
"""The API that serves a model: OpenAI's, or the Open Inference Protocol V2."""


class Phase(Strict):
    """A training demo in one section; the hash of what is trained names the run (loading.phase_hash).

    A kind narrows the sections that every phase has, and adds those that only its recipe reads.
    """

    protocol: ClassVar[Protocol] = "openai"

    name: Name = Field(description="Short name of the phase.")
    recipe: str
    title: str = Field(max_length=200, description="One-line title for display.")
    seed: int = Field(42, ge=0, le=MOST_EXACT, description="Seed for everything random.")
    model: Model
    data: Data
    train: Train = Train()
    resources: Resources = Resources()
    needs: Needs = Needs()
    evaluate: Evaluate = Evaluate()
    gate: Gate
    serve: Serve

    @property
    def world_size(self) -> int:
        """Ranks in the whole job."""
        return self.resources.nodes * self.resources.processes_per_node

    @property
    def effective_batch(self) -> int:
        """Rows per optimizer step across all ranks."""
        return self.train.batch_size * self.train.gradient_accumulation * self.world_size

    @property
    def stage_block(self) -> Stage | None:
        """The section `stage:`; None for a standalone phase."""
        return None

    @property
    def parent(self) -> str:
        """The stage whose model this one continues from; empty if there is none."""
        return ""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks of `evaluate.tasks`; none if the model is not a language model."""
        return ()

    @property
    def adapter_rank(self) -> int:
        """Rank of the adapters; 0 if the model's own weights are trained."""
        return 0


class ResnetPhase(Phase):
    """An image classifier from scratch."""

    protocol: ClassVar[Protocol] = "v2"

    recipe: Literal["resnet"] = Field(description="resnet: image classifier from scratch.")
    model: NetworkModel
    data: ImageData
    vision: Vision = Vision()
    gate: ImageGate = ImageGate()
    serve: OwnServe = OwnServe()


class LanguagePhase(Phase):
    """A language model."""

    model: LanguageModel
    train: AdamTrain = AdamTrain()
    evaluate: LanguageEvaluate = LanguageEvaluate()
    questions: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = Field(
        (),
        description="Questions to ask (recipes cpt, pretrain: texts to continue) before and after training for "
        "demo_outputs/ and the report.",
    )

    @property
    def tasks(self) -> tuple[str, ...]:
        """As Phase.tasks."""
        return self.evaluate.tasks


class TextPhase(LanguagePhase):
    """A language model of running text, which needs no chat template."""

    data: TextData
    text: Text = Text()
    gate: TextGate = TextGate()
    serve: TextServe = TextServe()


class CptPhase(TextPhase):
    """Continued pre-training."""

    recipe: Literal["cpt"] = Field(description="cpt: continued pre-training on running text.")
    unfreeze: Unfreeze = Unfreeze()
    text: TunedText = TunedText()


class PretrainPhase(TextPhase):
    """Pre-training, the first stage."""

    recipe: Literal["pretrain"] = Field(
        description="pretrain: a stage, pre-training on running text from random weights."
    )
    model: RandomModel
    text: PretrainText = PretrainText()
    stage: PretrainStage = PretrainStage()

    @property
    def stage_block(self) -> PretrainStage:
        """As Phase.stage_block."""
        return self.stage


class ChatPhase(LanguagePhase):
    """A language model that answers questions."""

    data: ChatData
    evaluate: AnswerEvaluate = AnswerEvaluate()


class SftPhase(ChatPhase):
    """Supervised fine-tuning, alone or as a stage."""

    recipe: Literal["sft"] = Field(
        description="sft: supervised fine-tuning of the last layers or of adapters; in a stage, of all layers or of adapters."
    )
    model: TunedModel
    data: AnswerData
    evaluate: TaughtEvaluate = TaughtEvaluate()
    unfreeze: Unfreeze = Unfreeze()
    lora: Lora = Lora()
    stage: AnswerStage | None = Field(None, description="Omitted for a standalone phase.")
    train: AnswerTrain = AnswerTrain()
    gate: AnswerGate = AnswerGate()
    serve: AnswerServe = AnswerServe()

    @property
    def stage_block(self) -> AnswerStage | None:
        """As Phase.stage_block."""
        return self.stage

    @property
    def parent(self) -> str:
        """As Phase.parent."""
        return self.stage.parent if self.stage else ""

    @property
    def adapter_rank(self) -> int:
        """As Phase.adapter_rank."""
        return self.lora.rank


class DpoPhase(ChatPhase):
    """Preference tuning (Rafailov et al., arXiv 2305.18290), a stage."""

    recipe: Literal["dpo"] = Field(description="dpo: a stage, preference tuning.")
    model: ParentModel
    data: PairData
    stage: PairStage
    gate: PairGate = PairGate()
    serve: TextServe = TextServe()

    @property
    def stage_block(self) -> PairStage:
        """As Phase.stage_block."""
        return self.stage

    @property
    def parent(self) -> str:
        """As Phase.parent."""
        return self.stage.parent


AnyPhase = Annotated[
    SftPhase | CptPhase | PretrainPhase | DpoPhase | ResnetPhase,
    Field(discriminator="recipe", description="What is trained, e.g. values/survival.yaml."),
]
PHASES: Mapping[str, type[Phase]] = {
    "sft": SftPhase,
    "cpt": CptPhase,
    "pretrain": PretrainPhase,
    "dpo": DpoPhase,
    "resnet": ResnetPhase,
}
"""Recipe -> the kind of its phases."""
