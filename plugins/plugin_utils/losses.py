"""What people would lose with the platform: their objects of kinds that go, their workbenches and volumes in namespaces that go.

Not theirs is what an operator made for itself: what the role's table lists as leftovers, what has the label of OpenShift AI's
components, and what an object owns that goes anyway. Source: rhods-operator, pkg/metadata/labels/types.go (part-of) and
internal/controller/dscinitialization (Auth has no owner); tests/api_server/statuses has the lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .kube import Json
from .platform_api import ours

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
SHOWN = 3


@dataclass
class Losses:
    """Collects them; `groups` are the API groups that go."""

    groups: set[str]
    _found: dict[str, Json] = field(default_factory=dict)

    def add(self, entry: Json, spaces: set[str], things: list[Json]) -> None:
        """Add those of an operator, except in `spaces`, where they are its own; `things` have apiVersion and kind."""
        made = {(one["kind"], one["name"]) for one in entry.get("leftovers", [])}
        for one in things:
            metadata = one["metadata"]
            own = (one["kind"], metadata["name"]) in made or metadata.get("namespace") in spaces or ours(one)
            if (
                not own
                and not metadata.get("deletionTimestamp")
                and not set(PART_OF) & set(metadata.get("labels") or {})
            ):
                self._found[metadata["uid"]] = one

    def things(self) -> list[Json]:
        """Return what people made, without what goes as another object's property."""
        return [one for one in self._found.values() if not self._owned(one)]

    def _owned(self, one: Json) -> bool:
        owners = one["metadata"].get("ownerReferences") or []
        return any(
            owner["apiVersion"].partition("/")[0] in self.groups or owner["uid"] in self._found for owner in owners
        )

    def sentence(self, oc: str) -> str:
        """Return how many of each kind, some of their names, and how to see them all; empty when nothing is lost."""
        things = self.things()
        kinds: dict[str, list[str]] = {}
        for one in things:
            metadata = one["metadata"]
            kinds.setdefault(one["kind"], []).append(
                "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            )
        counted = "; ".join(
            f"{len(names)} {kind} ({', '.join(sorted(names)[:SHOWN])}{', ...' if len(names) > SHOWN else ''})"
            for kind, names in sorted(kinds.items())
        )
        return f"{counted} (`{oc} get {','.join(sorted(kinds)).lower()} -A` lists them)" if counted else ""
