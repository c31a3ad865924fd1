"""What PyTorch keeps of the forward pass until the backward pass, by how the weights are trained; used by device_memory.

Counted tensor by tensor: every operation of a decoder layer of transformers that autograd keeps an operand of, with its width. Eager
counts equal what `torch.autograd.graph.saved_tensors_hooks` sees (tests). One of two compiled layers was measured on a GPU
(docs/evidence/benchmarks.md, One GPU). Tensors of one number per token and head are left out.
"""

from trainlab.models.architectures import Architecture
from trainlab.plan.devices import Device
from trainlab.plan.job import Job

FLOAT32, HALF = 4, 2


def activation_bytes(job: Job, arch: Architecture, device: Device, tokens: float) -> float:
    """Bytes that one rank keeps for `tokens` tokens; with checkpointing each layer's input, and all of one layer."""
    layers, each = job.backward_layers, _layer(job, arch, device)
    if job.checkpointing:
        return tokens * (_stream(job, device) * arch.hidden * layers + each)
    return tokens * each * layers


def autocast_copies(job: Job, device: Device, trained: float) -> float:
    """Bytes of the copies that autocast makes of float32 weights; it keeps them until the backward pass is over."""
    return trained * HALF if _autocast(job, device) else 0.0


def _narrow(job: Job, device: Device) -> bool:
    """True if the layers compute in half precision."""
    return not device.is_cpu and job.precision != "fp32"


def _autocast(job: Job, device: Device) -> bool:
    """True if they do while the trained weights are float32; FSDP2 gathers them in half."""
    return _narrow(job, device) and job.state_bytes >= 16 and not job.sharded


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
    kept = computed * (2 * queries + 2 * keys)  # queries, keys, values and the output of attention
    if job.compiled and job.trainable != "lora":
        # Element-wise operations are computed again, and what the matrices read is kept once.
        return kept + arch.norms * stream * hidden + 2 * computed * hidden + 3 * computed * arch.intermediate
    copied = queries if arch.fused else 0  # of attention's output: Phi-3's queries lie otherwise in memory
    normalized = hidden * arch.norms + (queries + keys if arch.qk_norm else 0)
    kept += FLOAT32 * normalized  # norms compute in float32
    kept += 3 * computed * arch.intermediate  # gate, its activation, up
    if job.trainable == "lora":
        read = inputs * hidden + queries + arch.intermediate
        kept += computed * job.lora_rank * (inputs + 2)
        if job.lora_dropout:
            mask = FLOAT32 if device.is_cpu else 1
            return kept + read * (computed + mask)
        shared = 2 * hidden + arch.intermediate + copied  # float32 adapters read what norms and attention gave
        return kept + computed * (read if narrow else shared)
    kept += stream * normalized  # for the gradient of the norms' weights
    kept += computed * (arch.intermediate + copied)  # gate times up, which the last matrix reads
    copies = inputs if narrow and stream == FLOAT32 else 2  # autocast copies for each matrix what a norm gave
    return kept + computed * copies * hidden
