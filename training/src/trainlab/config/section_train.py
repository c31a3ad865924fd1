"""The sections `unfreeze:`, `lora:` and `train:`: which weights are trained, and how."""

from pydantic import Field

from trainlab.config.strict import Strict


class Unfreeze(Strict):
    """Which weights are trained."""

    layers: int = Field(2, ge=1, description="Number of decoder layers to train, counted from the last.")
    lm_head: bool = Field(True, description="Also train the language-model head.")
    tie_word_embeddings: bool = Field(
        False,
        description="Keep head and input embedding tied (one tensor) while the head is trained, as usual: the gradient "
        "then flows through every layer. false gives the head its own weights.",
    )


class Lora(Strict):
    """Low-rank adapters on frozen weights (Hu et al., arXiv 2106.09685); with a rank they replace `unfreeze`."""

    rank: int = Field(
        0,
        ge=0,
        le=512,
        description="Rank of the adapters; 0 trains what `unfreeze` names, more trains only adapters and saves them as "
        "lora_adapter/ (512 is the maximum that vLLM serves).",
    )
    alpha: int = Field(16, ge=1, le=4096, description="The adapters' output is scaled by alpha / rank.")
    layers: int | None = Field(
        None, ge=1, description="Put adapters only in this many last decoder layers; null puts them in every layer."
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of an adapter's inputs dropped while training.")
    target_modules: tuple[str, ...] = Field(
        (), description="Names of the linear layers that get an adapter, e.g. q_proj; empty means all but the head."
    )


class Train(Strict):
    """Optimization."""

    epochs: float = Field(3, gt=0, le=100, description="Passes over the training rows.")
    batch_size: int = Field(8, ge=1, le=4096, description="Rows per process and forward pass.")
    gradient_accumulation: int = Field(1, ge=1, le=1024, description="Forward passes per optimizer step.")
    learning_rate: float = Field(5e-5, gt=0, le=1, description="Peak learning rate.")
    warmup_fraction: float = Field(
        0.05, ge=0, lt=1, description="Share of the optimizer steps in which the rate rises."
    )
    weight_decay: float = Field(0.0, ge=0, le=1, description="Weight decay of the optimizer.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are clipped to this norm.")
    validation_fraction: float = Field(
        0.05,
        ge=0,
        lt=0.5,
        description="Share of the training questions (whole questions) set aside to choose the best checkpoint.",
    )
    checkpoints: int = Field(2, ge=1, le=100, description="Checkpoints (and validations) spread evenly over the run.")
    keep_checkpoints: int = Field(
        2, ge=1, le=10, description="Newest checkpoints kept on the volume until the run is complete."
    )
    memory_snapshot: bool = Field(
        False,
        description="Save PyTorch's record of rank 0's GPU allocations during training as memory_snapshot.pickle (GPUs "
        "only).",
    )


class AdamTrain(Train):
    """Optimization of a language model, by AdamW."""

    adam_beta1: float | None = Field(None, ge=0, lt=1, description="AdamW's decay of the mean gradient; null is 0.9.")
    adam_beta2: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="AdamW's decay of the mean squared gradient; null is 0.999. Pre-training often takes 0.95.",
    )


class AnswerTrain(AdamTrain):
    """Optimization on questions and answers."""

    packing: bool = Field(
        False,
        description="Pack each training sequence up to model.max_length with whole rows that do not attend to each "
        "other, so that nothing is padding; batch_size then counts packed sequences.",
    )
    cache_frozen_activations: bool = Field(
        False,
        description="Run the frozen layers once over all rows and keep their outputs in memory (rows x tokens x hidden "
        "size): the same losses, faster epochs.",
    )
