"""A bundle from a cluster, laid over our files: what the cluster reported is replayed in the place of ours.

The stand-ins' own part stays ours, as no bundle can tell it: what operators make and deny, and the sequences of what the cluster did
not have. A bundle names its sequences by object (plugins/plugin_utils/recording.py), ours are named by kind and situation.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from api_server import recorded
from api_server.client import Json

BUNDLE = "statuses"
"""Told to the operators like a fault: the folder of a bundle's statuses."""
CSV, SUBSCRIPTION, NODE, CRD = "ClusterServiceVersion", "Subscription", "Node", "CustomResourceDefinition"
SHARED = ("olm", "crds", "nodes", "workload")
"""Files of a bundle that are no operator's."""
DEFINITIONS = {
    "jobset": "jobsets.jobset.x-k8s.io",
    "kueue": "clusterqueues.kueue.x-k8s.io",
    "storagecluster": "storageclusters.ocs.openshift.io",
}
"""The definition by which a bundle tells when a step `makes` an API."""
FEATURES, GPUS = "feature.node.kubernetes.io/", "nvidia.com/"
ELSEWHERE = ("Replacing", "Deleting")
"""Phases that a ClusterServiceVersion has on account of its successor."""
ROLES = {"nfd": "nfd", "gpu-operator": "gpu", "jobset": "jobset", "kueue": "kueue", "rhoai": "rhoai"}
"""Names of the files' operators in `platform_operators`."""


def read(folder: Path) -> dict[str, Json]:
    """Return our files by name with a bundle's sequences in them; `folder` is `statuses` of the unpacked bundle.

    ValueError names a file that no stand-in could replay.
    """
    ours: dict[str, Json] = {
        path.stem: copy.deepcopy(recorded.read(path.stem)) for path in recorded.FOLDER.glob("*.yaml")
    }
    theirs = {path.stem: recorded.read(path.stem, folder)["sequences"] for path in sorted(folder.glob("*.yaml"))}
    if not theirs:
        raise ValueError(f"{folder} holds no file: name the folder `statuses` of an unpacked bundle")
    for stem in theirs.keys() - set(SHARED):
        file = ours[_name(stem, sorted(ours))]
        file["sequences"] = _operator(file["sequences"], theirs[stem], theirs.get("crds"))
    ours["olm"]["sequences"] |= _installations(theirs.get("olm", {}))
    for name, file in ours.items():
        if name.startswith("nfd-"):
            file["sequences"] |= _labeled(theirs.get("nodes", {}))
        elif name.startswith("gpu-operator-"):
            file["sequences"] |= _offered(theirs.get("nodes", {}))
    return ours


def wanted(folder: Path) -> Json:
    """Return the variables of an inventory that installs what a bundle's cluster had."""
    releases = {}
    for path in folder.glob("*.yaml"):
        operator, _dash, release = path.stem.rpartition("-")
        if operator in ROLES:
            releases[operator] = release
    result: Json = {"platform_operators": sorted(ROLES[one] for one in releases)}
    channels = {"gpu-operator": ("gpu", "v"), "kueue": ("kueue", "stable-v")}
    result["platform_channels"] = {
        channels[one][0]: f"{channels[one][1]}{release}" for one, release in releases.items() if one in channels
    }
    return result | ({"trainlab_platform_release": releases["rhoai"]} if "rhoai" in releases else {})


def _name(stem: str, ours: list[str]) -> str:
    """Return our file for a bundle's: of the same release, or the only one of this operator."""
    if stem in ours:
        return stem
    operator = stem.rpartition("-")[0] or stem
    same = [name for name in ours if name.rpartition("-")[0] == operator]
    if len(same) != 1:
        choice = (
            f"rename it to one of {', '.join(same)}" if same else f"leave it out, or add {stem}.yaml to our statuses"
        )
        raise ValueError(f"{stem}.yaml: there is no operator of this name and release to replay it; {choice}")
    return same[0]


def kind_of(title: str) -> str:
    """Return the kind that a sequence is of."""
    return title.partition(",")[0]


