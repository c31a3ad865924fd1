"""The sections `resources:` and `serve:`: the pods of the job and the inference server."""

from typing import Any, Literal

from pydantic import Field

from trainlab.config.strict import Bytes, Cpu, Strict


class Resources(Strict):
    """Pods of the job: one master and nodes-1 workers, all with the same resources."""

    nodes: int = Field(1, ge=1, le=512, description="Pods of the job, including the master.")
    processes_per_node: int = Field(1, ge=1, le=64, description="Ranks per pod; with GPUs, one per GPU.")
    gpus_per_node: int = Field(0, ge=0, le=64, description="GPUs per pod; 0 trains on the CPU.")
    cpu: Cpu = Field("1", description="CPU request per pod, in cores such as 4, 0.5 or 500m.")
    memory: Bytes = Field("4Gi", description="Memory request and limit per pod, such as 512Mi or 8Gi.")
    shared_memory: Bytes = Field("1Gi", description="Size of /dev/shm, which counts toward memory, such as 1Gi.")
    timeout_minutes: int = Field(120, ge=1, description="The job is stopped and marked failed after this time.")
    restarts: int = Field(
        3,
        ge=0,
        le=100,
        description="How often a job that lost a rank, pod or node starts again by itself, from its last complete checkpoint.",
    )


class Needs(Strict):
    """What the phase needs of a site; it changes nothing that is trained."""

    gpu_model: str = Field(
        "",
        description="GPU that `trainlab plan` computes with where neither --gpu nor a node selector names one, such as L40S; "
        "places nothing.",
    )
    models: Bytes = Field("20Gi", description="Size of the model volume where site.storage.models.size is empty.")
    runs: Bytes = Field("20Gi", description="Size of the run volume where site.storage.runs.size is empty.")


class Serve(Strict):
    """The inference server."""

    runtime: str  # each kind below lists its runtimes
    cpu: Cpu = Field("1", description="CPU request of the server, in cores such as 4, 0.5 or 500m.")
    memory: Bytes = Field("4Gi", description="Memory request and limit of the server, such as 512Mi or 8Gi.")
    gpus: int = Field(0, ge=0, le=8, description="GPUs of the server.")
    hours: int = Field(
        0,
        ge=0,
        le=8760,
        description="Hours from its promotion after which the served model is taken down, within ten minutes; 0 serves without end. A "
        "further promotion begins them anew.",
    )
    max_tokens: int = Field(
        256,
        ge=1,
        le=32768,
        description="Longest answer, in tokens; a client that asks for more gets as many (finish_reason length), and GET /v1/models names it. vLLM gives no longer one than evaluate.max_new_tokens for a run "
        "with adapters, and takes its own limit for other runs.",
    )
    max_concurrency: int = Field(
        8,
        ge=1,
        le=1024,
        description="Requests processed at once; at our own chat server by each model, as one batch. At a chat model 64 "
        "more wait in line, at an image classifier none; any more get 429.",
    )


SERVED: Any = Field(
    None, description="What the served model computes in; null is model.dtype, in which the gate scored it."
)


class OwnServe(Serve):
    """The inference server of models that only our own server can serve."""

    runtime: Literal["trainlab"] = Field("trainlab", description="trainlab: our own CPU server for base and tuned.")


class TextServe(OwnServe):
    """Our own server of a language model."""

    dtype: Literal["float32", "bfloat16"] | None = SERVED


class AnswerServe(Serve):
    """The inference server of a chat model."""

    dtype: Literal["float32", "bfloat16"] | None = SERVED

    runtime: Literal["trainlab", "vllm"] = Field(
        "trainlab",
        description="trainlab: our own CPU server for base and tuned; vllm: vLLM's image, on GPUs, or on CPU with gpus 0, which serves both "
        "for a run with adapters, and one of them for a model that was trained whole.",
    )
    weights: Literal["tuned", "base"] = Field(
        "tuned",
        description="Which model vLLM answers as after a training of the whole model, as it has room for one: base is the model before "
        "the training, for comparison, until it is tuned again. Neither change trains anything.",
    )
    max_adapters: int = Field(
        16,
        ge=0,
        le=1024,
        description="With adapters, at our own chat server: how many adapters of other promoted runs on the volume it keeps in memory, "
        "beside tuned; the one that was asked longest ago makes room. 0 answers as base and tuned alone.",
    )
