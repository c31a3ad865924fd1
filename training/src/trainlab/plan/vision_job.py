"""The planner's arithmetic for an image classifier (recipe resnet), as estimate.py's for language models. No torch."""

import math
from dataclasses import replace

from trainlab.config import ResnetPhase
from trainlab.config.references import CIFAR10, DIGITS
from trainlab.plan.device_memory import CONTEXT_BYTES, Memory
from trainlab.plan.devices import Device
from trainlab.plan.estimate import Cost, Plan, Schedule, events, ring_bytes
from trainlab.plan.job import Job
from trainlab.plan.volumes import inputs, runs

ROWS = {DIGITS: 1347, CIFAR10: 50_000}  # training images of each set, the validation part included
SHAPES = {DIGITS: (1, 10), CIFAR10: (3, 10)}  # channels and classes
# Convolutions over small images are memory-bound: assumed (no GPU available), a third to half of a language model's.
MFU = 0.2


def counts(width: int, channels: int, classes: int, size: int) -> tuple[int, int, int]:
    """Return parameters of ResNet-18, and per image the forward multiply-adds and the numbers kept for backward.

    Kept are the input of each convolution and of each batch norm, and the output of each ReLU that is not already the
    input of a convolution (test_vision.py compares with what autograd keeps).
    """
    pixels = size * size
    parameters, work = 9 * channels * width + 2 * width, 9 * channels * width * pixels
    kept = channels * pixels + 2 * width * pixels
    given = width
    for stage in range(4):
        wide = width * 2**stage
        area = math.ceil(size / 2**stage) ** 2
        for _ in range(2):
            parameters += 9 * (given * wide + wide * wide) + 4 * wide
            work += 9 * (given * wide + wide * wide) * area
            kept += 4 * wide * area
            if given != wide:
                parameters += given * wide + 2 * wide
                work += given * wide * area
                kept += wide * area
            given = wide
    return parameters + given * classes + classes, work + given * classes, kept


def estimate(phase: ResnetPhase, job: Job, device: Device, network: float) -> Plan:
    """Return the plan of `job` on `device`, nodes linked with `network` bytes per second."""
    channels, classes = SHAPES.get(phase.data.source, SHAPES[CIFAR10])
    size = phase.vision.image_size
    parameters, work, kept = counts(phase.vision.width, channels, classes, size)
    whole = job.rows or ROWS.get(phase.data.source, ROWS[CIFAR10])
    images = whole - round(whole * phase.train.validation_fraction)
    narrow = phase.model.dtype == "bfloat16" or (phase.model.dtype == "auto" and device.capability >= 8)
    job = replace(job, rows=images, unit="image", precision="bf16" if narrow else "fp32")
    when = _schedule(job, images)
    processes = job.devices_per_node if device.is_cpu else 1  # ranks that share the pod's memory
    moments = 8 if phase.vision.optimizer == "adamw" else 4
    memory = Memory(
        weights=0.0,  # with the states: all of them are trained
        states=processes * parameters * (8.0 + moments),  # float32 weight and gradient, and the optimizer's
        activations=processes * job.batch * kept * (2.0 if narrow else 4.0),
        logits=0.0,
        # the whole set is on the device as bytes, where images are cropped and mirrored
        context=processes * (CONTEXT_BYTES["cpu" if device.is_cpu else "gpu"] + whole * channels * size * size),
    )
    mfu = 1.0 if device.is_cpu else MFU
    rate = device.peak(job.precision) * mfu
    flop = 6.0 * work  # of an image: 2 per multiply-add, forward once and backward twice
    compute = flop * job.effective_batch / job.world / rate
    sent = ring_bytes(job.world, 4.0 * parameters)
    wire = sent / network if job.nodes > 1 else 0.0
    cost = Cost(
        flop_per_token=flop,
        flop=flop * when.tokens,
        mfu=mfu,
        compute_seconds=compute,
        bytes_per_step=sent,
        network_seconds=wire,
        seconds=when.steps * (compute + wire),
        speed_up=job.world * compute / (compute + wire),
    )
    checkpoint = parameters * (4.0 + moments + 4.0)  # the last value: the best network so far
    needs = (*inputs(job, "", 0.0), runs(job, checkpoint, 4.0 * parameters, when.steps))
    return Plan(job, device, network, parameters, parameters, memory, when, cost, needs, None)


def _schedule(job: Job, images: int) -> Schedule:
    """Steps as recipes/resnet/resnet_trainer.py counts them: an epoch drops what does not fill a step."""
    per_epoch = images // job.effective_batch
    steps = max(1, round(job.epochs * per_epoch))
    return events(job, steps, per_epoch, float(steps * job.effective_batch), float(job.effective_batch))
