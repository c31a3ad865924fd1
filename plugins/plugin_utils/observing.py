"""Reads what the roles wait for: lists and single objects, never a Secret or a ConfigMap, and of each only what is named here.

What may not be read is told once and left out; a server that does not answer for a while is asked again in the next pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from . import jobs, kueue
from .kube import ApiError, Json, Unreachable
from .platform_api import PlatformApi
from .recording import Place, Seen

TABLES = Path(__file__).resolve().parents[2] / "roles" / "platform" / "vars" / "main.yml"
FILES = {"gpu": "gpu-operator", "cert_manager": "cert-manager"}
"""Files of a bundle that are not named like the operator, as in tests/api_server/statuses."""
OLM = "operators.coreos.com/v1alpha1"
CSV, PREPULL = "ClusterServiceVersion", "trainlab-prepull"
OPENSHIFT = "config.openshift.io/v1"
CRD = "CustomResourceDefinition"
INITIALIZATION, COMPONENTS = "DSCInitialization", "DataScienceCluster"
SPOKEN = ("type", "status", "reason", "message")
REQUIREMENT = ("group", "version", "kind", "name", "status", "message")
"""All that OLM's API wants of one, so that it can be reported again."""
RUNTIME = ("kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion", "architecture")


@dataclass(frozen=True)
class Source:
    """A kind and where to list it: in all namespaces without `namespaces`; `names` keeps only some.

    `file` groups the sequences: an operator of the table, or another word.
    """

    api_version: str
    kind: str
    file: str
    fields: Callable[[Json], Json]
    namespaces: tuple[str, ...] = ("",)
    names: tuple[str, ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    keep: Callable[[Json], bool] = lambda _item: True


def status_of(*keys: str) -> Callable[[Json], Json]:
    """Return a function that takes these keys of a status, or all of it."""

    def taken(item: Json) -> Json:
        status = item.get("status") or {}
        return {"status": {key: status[key] for key in keys if key in status} if keys else status}

    return taken


def node(item: Json) -> Json:
    """Labels, what pods can get, conditions and versions; neither addresses nor the ids of a machine."""
    status = item.get("status") or {}
    conditions = [{key: condition.get(key) for key in SPOKEN} for condition in status.get("conditions") or []]
    info = status.get("nodeInfo") or {}
    fields = {"allocatable": status.get("allocatable") or {}, "conditions": conditions}
    fields["nodeInfo"] = {key: info[key] for key in RUNTIME if key in info}
    return {"labels": item["metadata"].get("labels") or {}, "status": fields}


def pod(item: Json) -> Json:
    """Phase, why it waits, and each container's image, digest and state; nothing of its specification."""
    status = item.get("status") or {}
    fields = {key: status[key] for key in ("phase", "reason", "message", "conditions") if key in status}
    fields["containers"] = [
        {
            key: container[key]
            for key in ("name", "image", "imageID", "ready", "restartCount", "state", "lastState")
            if key in container
        }
        for container in containers(item)
    ]
    return {"status": fields, "node": (item.get("spec") or {}).get("nodeName", "")}


def containers(item: Json) -> list[Json]:
    """Return the statuses of a pod's containers, those that run first included."""
    status = item.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def missing(item: Json) -> Json:
    """Phase of a ClusterServiceVersion, and which of its requirements are not met."""
    status = item.get("status") or {}
    fields = {key: status[key] for key in ("phase", "reason", "message") if key in status}
    unmet = [
        requirement
        for requirement in status.get("requirementStatus") or []
        if requirement.get("status") not in ("Present", "Created")
    ]
    if unmet:
        fields["requirementStatus"] = [{key: requirement.get(key, "") for key in REQUIREMENT} for requirement in unmet]
    return {"status": fields}


class Observer:
    """Looks at a cluster again and again; `objects` are those of the last pass, `unread` says what could not be read and why."""

    def __init__(self, api: PlatformApi, namespace: str, builds: str) -> None:
        """`namespace` is that of the jobs, `builds` where images are built; what to look for is in the tables of the role platform."""
        tables = {name.removeprefix("__platform_"): value for name, value in yaml.safe_load(TABLES.read_text()).items()}
        self.table, self._resources, self._brings = tables["table"], tables["resources"], tables["brings"]
        self._others = [*tables["queued"], *tables["crds"], tables["initialization"]]
        self._api, self._own, self._builds = api, namespace, builds
        self.unread: dict[str, str] = {}
        self.objects: dict[str, list[Json]] = {}

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Our own, the operators', and those that they make."""
        namespaces = {self._own, self._builds}
        for entry in self.table.values():
            namespaces |= {entry["namespace"], *entry.get("makes_namespaces", [])}
        for initialization in self.objects.get(INITIALIZATION, []):
            namespaces.add((initialization.get("spec") or {}).get("applicationsNamespace", ""))
        return tuple(sorted(namespaces - {""}))

    def look(self) -> tuple[list[Seen], set[str]]:
        """Return what each object reports, and the kinds that could be listed completely.

        A server that does not answer ends the pass: each further request would wait as long.
        """
        seen: list[Seen] = []
        listed: dict[str, bool] = {}
        objects: dict[str, list[Json]] = {}
        for source in self._sources():
            try:
                items = self._list(source)
            except Unreachable as error:
                self._away(error)
                return seen, set()
            listed[source.kind] = listed.get(source.kind, True) and items is not None
            for item in items or []:
                metadata = item["metadata"]
                objects.setdefault(source.kind, []).append(item)
                place = Place(source.kind, metadata.get("namespace") or "", metadata["name"])
                seen.append(Seen(place, source.fields(item), source.file))
        self.objects = objects
        return seen, {kind for kind, complete in listed.items() if complete}

    def _sources(self) -> Iterator[Source]:
        everything, places = status_of(), self.namespaces

        def here(item: Json) -> bool:
            return item["metadata"].get("namespace") in places

        olm = status_of("state", "currentCSV", "installedCSV", "conditions", "catalogHealth")
        yield Source(OLM, "Subscription", "olm", olm, keep=here)
        yield Source(OLM, "InstallPlan", "olm", status_of("phase", "message", "conditions"), keep=here)
        own = (("labelSelector", "!olm.copiedFrom"),)  # OLM shows an operator for all namespaces in each of them
        yield Source(OLM, CSV, "olm", missing, query=own, keep=here)
        yield Source(OLM, "CatalogSource", "olm", status_of("connectionState", "message", "reason"))
        crds = tuple(entry["crd"] for entry in self.table.values() if entry.get("crd"))
        crds += tuple(bring["name"] for bring in [*self._brings.values(), *self._others] if bring["kind"] == CRD)
        yield Source("apiextensions.k8s.io/v1", CRD, "crds", status_of("conditions"), names=tuple(dict.fromkeys(crds)))
        for name, resource in [*self._resources.items(), *self._brings.items()]:
            if resource["kind"] != CRD:
                named = (resource["name"],) if resource.get("by_name") or resource["kind"] == "Deployment" else ()
                spaces = (resource["namespace"],) if resource["kind"] == "Deployment" else ("",)
                yield Source(resource["apiVersion"], resource["kind"], name, everything, spaces, named)
        made = {
            resource["kind"] for resource in self._resources.values()
        }  # Kueue, which the role makes where OpenShift AI does not
        for name, each in self.table.items():
            for leftover in each.get("leftovers", []):
                if leftover["kind"] not in made:
                    yield Source(leftover["apiVersion"], leftover["kind"], name, everything)
        yield Source("v1", "Node", "nodes", node)
        for kind in jobs.KINDS.values():
            yield Source(kind.group_version, kind.kind, "workload", everything, (self._own,))
        for version, kind in (
            ("jobset.x-k8s.io/v1alpha2", "JobSet"),
            (kueue.NEWEST, "Workload"),
            (kueue.NEWEST, "LocalQueue"),
            ("serving.kserve.io/v1beta1", "InferenceService"),
            ("batch/v1", "Job"),
        ):
            yield Source(version, kind, "workload", everything, (self._own,))
        yield Source("apps/v1", "DaemonSet", "workload", everything, (self._own,), (PREPULL,))
        conditions = status_of("phase", "reason", "message")
        yield Source("build.openshift.io/v1", "Build", "workload", conditions, (self._builds,))
        yield Source("image.openshift.io/v1", "ImageStream", "workload", everything, (self._builds,))
        yield Source(OPENSHIFT, "ClusterVersion", "", status_of("desired", "history", "conditions"))
        yield Source("v1", "Pod", "", pod, places)

    def file(self, sequences: str) -> str:
        """Return the name of a file of statuses: an operator's has the release that is installed, where OLM tells."""
        if sequences not in self.table:
            return sequences
        entry = self.table[sequences]
        csv = str((self.subscription(entry).get("status") or {}).get("installedCSV") or "")
        numbers = csv.partition(".")[2].removeprefix("v").split(".")
        release = f"-{'.'.join(numbers[:2])}" if csv else ""
        return f"{FILES.get(sequences, sequences)}{release}"

    def subscription(self, entry: Json) -> Json:
        """Return the Subscription of an operator of the table as it was in the last pass, {} without one."""
        subscriptions = self.objects.get("Subscription", [])
        return next((each for each in subscriptions if (each.get("spec") or {}).get("name") == entry["package"]), {})

    def events(self) -> list[Json]:
        """Return the events of these namespaces."""
        places = self.namespaces
        try:
            return self._list(Source("v1", "Event", "", status_of(), places)) or []
        except Unreachable as error:
            self._away(error)
            return []

    def _away(self, error: Unreachable) -> None:
        """Remember it, also when the server is back: something may have been missed."""
        self.unread["API server"] = f"did not answer for a while: {error}"

    def log(self, namespace: str, name: str, container: str, lines: int, previous: bool) -> str:
        """Return a container's last lines, empty where there are none or they may not be read."""
        query: Json = {"tailLines": lines} | ({"previous": "true"} if previous else {})
        try:
            return self._api.log(namespace, name, container, **query)
        except (ApiError, Unreachable) as error:
            self.unread["log of a pod"] = str(error)
            return ""

    def _list(self, source: Source) -> list[Json] | None:
        """Return the objects; none where the kind is not served, None where they could not be read."""
        items: list[Json] = []
        try:
            version = self._version(source)
            for namespace in source.namespaces:
                path = self._api.path(version, source.kind, namespace) if version else None
                if path is None:
                    return []
                if source.names:
                    items += [item for name in source.names if (item := self._api.get(f"{path}/{name}"))]
                else:
                    items += self._api.items(path, **dict(source.query))
        except ApiError as error:
            self.unread[source.kind] = str(error)
            return None
        self.unread.pop(source.kind, None)
        return [item for item in items if source.keep(item)]

    def _version(self, source: Source) -> str:
        """Return the version to read: OpenShift AI's own kinds are told apart by release, and read in the preferred one."""
        if source.kind not in (INITIALIZATION, COMPONENTS):
            return kueue.version(self._api, source.api_version)
        group = self._api.get(f"/apis/{source.api_version.partition('/')[0]}") or {}
        return str((group.get("preferredVersion") or {}).get("groupVersion") or "")


def troubled(item: Json) -> bool:
    """Tell whether the pod failed, or a container of it keeps ending."""
    if (item.get("status") or {}).get("phase") == "Failed":
        return True
    for container in containers(item):
        ended = [(container.get(key) or {}).get("terminated") or {} for key in ("state", "lastState")]
        waits = ((container.get("state") or {}).get("waiting") or {}).get("reason", "")
        if "BackOff" in waits or any(each.get("exitCode") for each in ended):
            return True
    return False


def images(pods: list[Json]) -> dict[str, Any]:
    """Return the digest that each image had on the nodes, by its name in the pods."""
    digests: dict[str, set[str]] = {}
    for each in pods:
        for container in containers(each):
            if container.get("imageID"):
                digests.setdefault(str(container.get("image")), set()).add(str(container["imageID"]))
    return {name: sorted(ids) for name, ids in sorted(digests.items())}
