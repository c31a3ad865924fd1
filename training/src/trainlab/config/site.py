"""The section `site:`: where a phase runs; none of it changes what is trained."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from trainlab.config.types import OBJECT, Bytes, Cpu, ObjectName, OptionalBytes, Strict

QueueName = Annotated[str, StringConstraints(pattern=rf"^({OBJECT})?$", max_length=63)]
"""Name of a LocalQueue, or empty for none: jobs have it as the value of a label, which holds 63 characters."""


class SiteBlock(Strict):
    """Base of the sections under `site:`; camelCase on the outside."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Images(SiteBlock):
    """Images by full reference, best with a digest."""

    trainer: str = ""
    """Trains, scores, serves on CPU. No registry offers it: playbooks/image.yml builds it and writes its name."""
    vllm: str = "docker.io/vllm/vllm-openai@sha256:251eba5cc7c12fed0b75da22a9240e582b1c9e39f6fbc064f86781b963bd814f"
    """vLLM's own image, used with serve.runtime vllm: v0.24.0, the vLLM of OpenShift AI 3.5."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field("IfNotPresent", description="As in Kubernetes.")
    pull_secret: ObjectName = Field("", description="Name of a pull Secret in the namespace; empty for none.")


class Volume(SiteBlock):
    """One PersistentVolumeClaim."""

    size: OptionalBytes = ""
    """Requested size, such as 20Gi; empty asks for what the phase needs (`phase.needs`)."""
    storage_class: ObjectName = Field("", description="StorageClass; empty uses the cluster's default.")
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteMany"
    """Must be ReadWriteMany if the job has more than one pod; ReadWriteOnce keeps all pods of the release on one
    node."""
    existing: ObjectName = Field("", description="Name of an existing claim; empty creates one with the release.")
    sub_path: str = ""
    """Folder inside the claim to use as the volume, e.g. team/models, so that several volumes can share a claim; empty
    uses the whole claim."""


class DataVolume(Volume):
    """The claim for data sets, off by default."""

    size: OptionalBytes = ""
    """Requested size; empty, without `existing`, keeps the data sets in the model volume."""

    @property
    def on(self) -> bool:
        """True when the data sets have a volume of their own."""
        return bool(self.size or self.existing)


class Storage(SiteBlock):
    """The volumes; they outlive the release. A claim that several of them share is mounted once (_storage.tpl)."""

    models: Volume = Field(Volume(), description="Base models, filled once by `trainlab fetch`.")
    runs: Volume = Field(Volume(), description="Run directories: checkpoints, tuned model, scores, report.")
    data: DataVolume = Field(DataVolume(), description="Data sets: what is fetched, and pvc: sources of phase.data.")

    @property
    def volumes(self) -> dict[str, Volume]:
        """The volumes that a release has, by name."""
        return {"models": self.models, "runs": self.runs} | ({"data": self.data} if self.data.on else {})


class Monitoring(SiteBlock):
    """What Prometheus reads of the served model."""

    enabled: bool = False
    """Create a PodMonitor for the server's /metrics; takes the API monitoring.coreos.com/v1 and rights to its objects.
    OpenShift AI creates a ServiceMonitor for each InferenceService itself; leave it false there."""
    labels: dict[str, str] = {}
    """Further labels of the PodMonitor, by which a Prometheus may select it, such as `release: prometheus`."""


class Expose(SiteBlock):
    """An address of the served model outside of the cluster."""

    enabled: bool = False
    """Create a Route where the cluster serves route.openshift.io/v1, else an Ingress, to the Service of the model; it
    outlives runs."""
    host: ObjectName = Field("", description="Host name; an Ingress needs it, a Route gets one if it is empty.")
    ingress_class: ObjectName = Field("", description="IngressClass; empty uses the cluster's default.")
    tls_secret: ObjectName = ""
    """Secret of type kubernetes.io/tls for the Ingresses of model, TensorBoard and room, and so for all their hosts; empty
    serves plain HTTP. cert-manager's annotation makes it for the first of them alone: with several, make a Certificate of
    all hosts. A Route has the router's certificate."""
    annotations: dict[str, str] = {}
    """Annotations of the Route or Ingress, such as cert-manager.io/cluster-issuer or a controller's time limits."""


class TensorBoard(SiteBlock):
    """TensorBoard over all runs of the volume, in a pod of its own."""

    enabled: bool = False
    """Run TensorBoard with the trainer image. It has no login: where expose.enabled is true and auth is false, it gets
    a Route (or, with `host`, an Ingress), too; else it is reached by kubectl port-forward."""
    host: ObjectName = ""
    """Host name of its Route or Ingress; a Route gets one if it is empty, an Ingress is then not made."""


class HardwareProfile(SiteBlock):
    """The HardwareProfile of OpenShift AI that places the server; training pods know none."""

    name: ObjectName = Field("", description="Name of the HardwareProfile; empty for none.")
    namespace: ObjectName = ""
    """Its namespace, such as redhat-ods-applications; empty for that of the release."""


