"""A phase by its recipe: each kind has the sections that its recipe reads, and no others; with `resources:`, `needs:` and `serve:`."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from trainlab.config import inputs, judging, methods
from trainlab.config.rule import value
from trainlab.config.types import Bytes, Cpu, Name, Strict


class Resources(Strict):
    """Pods of the job: one master and nodes-1 workers, all with the same resources."""

    nodes: int = Field(1, ge=1, le=512, description="Pods of the job, including the master.")
    processes_per_node: int = Field(1, ge=1, le=64, description="Ranks per pod; with GPUs, one per GPU.")
    gpus_per_node: int = Field(0, ge=0, le=64, description="GPUs per pod; 0 trains on the CPU.")
    cpu: Cpu = Field("1", description="CPU request per pod, in cores such as 4, 0.5 or 500m.")
    memory: Bytes = Field("4Gi", description="Memory request and limit per pod, such as 512Mi or 8Gi.")
    shared_memory: Bytes = Field("1Gi", description="Size of /dev/shm, which counts toward memory, such as 1Gi.")
    timeout_minutes: int = Field(120, ge=1, description="The job is stopped and marked failed after this time.")
    restarts: int = Field(3, ge=0, le=100)
    """How often a job that lost a rank, pod or node starts again by itself, from its last complete checkpoint."""


class Needs(Strict):
    """What the phase needs of a site; it changes nothing that is trained."""

    gpu_model: str = ""
    """GPU that `trainlab plan` computes with where neither --gpu nor a node selector names one, such as L40S; places
    nothing."""
    models: Bytes = Field("20Gi", description="Size of the model volume where site.storage.models.size is empty.")
    runs: Bytes = Field("20Gi", description="Size of the run volume where site.storage.runs.size is empty.")


class Serve(Strict):
    """The inference server."""

    runtime: str  # each kind below lists its runtimes
    cpu: Cpu = Field("1", description="CPU request of the server, in cores such as 4, 0.5 or 500m.")
    memory: Bytes = Field("4Gi", description="Memory request and limit of the server, such as 512Mi or 8Gi.")
    gpus: int = Field(0, ge=0, le=8, description="GPUs of the server.")
    hours: int = Field(0, ge=0, le=8760)
    """Hours from its promotion after which the served model is taken down, within ten minutes; 0 serves without end. A
    further promotion begins them anew."""
    max_tokens: int = Field(256, ge=1, le=32768)
    """Longest answer, in tokens; a client that asks for more gets as many (finish_reason length), and GET /v1/models
    names it. vLLM gives no longer one than evaluate.max_new_tokens, which stands in the run's generation_config.json."""
    max_concurrency: int = Field(8, ge=1, le=1024)
    """Requests processed at once; at our own chat server by each model, as one batch. At a chat model 64 more wait in
    line, at an image classifier none; any more get 429."""


SERVED: Any = Field(
    None, description="What the served model computes in; null is model.dtype, in which the gate scored it."
)


MAX_ADAPTERS = (
    "With adapters, at our own chat server: how many adapters of other promoted runs on the volume it keeps in memory, "
    "beside tuned; the one that was asked longest ago makes room. 0 answers as base and tuned alone."
)


class OwnServe(Serve):
    """The inference server of models that only our own server can serve."""

    runtime: Literal["trainlab"] = Field("trainlab", description="trainlab: our own CPU server for base and tuned.")


class TextServe(OwnServe):
    """Our own server of a language model."""

    dtype: Literal["float32", "bfloat16"] | None = SERVED


class OwnedServe(TextServe):
    """Our own server of a chat model with an adapter for each owner."""

    max_adapters: int = Field(64, ge=1, le=1024, description=MAX_ADAPTERS)


class AnswerServe(Serve):
    """The inference server of a chat model."""

    dtype: Literal["float32", "bfloat16"] | None = SERVED

    runtime: Literal["trainlab", "vllm"] = "trainlab"
    """trainlab: our own CPU server for base and tuned; vllm: vLLM's image, on GPUs, or on CPU with gpus 0, which serves
    both for a run with adapters, and one of them for a model that was trained whole."""
    weights: Literal["tuned", "base"] = "tuned"
    """Which model vLLM answers as after a training of the whole model, as it has room for one: base is the model before
    the training, for comparison, until it is tuned again. Neither change trains anything."""
    args: tuple[str, ...] | None = None
    """Further arguments of vLLM, such as --quantization=fp8; they come last, so that they win over the chart's own.
    `trainlab plan` counts without them."""
    max_adapters: int = Field(
        16,
        ge=0,
        le=1024,
        description=MAX_ADAPTERS,
    )


NOT_TRAINING = ("title", "questions", "needs", "serve", "resources.restarts", "train.resume_from")
"""Keys of a phase that do not change what is trained, and so do not change the name of its run either."""


OPTIONS = (
    *("train.tf32", "train.dataloader_workers", "train.save_final_model", "train.resume_from"),
    *("stage.compile_mode", "data.validation"),
)
"""Keys that change nothing until they are set; manifest and report name those that are."""


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
    seed: int = Field(42, ge=0, lt=2**32, description="Seed for everything random.")  # numpy takes no larger one
    model: inputs.Model
    data: inputs.Data
    train: methods.Train = methods.Train()
    resources: Resources = Resources()
    needs: Needs = Needs()
    evaluate: judging.Evaluate = judging.Evaluate()
    gate: judging.Gate
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
    def stage_block(self) -> methods.Stage | None:
        """The section `stage:`; None for a standalone phase."""
        return getattr(self, "stage", None)

    @property
    def set_aside(self) -> float:
        """Share of the training rows that validates: none where data.validation names rows of their own."""
        return 0.0 if getattr(self.data, "validation", None) else self.train.validation_fraction

    @property
    def options(self) -> dict[str, Any]:
        """Those of OPTIONS that are set: key -> value."""
        content = {"phase": self.model_dump(mode="json")}
        values = {key: value(content, f"phase.{key}") for key in OPTIONS}
        return {key: set_to for key, set_to in values.items() if set_to is not None}

    @property
    def parent(self) -> str:
        """The stage whose model this one continues from; empty if there is none."""
        return getattr(self.stage_block, "parent", "")

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks of `evaluate.tasks`; none if the model is not a language model."""
        return getattr(self.evaluate, "tasks", ())

    @property
    def adapter_rank(self) -> int:
        """Rank of the adapters; 0 if the model's own weights are trained."""
        return getattr(getattr(self, "lora", None), "rank", 0)


