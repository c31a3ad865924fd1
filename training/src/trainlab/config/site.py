"""The section `site:`: where a phase runs; none of it changes what is trained."""

from typing import Any, Literal

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from trainlab.config.strict import Bytes, ObjectName, OptionalBytes, Strict


class SiteBlock(Strict):
    """Base of the sections under `site:`; camelCase on the outside."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Images(SiteBlock):
    """Images by full reference, best with a digest."""

    trainer: str = Field("localhost/trainlab-trainer:0.1.0", min_length=1, description="Trains, scores, serves on CPU.")
    vllm: str = Field(
        "docker.io/vllm/vllm-openai:v0.11.0", description="vLLM's own image, used with serve.runtime vllm."
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field("IfNotPresent", description="As in Kubernetes.")
    pull_secret: ObjectName = Field("", description="Name of a pull Secret in the namespace; empty for none.")


class Volume(SiteBlock):
    """One PersistentVolumeClaim."""

    size: Bytes = Field("20Gi", description="Requested size, such as 20Gi.")
    storage_class: ObjectName = Field("", description="StorageClass; empty takes the cluster's default.")
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = Field(
        "ReadWriteMany", description="ReadWriteMany as soon as a job has more than one pod."
    )
    existing: ObjectName = Field("", description="Name of a claim made beforehand; empty makes one with the release.")
    sub_path: str = Field(
        "",
        description="Folder inside the claim that is the volume, e.g. team/models, so that several volumes share one claim; "
        "empty takes the whole claim.",
    )


class DataVolume(Volume):
    """The claim of the data sets, which is off by default."""

    size: OptionalBytes = Field(
        "", description="Requested size; empty, without `existing`, leaves the data sets in the model volume."
    )

    @property
    def on(self) -> bool:
        """True when the data sets have a volume of their own."""
        return bool(self.size or self.existing)


class Storage(SiteBlock):
    """The volumes; they outlive the release. Those with the same claim are mounted from it once (_storage.tpl)."""

    models: Volume = Field(Volume(), description="Base models, filled once by `trainlab fetch`.")
    runs: Volume = Field(Volume(), description="Run directories: checkpoints, tuned model, scores, report.")
    data: DataVolume = Field(DataVolume(), description="Data sets: what is fetched, and pvc: sources of phase.data.")

    @property
    def volumes(self) -> dict[str, Volume]:
        """Name and volume of those that a release has."""
        return {"models": self.models, "runs": self.runs} | ({"data": self.data} if self.data.on else {})


class Site(SiteBlock):
    """Where a phase runs; none of it changes what is trained."""

    training_api: Literal["auto", "pytorchjob", "trainjob"] = Field(
        "auto", description="auto takes TrainJob where the cluster serves it and no PyTorchJob, else PyTorchJob."
    )
    images: Images = Images()
    storage: Storage = Storage()
    queue: ObjectName = Field("", description="Kueue LocalQueue of the namespace; empty for none.")
    gpu_resource: str = Field("nvidia.com/gpu", description="Resource name that the device plug-in offers.")
    tolerations: tuple[dict[str, Any], ...] = Field((), description="Tolerations of training and serving pods.")
    node_selector: dict[str, str] = Field({}, description="Node selector of training and serving pods.")
    spread: Literal["required", "preferred", "none"] = Field(
        "preferred", description="Spread the pods of a job over nodes."
    )
    env: dict[str, str] = Field(
        {},
        description="Environment variables of the containers that fetch, train and serve, such as HTTPS_PROXY, HF_ENDPOINT or "
        "NCCL_DEBUG. Nothing secret: see hfTokenSecret.",
    )
    ca_config_map: ObjectName = Field(
        "",
        description="ConfigMap with key ca-bundle.crt: the certificates that downloads trust instead of the image's, as of a "
        "proxy or a mirror. OpenShift fills one that is labelled config.openshift.io/inject-trusted-cabundle.",
    )
    priority_class: ObjectName = Field("", description="PriorityClass of training and serving pods; empty for none.")
    runtime_class: ObjectName = Field(
        "", description="RuntimeClass of training and serving pods, such as nvidia; empty for none."
    )
    pod_annotations: dict[str, str] = Field({}, description="Annotations of all pods.")
    hf_token_secret: ObjectName = Field("", description="Secret with key `token` for gated models; empty for none.")
    serving: bool = Field(True, description="Make the InferenceService when the gate promotes.")
    keep_volumes: bool = Field(True, description="helm uninstall leaves the volumes.")
    preflight: bool = Field(
        True, description="Helm first looks at nodes (GPUs) and StorageClasses; false where you may not list these."
    )
