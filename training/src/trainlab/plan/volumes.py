"""What each volume must hold at its fullest, in bytes, and the Job that makes the text ready before; used by estimate, checks and table.

A checkpoint of Hugging Face's Trainer is the weights as they are in memory (trained ones in float32, models/layers.py; of
adapters only these), optimizer.pt with Adam's two float32 moments of each trained weight, the tokenizer, a random state of each
rank, the schedule and the log (`_save_checkpoint`, transformers 5.23). FSDP2's shards add up to the same
(accelerate, `save_fsdp_model` and `save_fsdp_optimizer`). test_checkpoint_size.py compares with checkpoints that were written.
"""

import math
from dataclasses import dataclass

from trainlab.models.architectures import Architecture
from trainlab.plan.device_memory import MASTER_BYTES, parameters, trainable
from trainlab.plan.job import Job
from trainlab.plan.units import size

TRAINED_BYTES = MASTER_BYTES + 8  # of a trained weight: itself, and Adam's two float32 numbers
SHARE = 20
"""A checkpoint is written when the training has taken this many times as long as it takes: 5 % at most are spent on them."""
SHORTEST = 1.0  # of a second: checkpoints that pause for less are written whenever they may be
TOKENIZER_BYTES = 135  # of tokenizer.json for each word: 3.5 MB for 49,152 (SmolLM2) to 17.2 MB for 128,256 (SmolLM3)
RANDOM_BYTES = 15_000  # random state of one rank: 14,469 bytes without a GPU
LOG_BYTES = 1_000_000  # schedule, log and settings of a checkpoint
# Of a text, while `trainlab prepare` reads it: the cleaned copy is 0.28 of Python's manual (zstd), signatures are 528 bytes a
# document, a quarter of documents of 2 kB. They are removed before the random weights are drawn (recipes/pretrain.py).
WORKING = 0.6
RUN_BYTES = 20_000_000  # scores, answers, TensorBoard and report of a run


@dataclass(frozen=True)
class VolumeNeed:
    """One volume at its fullest: bytes, what they are, and what else than a larger claim would help."""

    name: str
    bytes: float
    parts: tuple[str, ...]
    remedy: str = ""


def needs(job: Job, arch: Architecture, steps: int | None) -> tuple[VolumeNeed, ...]:
    """Return what the volumes of a language model's job must hold; `steps` is None where rows are unknown."""
    total = parameters(job, arch)
    result = trainable(job, arch) if job.trainable == "lora" else total
    tuned = result * job.saved_bytes + _tokenizer(arch)
    before = job.stages_before * (arch.parameters * job.saved_bytes + _tokenizer(arch))
    base = arch.parameters * job.stored_bytes + _tokenizer(arch) if job.model_bytes is None else job.model_bytes
    what = "the first stage's random weights" if job.from_scratch or job.stages_before else base_model(job)
    return (*inputs(job, what, base), runs(job, checkpoint(job, arch), results(job, tuned), steps, before))


def results(job: Job, tuned: float) -> float:
    """Bytes of what a training leaves: the tuned model, with train.save_final_model the last weights as well."""
    return tuned * (1 + job.final_model)


def base_model(job: Job) -> str:
    """Return how the bytes of the base model are known."""
    if job.model_bytes is not None:
        return "base model, as the hub lists it,"
    return (
        "base model (2 bytes a weight assumed; --hub counts its files)" if job.model.startswith("hf:") else "base model"
    )


def checkpoint(job: Job, arch: Architecture) -> float:
    """Bytes of one checkpoint."""
    trained = trainable(job, arch)
    frozen = 0 if job.trainable == "lora" else parameters(job, arch) - trained
    best = MASTER_BYTES * job.keeps_best  # of an earlier step
    weights = trained * (TRAINED_BYTES + best) + frozen * job.weight_bytes
    return weights + _tokenizer(arch) + job.world * RANDOM_BYTES + LOG_BYTES


def image_checkpoint(parameters: int, optimizer: str) -> float:
    """Bytes of one of an image classifier: weights, the optimizer's moments, and the best network so far."""
    return parameters * (4.0 + (8.0 if optimizer == "adamw" else 4.0) + 4.0)


def pause(seconds: float) -> float:
    """Return the seconds of training between checkpoints that take `seconds` each."""
    return SHARE * seconds if SHARE * seconds >= SHORTEST else 0.0