class Preparation(SiteBlock):
    """The Job that `step: prepare` makes; it needs no GPU."""

    cpu: Cpu = Field("8", description="CPU request and limit of its pod, in cores; as many processes share the work.")
    memory: Bytes = "32Gi"
    """Memory request and limit of its pod; the weights that it draws have to fit, see `trainlab plan`."""
    node_selector: dict[str, str] = {}
    """Node selector of its pod; empty for none, or where a volume is ReadWriteOnce for that of the site."""


class Site(SiteBlock):
    """Where a phase runs; none of it changes what is trained."""

    training_api: Literal["auto", "pytorchjob", "trainjob"] = "auto"
    """With auto a release stays the kind of job that it is. A new one is a TrainJob where the cluster serves that and
    JobSet, which its operator needs, or no PyTorchJob; else a PyTorchJob."""
    platform: Literal["auto", "kubernetes", "openshift"] = "auto"
    """Kubernetes leaves it to the chart to give pods a volume group and vLLM a UID; OpenShift assigns both. auto asks
    the cluster; a `helm template` without one (GitOps) cannot, and needs it set."""
    step: Literal["train", "prepare"] = "train"
    """prepare makes a Job without GPUs instead of the training: it fetches what the phase needs and makes the blocks of
    phase.text.prepare. The same release with train then trains on them."""
    prepare: Preparation = Preparation()
    images: Images = Images()
    storage: Storage = Storage()
    queue: QueueName = ""
    """Kueue LocalQueue in the namespace, for the job, and for a server that has GPUs or runs on OpenShift; empty for
    none."""
    gpu_resource: str = Field("nvidia.com/gpu", description="Resource name that the device plugin advertises.")
    tolerations: tuple[dict[str, Any], ...] = Field((), description="Tolerations of training and serving pods.")
    node_selector: dict[str, str] = Field({}, description="Node selector of training and serving pods.")
    spread: Literal["required", "preferred", "none"] = "preferred"
    """Spread the pods of a job across nodes."""
    env: dict[str, str] = {}
    """Environment variables of the containers that fetch, train and serve, such as HTTPS_PROXY, HF_ENDPOINT or
    NCCL_DEBUG. Those that would change what is trained are refused. No secrets: see hfTokenSecret."""
    ca_config_map: ObjectName = ""
    """ConfigMap with key ca-bundle.crt: the CA certificates that downloads trust instead of the image's, e.g. for a
    proxy or mirror. OpenShift fills one that is labeled config.openshift.io/inject-trusted-cabundle."""
    priority_class: ObjectName = Field("", description="PriorityClass of training and serving pods; empty for none.")
    runtime_class: ObjectName = ""
    """RuntimeClass of training and serving pods, such as nvidia; empty for none."""
    env_secrets: tuple[ObjectName, ...] = ()
    """Names of Secrets whose keys become environment variables of the containers that fetch, train and serve; what
    `env` and the chart set wins, and a pod that trains refuses a variable that would change what is trained."""
    pod_annotations: dict[str, str] = Field({}, description="Annotations of all pods.")
    pod_labels: dict[str, str] = {}
    """Further labels of all pods, such as a cost center's; those below app.kubernetes.io, helm.sh and trainlab.dev are
    the chart's."""
    report_to: tuple[Literal["mlflow", "wandb"], ...] = ()
    """Trackers that get the numbers of a training, too: mlflow (MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN), wandb
    (WANDB_API_KEY), with these variables in a Secret of envSecrets and their packages in the image (role image:
    image_tracking)."""
    hf_token_secret: ObjectName = Field("", description="Secret with key `token` for gated models; empty for none.")
    service_account: ObjectName = ""
    """ServiceAccount that promotes; it may create, patch, list and delete ServingRuntimes, and get, create and patch
    InferenceServices and ConfigMaps; with phase.serve.hours also delete InferenceServices. Empty creates one with a
    Role, which only those may do who may create Roles."""
    serving: bool = Field(True, description="Create the InferenceService when the gate promotes.")
    auth: bool = False
    """The server answers only who sends a token (Authorization: Bearer) of somebody who may get its InferenceService;
    takes OpenShift AI."""
    hardware_profile: HardwareProfile = HardwareProfile()
    expose: Expose = Expose()
    monitoring: Monitoring = Monitoring()
    tensorboard: TensorBoard = TensorBoard()
    keep_volumes: bool = Field(True, description="helm uninstall keeps the volumes.")
    from_namespace: bool = True
    """Take what is not given here from the ConfigMap trainlab-site of the namespace, which playbooks/image.yml and
    attendees.yml write."""
    preflight: bool = False
    """Helm also checks nodes (GPUs) and StorageClasses first; true only if you may list them."""
