"""The sections `resources:` and `serve:`: pods of the job, and the inference server."""

from typing import Literal

from pydantic import Field

from trainlab.config.strict import Bytes, Cpu, Strict


class Resources(Strict):
    """Pods of the job: one master and nodes-1 workers, each the same."""

    nodes: int = Field(1, ge=1, le=512, description="Pods of the job, the master included.")
    processes_per_node: int = Field(1, ge=1, le=64, description="Ranks per pod; with GPUs one per GPU.")
    gpus_per_node: int = Field(0, ge=0, le=64, description="GPUs per pod; 0 trains on the CPU.")
    cpu: Cpu = Field("1", description="CPU request per pod, in cores such as 4, 0.5 or 500m.")
    memory: Bytes = Field("4Gi", description="Memory request and limit per pod, such as 512Mi or 8Gi.")
    shared_memory: Bytes = Field("1Gi", description="Size of /dev/shm, part of memory, such as 1Gi.")
    timeout_minutes: int = Field(120, ge=1, description="The job is ended as failed after this time.")


class Serve(Strict):
    """The inference server."""

    runtime: str  # which ones there are, each kind below says
    cpu: Cpu = Field("1", description="CPU request of the server, in cores such as 4, 0.5 or 500m.")
    memory: Bytes = Field("4Gi", description="Memory request and limit of the server, such as 512Mi or 8Gi.")
    gpus: int = Field(0, ge=0, le=8, description="GPUs of the server.")
    max_tokens: int = Field(256, ge=1, le=32768, description="Longest answer a client may ask for.")
    max_concurrency: int = Field(4, ge=1, le=1024, description="Requests worked on or queued at once; more get 429.")


class OwnServe(Serve):
    """The inference server of what only our own server can serve."""

    runtime: Literal["trainlab"] = Field("trainlab", description="trainlab: our own CPU server with base and tuned.")


class AnswerServe(Serve):
    """The inference server of a model that answers in chat."""

    runtime: Literal["trainlab", "vllm"] = Field(
        "trainlab", description="trainlab: our own CPU server with base and tuned; vllm: the vLLM image on a GPU."
    )
