"""The arithmetic of the planner: a Job and a device in, a Plan (numbers only) out. Pure, a few microseconds.

Cost model: a matrix of P parameters costs 2P FLOP per token forward, 2P for the gradient of its input if the backward
pass goes through it, 2P for its own gradient if it is trained, 2P more if checkpointing recomputes it. The
head is never recomputed; the input embedding is a lookup and costs nothing. LoRA is 4P, full training 6P.

A step takes what its FLOP take, or what Python takes to start its kernels if that is longer, which the small batches of most phases
wait for (`dispatch`). test_plan_times.py holds the result against what was measured (docs/evidence/benchmarks.md, One GPU).

An image classifier (recipe resnet) has its own arithmetic at the end.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from trainlab.config import ResnetPhase
from trainlab.config.types import CIFAR10, DIGITS
from trainlab.models.architectures import Architecture
from trainlab.plan import units, volumes
from trainlab.plan.device_memory import (
    CONTEXT_BYTES,
    REDUCED_BYTES,
    Memory,
    Server,
    adapters,
    memory,
    parameters,
    server,
    trainable,
)
from trainlab.plan.devices import BF16_CAPABILITY, Device
from trainlab.plan.job import Job
from trainlab.plan.volumes import VolumeNeed

STORAGE = units.storage(units.DEFAULT_STORAGE)
LAUNCH = 47e-6
"""Seconds until a kernel is started: 45 to 49 microseconds on the host of an H200, in three models (lyrics, survival, gemma)."""
FROZEN, ADAPTED, TRAINED, OTHERS = 55, 190, 136, 150
"""Kernels of a micro-batch, counted: of a layer forward alone, with adapters and backward, trained and backward; and of the rest."""
COMPILE = 7.0
"""Seconds of a graph: each new length of a curriculum took 7.3 and 6.3 on the host of an H100."""
PRODUCTS, AUTOTUNE = 21, 3.0
"""Matrix products of a layer forward and backward, and the seconds in which a mode that times kernels tries each: assumed, not measured."""
IMAGE_KERNELS = 280
"""Of a batch of ResNet-18: 209 counted of forward and backward, the rest assumed of augmentation, clipping and optimizer."""


@dataclass(frozen=True)
class Schedule:
    """Optimizer steps and what happens at which of them."""

    steps: int
    steps_per_epoch: int
    warmup: int
    checkpoint_every: int  # at most; an evaluation
    tokens: float  # over the whole run, without padding
    tokens_per_step: float
    computed_per_step: float  # tokens, with the padding of compiled layers (engine/compiled.py)


@dataclass(frozen=True)
class Cost:
    """Work and time; FLOP across all devices, wall-clock seconds."""

    flop_per_token: float
    flop: float
    mfu: float
    compute_seconds: float  # per optimizer step, of the FLOP
    dispatch_seconds: float  # per optimizer step, until its kernels are started; beside the FLOP
    bytes_per_step: float  # sent by each rank
    network_seconds: float  # per optimizer step, without overlap
    seconds: float  # of all steps
    speed_up: float  # over one device
    load_seconds: float = 0.0  # until the base model is read
    checkpoints: int = 0  # that are written
    checkpoint_bytes: float = 0.0  # of each
    checkpoint_seconds: float = 0.0  # of all, that the training waits for
    graphs: int = 0  # that are compiled
    compile_seconds: float = 0.0  # of all graphs, assumed where a mode times kernels

    @property
    def step_seconds(self) -> float:
        """Seconds of an optimizer step on its device, before anything is sent."""
        return max(self.compute_seconds, self.dispatch_seconds)

    @property
    def total_seconds(self) -> float:
        """Seconds from the start to the last checkpoint, without downloads and scoring."""
        return self.load_seconds + self.compile_seconds + self.seconds + self.checkpoint_seconds


@dataclass(frozen=True)
class Plan:
    """Everything computed; parts are None if model, rows or tokens are unknown."""

    job: Job
    device: Device
    network: float  # bytes per second between nodes
    parameters: int | None
    trainable: int | None
    memory: Memory | None
    schedule: Schedule | None
    cost: Cost | None
    volumes: tuple[VolumeNeed, ...]  # of an unknown model none, or its own if the hub lists it
    server: Server | None
    storage: float = STORAGE  # bytes per second of the volumes


def estimate(job: Job, device: Device, network: float, storage: float = STORAGE) -> Plan:
    """Return the plan of `job` on `device`, nodes linked with `network`, volumes read and written with `storage` bytes per second."""
    when = schedule(job)
    arch = job.arch
    if arch is None:
        known = volumes.inputs(job, volumes.base_model(job), job.model_bytes) if job.model_bytes is not None else ()
        return Plan(job, device, network, None, None, None, when, None, known, None, storage)
    trained = trainable(job, arch)
    return Plan(
        job=job,
        device=device,
        network=network,
        parameters=parameters(job, arch),
        trainable=trained,
        memory=memory(job, arch, device),
        schedule=when,
        cost=_cost(job, arch, device, (network, storage), when, trained) if when else None,
        volumes=volumes.needs(job, arch, when.steps if when else None),
        server=server(job, arch, device),
        storage=storage,
    )


def schedule(job: Job) -> Schedule | None:
    """Return steps and their events as the Hugging Face trainer counts them, None without rows and lengths."""
    if not job.rows or not job.tokens_per_row:
        return None
    per_epoch_tokens = job.rows * job.tokens_per_row
    units = math.ceil(per_epoch_tokens / job.max_length) if job.packed else job.rows
    batches = math.ceil(units / (job.batch * job.world))
    per_epoch = math.ceil(batches / job.accumulation)
    steps = max(1, math.ceil(per_epoch * job.epochs))
    tokens = per_epoch_tokens * job.epochs
    return events(job, steps, per_epoch, tokens, tokens / steps)


def events(job: Job, steps: int, per_epoch: int, tokens: float, per_step: float) -> Schedule:
    """Return the schedule of this many steps with the warm-up, evaluations and checkpoints that the job asks for."""
    every = math.ceil(steps / job.checkpoints) if job.checkpoints else steps
    # Blocks of text are full; a row is padded only for layers that are compiled for one length.
    computed = float(job.padded_tokens) if job.compiled and not job.chunked_loss else per_step
    return Schedule(steps, per_epoch, math.ceil(job.warmup_fraction * steps), every, tokens, per_step, computed)


def flop_per_token(job: Job, arch: Architecture, length: float) -> float:
    """FLOP of one pass over one training token (only the part above cached layers)."""
    layer, deep = arch.layer_matrices, job.backward_layers
    forward_layers = deep if job.activations_cached else arch.layers
    own = {"all": arch.layers * layer, "top": job.top_layers * layer, "lora": adapters(job, arch)}[job.trainable]
    low_rank = 4.0 * adapters(job, arch) if job.trainable == "lora" else 0.0
    head = 2.0 * arch.head * (2 + (job.trainable == "all" or (job.trainable == "top" and job.train_head)))
    passes = forward_layers + deep * (1 + job.checkpointing)  # in units of 2 x layer
    # Attention scores: forward 1, backward 2, recomputation 1 (in units of one forward).
    scores = arch.attention_flops(length) * (forward_layers + deep * (2 + job.checkpointing))
    return 2.0 * layer * passes + 2.0 * own + low_rank + head + scores


def frozen_flop_per_token(job: Job, arch: Architecture, length: float) -> float:
    """FLOP of the one pass through the frozen layers that fills the cache; 0 without one."""
    if not job.activations_cached:
        return 0.0
    frozen = arch.layers - job.backward_layers
    return frozen * (2.0 * arch.layer_matrices + arch.attention_flops(length))


def ring_bytes(world: int, payload: float) -> float:
    """Bytes that each rank sends in a ring all-reduce of `payload` bytes."""
    return 2.0 * (world - 1) / world * payload


def sharded_bytes(job: Job, parameters: int, trained: int) -> float:
    """Bytes that each rank sends per optimizer step under FSDP2.

    Weights are gathered for each batch forward and again backward (`reshard_after_forward`), in the dtype that computes; gradients
    are reduced and scattered once.
    """
    gathered = 2.0 * job.accumulation * parameters * job.weight_bytes
    return (job.world - 1) / job.world * (gathered + trained * REDUCED_BYTES)


def dispatch(job: Job, device: Device) -> float:
    """Return the seconds until the kernels of an optimizer step are started; 0 without a GPU."""
    if device.is_cpu or job.arch is None:
        return 0.0
    deep = job.backward_layers
    frozen = 0 if job.activations_cached else job.arch.layers - deep
    each = (ADAPTED if job.trainable == "lora" else TRAINED) + FROZEN * job.checkpointing
    return job.accumulation * (frozen * FROZEN + deep * each + OTHERS) * LAUNCH


def _wire(job: Job, device: Device, network: float, sent: float) -> float:
    """Return the seconds in which each rank sends `sent` bytes: GPUs of one node by their link, of several by the network."""
    if job.world == 1 or (device.is_cpu and job.nodes == 1):
        return 0.0
    return sent / (network if job.nodes > 1 else device.link)


def _cost(
    job: Job, arch: Architecture, device: Device, speeds: tuple[float, float], when: Schedule, trained: int
) -> Cost:
    network, storage = speeds
    full = job.packed or job.compiled
    length = float(job.max_length) if full or job.tokens_per_row is None else job.tokens_per_row
    each = flop_per_token(job, arch, length)
    once = frozen_flop_per_token(job, arch, length) * when.tokens / max(job.epochs, 1)
    rate = device.peak(job.arithmetic) * device.mfu_good
    compute = each * when.computed_per_step / job.world / rate
    if job.sharded:
        sent = sharded_bytes(job, arch.parameters, trained)
    else:
        sent = ring_bytes(job.world, trained * job.gradient_bytes)
    wire, launched = _wire(job, device, network, sent), dispatch(job, device)
    step, loaded = max(compute, launched), 0.0 if job.from_scratch else arch.parameters * job.stored_bytes
    seconds, size = when.steps * (step + wire) + once / (rate * job.world), volumes.checkpoint(job, arch)
    return Cost(
        flop_per_token=each,
        flop=each * when.computed_per_step * when.steps + once,
        mfu=device.mfu_good,
        compute_seconds=compute,
        dispatch_seconds=launched,
        bytes_per_step=sent,
        network_seconds=wire,
        seconds=seconds,
        speed_up=job.world * step / (step + wire) if step else 0.0,
        load_seconds=loaded / storage,
        graphs=job.graphs,
        compile_seconds=0.0 if device.is_cpu else job.graphs * (COMPILE + AUTOTUNE * PRODUCTS * job.autotuned),
        **_saves(job, when, seconds, size, storage),
    )


def _saves(job: Job, when: Schedule, seconds: float, size: float, storage: float) -> dict[str, Any]:
    """Return what a Cost says of checkpoints of `size` bytes; those of a sharded run are written beside the training."""
    number = volumes.written(math.ceil(when.steps / when.checkpoint_every), seconds, size / storage)
    waits = 0.0 if job.sharded else number * size / storage
    return {"checkpoints": number, "checkpoint_bytes": size, "checkpoint_seconds": waits}


ROWS = {DIGITS: 1347, CIFAR10: 50_000}  # training images of each set, the validation part included
SHAPES = {DIGITS: (1, 10), CIFAR10: (3, 10)}  # channels and classes
# Convolutions over small images are memory-bound: assumed (no GPU available), a third to half of a language model's.
IMAGE_MFU = 0.2


def image_counts(width: int, channels: int, classes: int, size: int) -> tuple[int, int, int]:
    """Return parameters of ResNet-18, and per image the forward multiply-adds and the numbers kept for backward.

    Kept are the input of each convolution and of each batch norm, and the output of each ReLU that is not already the
    input of a convolution (test_vision.py compares with what autograd keeps).
    """
    pixels = size * size
    parameters, work = 9 * channels * width + 2 * width, 9 * channels * width * pixels
    activations = channels * pixels + 2 * width * pixels
    inputs = width
    for stage in range(4):
        outputs = width * 2**stage
        area = math.ceil(size / 2**stage) ** 2
        for __ in range(2):
            parameters += 9 * (inputs * outputs + outputs * outputs) + 4 * outputs
            work += 9 * (inputs * outputs + outputs * outputs) * area
            activations += 4 * outputs * area
            if inputs != outputs:
                parameters += inputs * outputs + 2 * outputs
                work += inputs * outputs * area
                activations += outputs * area
            inputs = outputs
    return parameters + inputs * classes + classes, work + inputs * classes, activations


def estimate_images(phase: ResnetPhase, job: Job, device: Device, network: float, storage: float = STORAGE) -> Plan:
    """Return the plan of `job` on `device`, nodes linked with `network`, volumes with `storage` bytes per second."""
    channels, classes = SHAPES.get(phase.data.source, SHAPES[CIFAR10])
    size = phase.vision.image_size
    parameters, work, activations_per_image = image_counts(phase.vision.width, channels, classes, size)
    rows = job.rows or ROWS.get(phase.data.source, ROWS[CIFAR10])
    images = rows - round(rows * phase.train.validation_fraction)
    narrow = phase.model.dtype == "bfloat16" or (phase.model.dtype == "auto" and device.capability >= BF16_CAPABILITY)
    job = replace(job, rows=images, unit="image", precision="bf16" if narrow else "fp32")
    when = _image_schedule(job, images)
    processes = job.devices_per_node if device.is_cpu else 1  # ranks that share the pod's memory
    moments = 8 if phase.vision.optimizer == "adamw" else 4
    memory = Memory(
        weights=0.0,  # with the states: all of them are trained
        states=processes * parameters * (8.0 + moments),  # float32 weight and gradient, and the optimizer's
        activations=processes * job.batch * activations_per_image * (2.0 if narrow else 4.0),
        logits=0.0,
        # the whole set is on the device as bytes, where images are cropped and mirrored
        context=processes * (CONTEXT_BYTES["cpu" if device.is_cpu else "gpu"] + rows * channels * size * size),
    )
    mfu = 1.0 if device.is_cpu else IMAGE_MFU
    rate = device.peak(job.arithmetic) * mfu
    flop = 6.0 * work  # of an image: 2 per multiply-add, forward once and backward twice
    compute = flop * job.effective_batch / job.world / rate
    sent = ring_bytes(job.world, 4.0 * parameters)
    wire, launched = _wire(job, device, network, sent), 0.0 if device.is_cpu else IMAGE_KERNELS * LAUNCH
    step, checkpoint = max(compute, launched), volumes.image_checkpoint(parameters, phase.vision.optimizer)
    seconds = when.steps * (step + wire)
    cost = Cost(
        flop_per_token=flop,
        flop=flop * when.tokens,
        mfu=mfu,
        compute_seconds=compute,
        dispatch_seconds=launched,
        bytes_per_step=sent,
        network_seconds=wire,
        seconds=seconds,
        speed_up=job.world * step / (step + wire),
        **_saves(job, when, seconds, checkpoint, storage),
    )
    left = volumes.results(job, 4.0 * parameters)
    needs = (*volumes.inputs(job, "", 0.0), volumes.runs(job, checkpoint, left, when.steps))
    return Plan(job, device, network, parameters, parameters, memory, when, cost, needs, None, storage)


def _image_schedule(job: Job, images: int) -> Schedule:
    """Steps as recipes/image_training.py counts them: an epoch drops what does not fill a step."""
    per_epoch = images // job.effective_batch
    steps = max(1, round(job.epochs * per_epoch))
    return events(job, steps, per_epoch, float(steps * job.effective_batch), float(job.effective_batch))
