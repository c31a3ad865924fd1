"""The memory of one device: while it trains, and before that while the model is sharded; used by estimate.

Under FSDP2 the moment before the first step can be the fullest: models/layers.py makes the whole model float32 on each GPU,
and accelerate keeps a reference to all of it until each rank has its part (`original_sd` in `fsdp2_prepare_model`).
"""

from dataclasses import dataclass, fields

from trainlab.models.architectures import Architecture
from trainlab.plan.activations import activation_bytes, autocast_copies
from trainlab.plan.devices import Device
from trainlab.plan.job import Job
from trainlab.plan.weights import parameters, trainable

CHUNK_TOKENS = 1024  # of a chunked loss head: logits exist for this many tokens at a time
LOGIT_BYTES = 10  # bf16 logits, their fp32 copy and its gradient: 2 + 4 + 4
CONTEXT_BYTES = {"gpu": 0.8e9, "cpu": 0.6e9}  # CUDA context with NCCL; Python with torch and transformers imported
POD_BYTES = 1.1e9
"""A pod without GPU has torchrun beside its ranks (0.3 GB), and pages of mapped programs (0.8 GB), which count towards its limit.

Measured on phase quick: with 0.2 GB left for them they were read from the disk all the time, and answers took up to ten times as long.
"""
MASTER_BYTES = 4  # of a trained weight, which models/layers.py keeps in float32
REDUCED_BYTES = 4
"""Of a gradient that FSDP2 accumulates and reduces: float32, whatever computes, which the engine asks for (`keep_digits`)."""


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
    whole, trained = parameters(job, arch), trainable(job, arch)
    shards = job.world if job.sharded else 1
    tokens = float(job.batch * job.sequences * job.max_length)
    logit_tokens = min(tokens, CHUNK_TOKENS) if job.chunked_loss else tokens
    processes = job.devices_per_node if device.is_cpu else 1  # ranks that share the pod's memory
    context = CONTEXT_BYTES["cpu" if device.is_cpu else "gpu"]
    cached = activation_cache(job, arch) if device.is_cpu else 0.0  # in the pod's memory, not the GPU's
    return Memory(
        weights=processes * (whole - trained) * job.weight_bytes / shards + _gathered(job, arch),
        states=processes * trained * job.state_bytes / shards,
        activations=processes * activation_bytes(job, arch, device, tokens),
        logits=processes * logit_tokens * arch.vocab * LOGIT_BYTES,
        context=processes * context + (POD_BYTES if device.is_cpu else 0.0),
        copies=processes * autocast_copies(job, device, trained),
        gradients=processes * _gradients(job, trained),
        cache=processes * cached,
        sharding=_sharding(job, whole) + context if job.sharded else 0.0,
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


def _sharding(job: Job, whole: int) -> float:
    """Bytes of weights on one GPU when the model is sharded, all of them float32.

    With a reference (DPO: TRL loads a second model, in the dtype of the first one, for the pass before training, and moves all
    of it to the GPU before it is sharded, `prepare_fsdp`) the trained model is there whole: it is sharded when training starts.
    """
    full = float(whole * MASTER_BYTES)
    return 2 * full if job.reference else full + full / job.world