class ResnetPhase(Phase):
    """An image classifier from scratch."""

    protocol: ClassVar[Protocol] = "v2"

    recipe: Literal["resnet"] = Field(description="resnet: image classifier from scratch.")
    model: inputs.NetworkModel
    data: inputs.ImageData
    train: methods.BestTrain = methods.BestTrain()
    vision: methods.Vision = methods.Vision()
    gate: judging.ImageGate = judging.ImageGate()
    serve: OwnServe = OwnServe()


class LanguagePhase(Phase):
    """A language model."""

    model: inputs.LanguageModel
    train: methods.AdamTrain = methods.AdamTrain()
    evaluate: judging.LanguageEvaluate = judging.LanguageEvaluate()
    questions: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ()
    """Questions to ask (recipes cpt, pretrain: texts to continue) before and after training for demo_outputs/ and the
    report."""

    @property
    def recomputes(self) -> bool:
        """True if the activations of the trained layers are computed again in the backward pass, not kept."""
        return bool(self.train.gradient_checkpointing)


class TextPhase(LanguagePhase):
    """A language model of running text, which needs no chat template."""

    data: inputs.TextData
    train: methods.BatchTrain = methods.BatchTrain()
    text: inputs.Text = inputs.Text()
    gate: judging.TextGate = judging.TextGate()
    serve: TextServe = TextServe()


class CptPhase(TextPhase):
    """Continued pre-training."""

    recipe: Literal["cpt"] = Field(description="cpt: continued pre-training on running text.")
    unfreeze: methods.Unfreeze = methods.Unfreeze()
    text: inputs.TunedText = inputs.TunedText()


class PretrainPhase(TextPhase):
    """Pre-training, the first stage."""

    recipe: Literal["pretrain"]
    """pretrain: a stage, pre-training on running text from random weights."""
    model: inputs.RandomModel
    text: inputs.PretrainText = inputs.PretrainText()
    stage: methods.PretrainStage = methods.PretrainStage()


class ChatPhase(LanguagePhase):
    """A language model that answers questions."""

    data: inputs.ChatData
    evaluate: judging.AnswerEvaluate = judging.AnswerEvaluate()


class SftPhase(ChatPhase):
    """Supervised fine-tuning, alone or as a stage."""

    recipe: Literal["sft"]
    """sft: supervised fine-tuning of the last layers or of adapters; in a stage, of all layers or of adapters."""
    model: inputs.TunedModel
    data: inputs.AnswerData
    evaluate: judging.TaughtEvaluate = judging.TaughtEvaluate()
    unfreeze: methods.Unfreeze = methods.Unfreeze()
    lora: methods.Lora = methods.Lora()
    stage: methods.AnswerStage | None = Field(None, description="Omitted for a standalone phase.")
    train: methods.AnswerTrain = methods.AnswerTrain()
    gate: judging.AnswerGate = judging.AnswerGate()
    serve: AnswerServe = AnswerServe()

    @property
    def recomputes(self) -> bool:
        """As asked; else where a tied head, alone with some layers, makes the gradient flow through all of them."""
        wish = self.train.gradient_checkpointing
        tied = self.unfreeze.tie_word_embeddings and not self.lora.rank and not self.stage
        return tied if wish is None else wish


class DpoPhase(ChatPhase):
    """Preference tuning (Rafailov et al., arXiv 2305.18290), a stage."""

    recipe: Literal["dpo"] = Field(description="dpo: a stage, preference tuning.")
    model: inputs.ParentModel
    data: inputs.PairData
    train: methods.BatchTrain = methods.BatchTrain()
    stage: methods.PairStage
    gate: judging.PairGate = judging.PairGate()
    serve: AnswerServe = AnswerServe()


class AdaptersPhase(ChatPhase):
    """Many adapters in one job: each owner's facts become an adapter of its own."""

    recipe: Literal["adapters"]
    """adapters: one LoRA adapter an owner, trained together on one frozen model."""
    data: inputs.OwnedData
    lora: methods.OwnedLora = methods.OwnedLora()
    train: methods.OwnedTrain = methods.OwnedTrain()
    gate: judging.OwnedGate = judging.OwnedGate()
    serve: OwnedServe = OwnedServe()


BatchPhase = SftPhase | CptPhase | PretrainPhase | DpoPhase
"""Kinds whose trainer is Hugging Face's."""


AnyPhase = Annotated[
    SftPhase | AdaptersPhase | CptPhase | PretrainPhase | DpoPhase | ResnetPhase,
    Field(discriminator="recipe", description="What is trained, e.g. values/survival.yaml."),
]
PHASES: Mapping[str, type[Phase]] = {
    "sft": SftPhase,
    "adapters": AdaptersPhase,
    "cpt": CptPhase,
    "pretrain": PretrainPhase,
    "dpo": DpoPhase,
    "resnet": ResnetPhase,
}
"""Recipe -> the kind of its phases."""