def _operator(ours: Json, theirs: Json, definitions: Json | None) -> Json:
    """Return an operator's sequences: theirs by kind, the first object of each, and ours of other kinds."""
    said: dict[str, list[Json]] = {}
    for title, steps in theirs.items():
        said.setdefault(kind_of(title), [step for step in steps if "status" in step])
    for title, steps in ours.items():
        makes = next((step["makes"] for step in steps if step.get("makes")), "")
        if makes and said.get(title):
            said[title] = _making(said[title], makes, definitions)
    return {title: steps for title, steps in ours.items() if not said.get(kind_of(title))} | {
        kind: steps for kind, steps in said.items() if steps
    }


def _making(steps: list[Json], makes: str, definitions: Json | None) -> list[Json]:
    """Return the steps, and with which of them an API came: at its end where the bundle has no definitions at all."""
    if definitions is None:
        at = len(steps) - 1
    else:
        came = definitions.get(f"{CRD}, {DEFINITIONS[makes]}")
        if not came:
            return steps
        at = max((number for number, step in enumerate(steps) if step["at"] <= came[0]["at"]), default=0)
    return [step | ({"makes": makes} if number == at else {}) for number, step in enumerate(steps)]


def _installations(theirs: Json) -> Json:
    """Return OLM's sequences by operator: `ClusterServiceVersion of nfd`, `Subscription of nfd`."""
    result: dict[str, list[Json]] = {}
    for title, steps in theirs.items():
        kind, name = kind_of(title), title.rpartition("/")[2]
        if kind == CSV:
            installed = [
                step for step in steps if step["status"].get("phase") and step["status"]["phase"] not in ELSEWHERE
            ]
            if installed:  # of several versions the last
                result[f"{CSV} of {name.partition('.')[0]}"] = installed
        elif kind == SUBSCRIPTION:
            early = [
                step
                | {"status": {key: step["status"][key] for key in ("state", "conditions") if key in step["status"]}}
                for step in steps
                if not step["status"].get("currentCSV")
            ]
            result[f"{SUBSCRIPTION} of {name}"] = early
    return result


def _labeled(theirs: Json) -> Json:
    """Return what Node Feature Discovery labeled: of a node with an NVIDIA GPU and of one without, where the bundle has them."""
    result: dict[str, list[Json]] = {}
    for steps in theirs.values():
        labels = [{"source": step["source"], "labels": _beginning(step.get("labels", {}), FEATURES)} for step in steps]
        title = f"{NODE}, NVIDIA GPU" if has_gpu(steps[-1].get("labels", {})) else NODE
        result.setdefault(title, _changes(labels))
    return result


def _offered(theirs: Json) -> Json:
    """Return what the GPU operator's pods made of a node that has a GPU."""
    result: dict[str, list[Json]] = {}
    for steps in theirs.values():
        if has_gpu(steps[-1].get("labels", {})):
            offers = [_beginning(step["status"].get("allocatable", {}), GPUS) for step in steps]
            made = [
                {"source": step["source"], "labels": _beginning(step.get("labels", {}), GPUS)}
                | {"status": {"capacity": offer, "allocatable": offer} if offer else {}}
                for step, offer in zip(steps, offers, strict=True)
            ]
            result.setdefault(NODE, _changes(made))
    return result


def has_gpu(labels: Json) -> bool:
    """Tell whether Node Feature Discovery found a device of NVIDIA."""
    return any(key.startswith(f"{FEATURES}pci-") and "10de" in key and value == "true" for key, value in labels.items())


def _beginning(values: Json, prefix: str) -> Json:
    return {key: value for key, value in values.items() if key.startswith(prefix)}


def _changes(steps: list[Json]) -> list[Json]:
    """Return the steps that differ from the one before, whatever their lines."""
    bare = [{key: value for key, value in step.items() if key != "source"} for step in steps]
    return [step for at, step in enumerate(steps) if at == 0 or bare[at] != bare[at - 1]]


def as_of(status: Json, last: Json, generation: int, version: str) -> Json:
    """Return a recorded status with the numbers of this object: `last` is the sequence's last, that of the latest edit and operator."""
    said: Json = dict(status)
    seen: Any = said.get("observedGeneration")
    if seen is not None:
        said["observedGeneration"] = max(generation - (last.get("observedGeneration", seen) - seen), 0)
    newest: Any = (last.get("release") or {}).get("version")
    if newest and (said.get("release") or {}).get("version") == newest:
        said["release"] = said["release"] | {"version": version}
    return said
