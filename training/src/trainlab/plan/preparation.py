"""The Job that makes the text ready before the GPUs are taken (site.step prepare): how long, and in how much memory; no GPU.

Seconds are those of bench/prepare_factor.py (docs/evidence/staged.md), where no text is dropped: of one process that does all, and of the
first of several, which reads and writes while the others compute. What the first does counts as if the others waited, which is Amdahl's law.
"""

import math
from dataclasses import dataclass

from trainlab.plan.job import Job

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
