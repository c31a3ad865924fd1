"""What the roles image, train and serve would say of what they wait for: pure functions over the objects of one pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import builds, jobs
from .platform_ready import FAILED, READY, WAITING, Verdict, judge
from .pods import pulled
from .recording import Place

Json = dict[str, Any]
WORDS = {"succeeded": READY, "failed": FAILED}


def verdicts(objects: dict[str, list[Json]]) -> dict[str, Verdict]:
    """Return the verdicts by title, of the objects by kind: builds, prepull, jobs and their pods, promotions, servers."""
    found: dict[str, Verdict] = {}
    for title, build in _each(objects, "Build"):
        state = READY if builds.phase(build) == builds.COMPLETE else WAITING
        found[title] = Verdict(FAILED if builds.phase(build) in builds.FAILED else state, builds.says(build))
    for title, daemons in _each(objects, "DaemonSet"):
        wanted, ready = pulled(daemons)
        found[title] = Verdict(READY if ready == wanted else WAITING, f"images on {ready or 0} of {wanted} nodes")
    for kind in (*jobs.KINDS.values(), jobs.BATCH):
        for title, job in _each(objects, kind.kind):
            word, message = jobs.outcome(kind, job)
            found[title] = Verdict(WORDS.get(word, WAITING), f"{word}: {message}" if message else word)
            if kind != jobs.BATCH:
                found[f"pods of {title}"] = _scheduled(kind, job, objects.get("Pod", []))
    for title, service in _each(objects, "InferenceService"):
        found[title] = judge(service, {"condition": "Ready"})
    return found


def _each(objects: dict[str, list[Json]], kind: str) -> Iterator[tuple[str, Json]]:
    for thing in objects.get(kind, []):
        metadata = thing["metadata"]
        yield f"{kind} {Place(kind, metadata.get('namespace') or '', metadata['name']).full_name}", thing


def _scheduled(kind: jobs.Kind, job: Json, pods: list[Json]) -> Verdict:
    """Judge whether each pod of a job has a node; a job that has ended is past that, whatever is left of its pods."""
    if jobs.outcome(kind, job)[0] in WORDS:
        return Verdict(READY, "the job has ended")
    label = job["metadata"]["name"]
    mine = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(kind.pod_label) == label]
    placed = [pod for pod in mine if (pod.get("spec") or {}).get("nodeName")]
    return Verdict(READY if mine and len(placed) == len(mine) else WAITING, f"{len(placed)} of {len(mine)} have a node")
