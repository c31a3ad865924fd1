"""What people would lose with a namespace or a platform: their objects, and not what operators and Kubernetes made for themselves."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import labels
from .kube import FORBIDDEN, ApiError, Json
from .platform_api import PlatformApi, editors, ours

KINDS: tuple[Json, ...] = (
    {"apiVersion": "v1", "kind": "PersistentVolumeClaim"},
    {"apiVersion": "kubeflow.org/v1", "kind": "Notebook"},
    {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"},
    {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"},
    {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService"},
    {"apiVersion": "modelregistry.opendatahub.io/v1beta1", "kind": "ModelRegistry"},
    {"apiVersion": "datasciencepipelinesapplications.opendatahub.io/v1", "kind": "DataSciencePipelinesApplication"},
)
"""What people keep in a namespace; their pods and settings go with it."""
PART_OF = ("platform.opendatahub.io/part-of", "infrastructure.opendatahub.io/part-of")
SETTINGS: tuple[Json, ...] = (
    {"apiVersion": "v1", "kind": "Pod"},
    {"apiVersion": "v1", "kind": "Secret"},
    {"apiVersion": "v1", "kind": "ConfigMap"},
    {"apiVersion": "apps/v1", "kind": "Deployment"},
    {"apiVersion": "apps/v1", "kind": "StatefulSet"},
    {"apiVersion": "batch/v1", "kind": "Job"},
    {"apiVersion": "batch/v1", "kind": "CronJob"},
)
"""What else a namespace is not empty with. Helm keeps its releases in Secrets."""
MADE = {"kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert", "odh-trusted-ca-bundle"}
"""ConfigMaps that controllers put into every namespace."""
MADE_TYPES = {"kubernetes.io/service-account-token", "kubernetes.io/dockercfg"}
"""Secrets that controllers make for ServiceAccounts."""
MANAGED = "opendatahub.io/managed"
"""Label of what OpenShift AI's controllers put into a namespace that serves."""
HELM = "helm.sh/release.v1"
SHOWN = 3


@dataclass
class Losses:
    """Collects what people would lose: objects of kinds that go, workbenches and volumes in namespaces that go.

    `groups` are the API groups that go, `administrators` the kinds of which an object of ours is theirs once they edited it. Not
    theirs is what an operator made for itself: what the role's table lists as leftovers, what has the label of OpenShift AI's
    components, and what an object owns that goes anyway. Source: rhods-operator, pkg/metadata/labels/types.go (part-of) and
    internal/controller/dscinitialization (Auth has no owner).
    """

    groups: set[str]
    administrators: set[str] = field(default_factory=set)
    _objects: dict[str, Json] = field(default_factory=dict)

    def add(self, entry: Json, spaces: set[str], resources: list[Json]) -> None:
        """Add those of an operator, except in `spaces`, where they are its own; `things` have apiVersion and kind."""
        made = {(leftover["kind"], leftover["name"]) for leftover in entry.get("leftovers", [])}
        for resource in resources:
            metadata = resource["metadata"]
            mine = ours(resource) and not (resource["kind"] in self.administrators and editors(resource))
            own = (resource["kind"], metadata["name"]) in made or metadata.get("namespace") in spaces or mine
            if (
                not own
                and not metadata.get("deletionTimestamp")
                and not set(PART_OF) & set(metadata.get("labels") or {})
            ):
                self._objects[metadata["uid"]] = resource

    def resources(self) -> list[Json]:
        """Return what people made, without what goes as another object's property."""
        return [resource for resource in self._objects.values() if not self._owned(resource)]

    def _owned(self, resource: Json) -> bool:
        owners = resource["metadata"].get("ownerReferences") or []
        return any(
            owner["apiVersion"].partition("/")[0] in self.groups or owner["uid"] in self._objects for owner in owners
        )

    def sentence(self, oc: str, namespace: str = "") -> str:
        """Return how many of each kind, some of their names, and how to see them all; empty when nothing is lost.

        With `namespace` they are all in it, and it is not named with each.
        """
        resources = self.resources()
        kinds: dict[str, list[str]] = {}
        for resource in resources:
            metadata = resource["metadata"]
            kinds.setdefault(resource["kind"], []).append(
                "/".join(filter(None, (None if namespace else metadata.get("namespace"), metadata["name"])))
            )
        counted = "; ".join(
            f"{len(names)} {kind} ({', '.join(sorted(names)[:SHOWN])}{', ...' if len(names) > SHOWN else ''})"
            for kind, names in sorted(kinds.items())
        )
        where = f"-n {namespace}" if namespace else "-A"
        return f"{counted} (`{oc} get {','.join(sorted(kinds)).lower()} {where}` lists them)" if counted else ""


def left_in(api: PlatformApi, namespace: str) -> Losses:
    """Return what is in a namespace of people's and of releases; what this user may not list of Kubernetes' own kinds counts as `unknown`.

    Not counted is what controllers put into every namespace, and what carries our owner label, as workspace.yml makes it.
    """
    losses = Losses(set())
    resources: list[Json] = []
    for kind in (*KINDS, *SETTINGS):
        typed = {"apiVersion": kind["apiVersion"], "kind": kind["kind"]}
        path = api.path(kind["apiVersion"], kind["kind"], namespace)
        try:
            items = api.items(path) if path else []
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            if kind not in SETTINGS and kind["apiVersion"] != "v1":
                continue  # who may not list an operator's kind has not created any of it
            items = [{"metadata": {"name": "unknown, as this user may not list them", "uid": kind["kind"]}}]
        resources += [_release(resource) | typed for resource in items if not _made(resource, kind["kind"])]
    losses.add({}, set(), resources)
    return losses


def _made(resource: Json, kind: str) -> bool:
    metadata = resource["metadata"]
    marks = metadata.get("labels") or {}
    return bool(
        labels.OWNER in marks
        or marks.get(MANAGED) == "true"
        or (kind == "ConfigMap" and metadata["name"] in MADE)
        or (kind == "Secret" and resource.get("type") in MADE_TYPES)
    )


def _release(resource: Json) -> Json:
    """The object; the Secret of one of a Helm release's revisions by the release's name."""
    if resource.get("type") != HELM:
        return resource
    name = (resource["metadata"].get("labels") or {}).get("name", resource["metadata"]["name"])
    return resource | {"metadata": resource["metadata"] | {"name": f"of Helm release {name}"}}
