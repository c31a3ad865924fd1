"""What the planner knows about a training job, wherever it came from; estimate and checks take only this.

`source.job_of` makes one from a values file; tests make them from their own numbers.
"""

import re
from dataclasses import dataclass
from typing import Literal

from trainlab.config.types import SUFFIX
from trainlab.errors import UserError
from trainlab.models.architectures import Architecture

Trainable = Literal["all", "top", "lora"]
RESERVED_CORES, RESERVED_BYTES = 1.0, 2 * 2**30
"""Of a node for its system and its DaemonSets (GPU operator, network, monitoring): assumed. OpenShift reserves 0.5 cores and 1 GiB itself."""
FORM = re.compile(
    r"(?P<cores>[0-9]+)\s*(?:v?cpus?),\s*(?P<memory>[0-9.]+)\s*(?P<unit>[GT]i?)B?(?:,\s*(?P<gpus>[0-9]+)x(?P<gpu>[\w-]+))?",
    re.I,
)


@dataclass(frozen=True)
class Node:
    """Cores, bytes of memory, and GPUs with their name ("" if nothing is said of them)."""

    cores: float
    memory: float
    gpus: int = 0
    gpu: str = ""

    @property
    def free_cores(self) -> float:
        """Cores that pods may ask for."""
        return self.cores - RESERVED_CORES

    @property
    def free_memory(self) -> float:
        """Bytes that pods may ask for."""
        return self.memory - RESERVED_BYTES


def parse_node(text: str) -> Node:
    """Return the node of a text; a GB is 10^9 bytes, a GiB 2^30. Raises UserError with the form."""
    match = FORM.fullmatch(text.strip())
    if match is None:
        raise UserError(f"--node {text}: not a node; write it as 8cpu,32GB or 8cpu,32GB,1xL40S")
    unit = match["unit"][0].upper() + match["unit"][1:].lower()
    return Node(
        float(match["cores"]), float(match["memory"]) * SUFFIX[unit], int(match["gpus"] or 0), match["gpu"] or ""
    )


@dataclass(frozen=True)
class Volume:
    """One claim: size in bytes, None for an existing claim, and access mode."""

    name: str
    bytes: float | None
    access_mode: str


@dataclass(frozen=True)
class Job:
    """One training job; lengths in tokens, memory in bytes. None means unknown or not set."""

    name: str
    model: str
    arch: Architecture | None
    # what is trained
    trainable: Trainable = "all"
    top_layers: int = 0  # with "top", and with "lora" unless 0: this many last layers ...
    train_head: bool = False  # ... and the language-model head
    tie_word_embeddings: bool = False  # ... which stays tied to the input embedding
    lora_rank: int = 0
    lora_dropout: bool = False
    activations_cached: bool = False  # the frozen layers run once, not once per epoch
    from_scratch: bool = False
    reference: bool = False  # a second model on the device for a pass before training (DPO under FSDP)
    # data
    rows: int | None = None
    tokens_per_row: float | None = None
    max_length: int = 512
    packed: bool = False
    sequences: int = 1  # that a row is in memory: a preference pair is two
    unit: str = "token"  # what is counted: tokens of texts, or images
    # optimization
    epochs: float = 1
    batch: int = 8
    accumulation: int = 1
    learning_rate: float | None = None
    warmup_fraction: float = 0.0
    checkpoints: int | None = None
    keep_checkpoints: int = 2
    final_model: bool = False  # the last weights are a result as well
    keeps_best: bool = False  # the best weights so far are kept, in memory and in the checkpoints
    # numerics
    weight_bytes: int = 2  # of a weight in memory
    saved_bytes: int = 2  # of a trained weight on the volume
    served_bytes: int = 2  # of a weight in the server
    gradient_bytes: int = 2  # of a gradient that DDP sends; FSDP2's: REDUCED_BYTES
    precision: Literal["bf16", "fp32"] = "bf16"
    checkpointing: bool = False
    compiled_lengths: int = 0  # that batches are padded to, with a graph of the decoder layers for each
    autotuned: bool = False  # compiled in a mode that times kernels
    tf32: bool = False  # float32 matrix products
    chunked_loss: bool = False
    sharded: bool = False  # FSDP: weights, gradients and states sharded across the ranks
    # where
    nodes: int = 1
    devices_per_node: int = 1
    on_gpu: bool = True
    cores_per_pod: float = 1
    loaders: int = 0  # processes of each rank that make its batches
    shared_memory: float = 0
    memory_per_pod: float = 0
    timeout_seconds: float = float("inf")
    node: Node | None = None  # that a pod must fit
    # on the volumes
    volumes: tuple[Volume, ...] = ()
    stored_bytes: float = 2  # of a weight of the base model in the model volume
    model_bytes: float | None = None  # of all its files there, as the hub lists them
    data_bytes: float | None = 0  # of a data set that is fetched or put there; None if unknown
    text_bytes: float = 0  # of the text that the job makes the data set from; it stays there
    drawn_bytes: int = 4  # of a weight when it is drawn at random
    prepare_cores: float = 1  # of the Job that makes the data set of the text before GPUs are taken
    prepare_memory: float = 0
    stages_before: int = 0  # whose models are in the same run volume
    # the inference server
    serve_runtime: Literal["", "trainlab", "vllm"] = ""
    serve_gpus: int = 0
    serve_cores: float = 0
    serve_memory: float = 0
    serve_start_seconds: float = 300.0  # until the server's startup probe gives up
    serve_tokens: int = 0  # of the longest request with its answer
    serve_concurrency: int = 1  # requests that our own server answers in one batch
    serve_adapters: int = 0  # of other runs that it keeps
    serve_rank: int = 0  # of the largest adapter that it takes
    serve_max_lora_rank: int | None = None  # of vLLM, if it serves the job

    @property
    def world(self) -> int:
        """Ranks in the whole job."""
        return self.nodes * self.devices_per_node

    @property
    def arithmetic(self) -> str:
        """What matrices multiply in: bf16, fp32 or tf32."""
        return "tf32" if self.tf32 and self.precision == "fp32" else self.precision

    @property
    def effective_batch(self) -> int:
        """Rows per optimizer step across all ranks."""
        return self.batch * self.accumulation * self.world

    @property
    def compiled(self) -> bool:
        """True if each decoder layer is compiled."""
        return self.compiled_lengths > 0

    @property
    def graphs(self) -> int:
        """Graphs that are compiled: with adapters two for each length, for what the first layer reads needs no gradient."""
        return self.compiled_lengths * (2 if self.trainable == "lora" else 1)

    @property
    def padded_tokens(self) -> int:
        """Tokens of a step, across all ranks, if each sequence has the maximum length."""
        return self.effective_batch * self.sequences * self.max_length

    @property
    def backward_layers(self) -> int:
        """Layers that the gradient flows through: with a tied head the embedding is trained, so all of them."""
        if self.arch is None:
            return 0
        some = self.trainable == "top" or (self.trainable == "lora" and self.top_layers)
        if some and not (self.train_head and self.tie_word_embeddings):
            return min(self.top_layers, self.arch.layers)
        return self.arch.layers
