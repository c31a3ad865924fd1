"""The memory of the inference server; used by estimate.

vLLM keeps 90 % of each GPU (`gpu_memory_utilization`, its default) and starts if the weights and the keys and values of one
request of the longest length (`max_model_len`) fit; more requests at once use what is left.
"""

from dataclasses import dataclass

from trainlab.models.architectures import Architecture
from trainlab.plan.device_memory import CONTEXT_BYTES
from trainlab.plan.devices import Device
from trainlab.plan.job import Job
from trainlab.plan.weights import adapters, parameters

VLLM_SHARE = 0.9


@dataclass(frozen=True)
class Server:
    """Bytes: of vLLM on each of its GPUs, of our own server in its pod."""

    runtime: str
    gpus: int
    weights: float
    cache: float  # keys and values of one request of the longest length
    context: float
    room: float  # what it may use

    @property
    def total(self) -> float:
        """Bytes without which it does not start, or not answer."""
        return self.weights + self.cache + self.context

    @property
    def requests(self) -> int:
        """Requests of the longest length whose keys and values fit at once."""
        return max(0, int((self.room - self.weights - self.context) // self.cache))


def server(job: Job, arch: Architecture, device: Device) -> Server | None:
    """Return the server of a job; None where it is unknown, or on GPUs while `device` is none."""
    narrow = 2 if job.serve_runtime == "vllm" else job.weight_bytes
    cache = 2.0 * arch.layers * arch.kv_heads * arch.dim * narrow * job.serve_tokens
    added = adapters(job, arch) if job.trainable == "lora" else 0
    if job.serve_runtime == "vllm" and not device.is_cpu:
        gpus = max(1, job.serve_gpus)
        weights = (arch.parameters + added if added else parameters(job, arch)) * narrow / gpus
        room = VLLM_SHARE * device.reported_gib * 2**30
        return Server("vllm", gpus, weights, cache / gpus, CONTEXT_BYTES["gpu"], room)
    if job.serve_runtime == "trainlab":
        # base and tuned are loaded one after the other before equal weights are shared (serve/inference_engine.py)
        weights = (arch.parameters + (added or parameters(job, arch))) * narrow
        return Server("trainlab", 0, weights, cache, CONTEXT_BYTES["cpu"], job.serve_memory)
    return None