def written(possible: int, training: float, each: float) -> int:
    """Return how many checkpoints are written: of `possible` even parts, in seconds of `training`, each taking `each` seconds."""
    part, since, number = training / possible, 0.0, 0
    for _part in range(possible - 1):  # none at the end
        since += part
        if since >= pause(each):
            since, number = 0.0, number + 1
    return number


def inputs(job: Job, what: str, model: float) -> tuple[VolumeNeed, ...]:
    """Return what is fetched before training: the model and, in a volume of its own if there is one, the data set."""
    own = any(volume.name == "data" for volume in job.volumes)
    unknown = ("a data set of unknown size",) if job.data_bytes is None else ()
    data, text, working = job.data_bytes or 0.0, job.text_bytes, job.text_bytes * WORKING
    texts = (
        *unknown,
        *([f"data set {size(data)}"] if data else []),
        *([f"its text {size(text)}"] if text else []),
    )
    made = (f"working files of text.prepare {size(working)}",)
    stored = (f"{what} {size(model)}",) if model else ()
    if own:
        return VolumeNeed("models", model, stored), VolumeNeed("data", data + text + working, texts + made * bool(text))
    remedy = ", or give the data set a volume of its own (site.storage.data.size)" if data else ""
    parts = (*stored, *texts) if model >= working else (*texts, *made)
    return (VolumeNeed("models", data + text + max(model, working), parts, remedy),)


def runs(job: Job, each: float, result: float, steps: int | None, before: float = 0.0) -> VolumeNeed:
    """Return what the run volume must hold: `each` is a checkpoint, `result` the tuned model, `before` earlier stages' models.

    engine/checkpoints.py removes a checkpoint when the next one is complete. SIGTERM adds one to those that are due.
    """
    planned = min(job.checkpoints or steps or 1, steps or job.checkpoints or 1)
    stored = min(planned, job.keep_checkpoints)
    peak = min(planned, stored + 1)
    details = [f"{stored} kept"]
    if peak * each >= stored * each + result:
        details += ["one being written"] if peak > stored else []
        held, parts = peak * each, [f"{peak} checkpoints of {size(each)} ({', '.join(details)})"]
    else:
        held = stored * each + result
        parts = [
            f"{stored} checkpoints of {size(each)} ({', '.join(details)})",
            f"tuned model {'and final_model ' * job.final_model}{size(result)}",
        ]
    if before:
        parts.append(f"models of the stages before it ({job.stages_before}) {size(before)}")
    remedy = f", or lower phase.train.keep_checkpoints ({job.keep_checkpoints})" if job.keep_checkpoints > 1 else ""
    return VolumeNeed("runs", held + before + RUN_BYTES, tuple(parts), remedy)


def _tokenizer(arch: Architecture) -> float:
    return float(arch.vocab * TOKENIZER_BYTES)


# Of bench/prepare_factor.py (docs/evidence/staged.md), where no text is dropped: of one process that does all, and of the first of several,
# which reads and writes while the others compute. What the first does counts as if the others waited, which is Amdahl's law.
SECONDS = 0.59e-6  # of a processor for each byte of text, in one process
FIRST = 0.011e-6  # of them the first process, where there are several
FIRST_BYTES = (
    1.0 * 2**30
)  # of the first process: PyTorch, the tokenizer, the batches that wait; 0.41 measured with two others
PROCESS_BYTES = 0.3 * 2**30  # of each of the others; 0.19 measured


@dataclass(frozen=True)
class Preparation:
    """Wall-clock seconds, and bytes of the pod's memory at its fullest."""

    seconds: float
    bytes: float


def preparation(job: Job, storage: float) -> Preparation | None:
    """Return what the Job of `site.prepare` takes with volumes of `storage` bytes per second; None where nothing is prepared for GPUs.

    The weights are drawn when the blocks are made, in their own precision (recipes/pretrain.py).
    """
    if not job.text_bytes or not job.on_gpu:
        return None
    processes = max(1, math.ceil(job.prepare_cores))
    first = FIRST if processes > 1 else SECONDS
    computed = job.text_bytes * (first + (SECONDS - first) / max(1.0, job.prepare_cores))
    blocks = FIRST_BYTES + processes * PROCESS_BYTES
    weights = FIRST_BYTES + job.arch.parameters * job.drawn_bytes if job.arch else 0.0
    return Preparation(computed + job.text_bytes / storage, max(blocks, weights))
