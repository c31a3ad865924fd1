"""How many weights a job keeps in memory and how many it trains; used by the whole planner."""

from trainlab.models.architectures import Architecture
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
