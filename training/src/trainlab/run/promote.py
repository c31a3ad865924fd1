"""`trainlab promote`: wait for the gate, then serve the run, for a time or without end (`trainlab end-lease`); without torch.

What it applies is charts/trainjob/templates/_serving.tpl: the ServingRuntime and the phase of this run under names of their own,
then the InferenceService, whose change is the switch from one model to the next. Until then nothing that is served is touched.
"""

import itertools
import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config.loading import read_mapping
from trainlab.errors import UserError
from trainlab.evaluation.gate import read_gate
from trainlab.recipes.adapters import ADAPTERS
from trainlab.run.kube import Kube
from trainlab.run.labels import DOMAIN

UNTIL = f"{DOMAIN}/served-until"
"""Annotation of the InferenceService: a time in UTC, ISO 8601. One without it is served without end."""
RESULTS = ("best_model", "lora_adapter")
INDEX = "model.safetensors.index.json"
POLL = 2.0  # seconds
HEARTBEAT, IDLE_HEARTBEAT = 30.0, 600.0  # seconds between lines, while it trains and before
KINDS = {
    "ServingRuntime": ("serving.kserve.io/v1alpha1", "servingruntimes"),
    "ConfigMap": ("v1", "configmaps"),
    "InferenceService": ("serving.kserve.io/v1beta1", "inferenceservices"),
}
"""Kind -> (apiVersion, plural) of the manifests, in the order in which they are applied."""
SAME_RELEASE = ("app.kubernetes.io/instance", "app.kubernetes.io/part-of")
"""Labels that the ServingRuntimes of a release have in common."""
WRITTEN = ("progress.json", "manifest.json", "phase.json")
"""Files of a run directory that a starting or running job writes."""


class TimeUp(UserError):
    """The gate did not decide in time; the Job's podFailurePolicy knows the code: another try would not change it."""

    code = 3


def promote(run_dir: Path, manifests: Path, namespace: str, owner: str, timeout: float, hours: int = 0) -> int:
    """Wait for RUN_DIR/gate.json; serve the run if it promotes; return exit code 0.

    The wait ends once the training has written nothing for `timeout` minutes; before it begins it may be queued for as long as it takes. `manifests` is a folder
    with KIND.yaml for each of KINDS. What is applied is owned by the ConfigMap `owner`, so that it is deleted with the release.
    With `hours` the InferenceService is served for that long from now.

    Raises TimeUp, and UserError for wrong manifests, for weights that no server could read, and when the API server refuses.
    """
    wanted = {kind: _manifest(manifests / f"{kind.lower()}.yaml", kind, namespace) for kind in KINDS}
    gate = wait_for_gate(run_dir, timeout * 60)
    for reason in gate["reasons"]:
        print(f"trainlab: {reason}", flush=True)
    if not gate["promoted"]:
        print("trainlab: not promoted: what was served before, if anything, stays as it is", flush=True)
        return 0
    check_weights(run_dir)
    with Kube.in_cluster(os.environ) as kube:
        kind = {"kind": "ConfigMap", "apiVersion": KINDS["ConfigMap"][0]}  # one object is answered without its kind
        release = kube.get(_path("ConfigMap", namespace, owner)) | kind
        _prepare(kube, wanted, namespace, release)
        _apply(kube, with_lease(wanted["InferenceService"], hours), namespace, release)
        _delete_replaced(kube, wanted, namespace, release)
    print(f"trainlab: promoted: InferenceService {namespace}/{_name(wanted['InferenceService'])} applied", flush=True)
    return 0


def wait_for_gate(run_dir: Path, seconds: float) -> dict[str, Any]:
    """Return the content of RUN_DIR/gate.json as soon as it exists.

    Raises TimeUp after `seconds` without a sign of life, which is a change of one of the files WRITTEN: a job that is restarted or
    loses its place in a queue has its time anew. Before the first sign there is no limit: a job may be queued for days, and an
    upgrade or uninstall ends this one.
    """
    path = run_dir / "gate.json"
    seen, reported, began, heard = _written(run_dir), time.monotonic(), 0.0, 0.0
    while not path.exists():
        now = time.monotonic()
        if (written := _written(run_dir)) != seen:
            seen, heard, began = written, now, began or now
        if began and now - heard >= seconds:
            raise TimeUp(
                f"{path}: not there, and the training has written nothing for {seconds / 60:g} minutes; it failed, which its job's log "
                "explains, or it waits in its queue again: after its end, repeat this promotion as the notes of the release say"
            )
        if now - reported >= (HEARTBEAT if began else IDLE_HEARTBEAT):
            reported = now
            state = f"for {path} ({now - began:.0f} s)" if began else "for the training to begin"
            print(f"trainlab: waiting {state}", flush=True)
        time.sleep(min(POLL, seconds))
    return read_gate(run_dir)


def _written(run_dir: Path) -> int:
    """Return when the job last wrote, in ns; 0 for never. Only compared with itself: the volume's clock is another machine's."""
    newest = 0
    for name in WRITTEN:
        try:
            newest = max(newest, (run_dir / name).stat().st_mtime_ns)
        except OSError:
            continue
    return newest


def _apply(kube: Kube, manifest: dict[str, Any], namespace: str, owner: dict[str, Any]) -> dict[str, Any]:
    """Apply one object with its owner; return it as the server has it."""
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    # No blockOwnerDeletion: OpenShift lets only those who may update the owner's finalizers set it.
    metadata = manifest["metadata"] | {"namespace": namespace, "ownerReferences": [reference]}
    done = kube.apply(_path(manifest["kind"], namespace, _name(manifest)), manifest | {"metadata": metadata})
    return manifest | {"metadata": metadata | done["metadata"]}


def _prepare(kube: Kube, wanted: Mapping[str, dict[str, Any]], namespace: str, release: dict[str, Any]) -> None:
    """Apply what the server of this run needs, beside the one that answers."""
    runtime = _apply(kube, wanted["ServingRuntime"], namespace, release)
    _apply(kube, wanted["ConfigMap"], namespace, runtime)


def _delete_replaced(kube: Kube, wanted: Mapping[str, dict[str, Any]], namespace: str, release: dict[str, Any]) -> None:
    """Delete the ServingRuntimes that the served one replaces; the garbage collector takes their phases.

    Another promotion of the release may be anywhere between its first request and its last. So what the InferenceService names
    now decides, asked after the list was made; younger ones may be named next; and one that the other has taken away before
    the switch is made again.
    """
    own = _name(wanted["ServingRuntime"])
    born, named = _runtimes(kube, wanted, namespace)
    if named == own and named not in born:
        _prepare(kube, wanted, namespace, release)
        born, named = _runtimes(kube, wanted, namespace)
    for name, when in born.items():
        if named in born and when < born[named]:
            kube.delete(_path("ServingRuntime", namespace, name))


def _runtimes(
    kube: Kube, wanted: Mapping[str, dict[str, Any]], namespace: str
) -> tuple[dict[str, tuple[str, int]], str]:
    """Return the age of each ServingRuntime of the release, by name, and then the name of the one that is served.

    Its age is the second in which it was made, and the resourceVersion, which decides between two of the same second.
    """
    labels = wanted["ServingRuntime"]["metadata"]["labels"]
    selector = ",".join(f"{label}={labels[label]}" for label in SAME_RELEASE)
    items = kube.get(f"{_path('ServingRuntime', namespace)}?labelSelector={selector}").get("items", [])
    service = kube.get(_path("InferenceService", namespace, _name(wanted["InferenceService"])))
    made = ((_name(item), item["metadata"]) for item in items)
    born = {name: (str(metadata["creationTimestamp"]), int(metadata["resourceVersion"])) for name, metadata in made}
    return born, str(service["spec"]["predictor"]["model"]["runtime"])


def _path(kind: str, namespace: str, name: str = "") -> str:
    version, plural = KINDS[kind]
    base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    return f"{base}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def _name(manifest: dict[str, Any]) -> str:
    return str(manifest["metadata"]["name"])


def _manifest(path: Path, kind: str, namespace: str) -> dict[str, Any]:
    """Return a manifest, checked to be of this kind and namespace, with plain JSON values."""
    content = read_mapping(path)
    metadata = content.get("metadata")
    version = KINDS[kind][0]
    if content.get("kind") != kind or content.get("apiVersion") != version:
        raise UserError(f"{path}: is {content.get('apiVersion')} {content.get('kind')}; must be {version} {kind}")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise UserError(f"{path}: metadata.name is missing; name the {kind}")
    if metadata.get("namespace", namespace) != namespace:
        raise UserError(f"{path}: metadata.namespace is {metadata['namespace']}: must be {namespace}")
    if kind == "ServingRuntime" and not {*SAME_RELEASE} <= {*(metadata.get("labels") or {})}:
        raise UserError(f"{path}: metadata.labels: must have {' and '.join(SAME_RELEASE)}; add them")
    return dict(json.loads(json.dumps(content)))


def check_weights(run_dir: Path) -> None:
    """Look at every weight file of the results of a run: it is there, and as long as its header says; no tensor is read.

    A full volume or a killed copy leaves half a file. Raises UserError with the first file that is missing, cut short or no safetensors file.
    """
    from safetensors import SafetensorError, safe_open  # late: the other commands run where it is not installed

    remedy = f"remove {run_dir} and train again"
    folders = [run_dir / result for result in RESULTS]
    if (run_dir / ADAPTERS).exists():
        folders = [run_dir.parent / owner["run"] / RESULTS[1] for owner in files.read_json(run_dir / ADAPTERS).values()]
    paths = sorted(itertools.chain.from_iterable(folder.glob("*.safetensors") for folder in folders))
    index = run_dir / RESULTS[0] / INDEX
    shards = set(files.read_json(index)["weight_map"].values()) if index.exists() else set()
    if lost := sorted(shards - {path.name for path in paths}):
        raise UserError(f"{run_dir / RESULTS[0] / lost[0]}: not there, but {INDEX} names it; {remedy}")
    if not paths:
        raise UserError(f"{run_dir}: no weights in {' or '.join(RESULTS)}; {remedy}")
    for path in paths:
        try:
            with safe_open(path, "numpy"):
                pass
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path}: half written or no safetensors file ({error}); {remedy}") from error


def with_lease(service: Mapping[str, Any], hours: int) -> dict[str, Any]:
    """Return an InferenceService that is served for `hours` from now; 0 serves it without end."""
    if not hours:
        return dict(service)
    until = (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="seconds")
    metadata = service["metadata"]
    return {**service, "metadata": metadata | {"annotations": {**(metadata.get("annotations") or {}), UNTIL: until}}}


def end_lease(namespace: str, name: str) -> int:
    """Delete the InferenceService `name` if its time is over; return exit code 0. What it was made of stays for another promotion.

    Raises UserError for an annotation that is no time, and when the API server refuses.
    """
    path = f"/apis/serving.kserve.io/v1beta1/namespaces/{namespace}/inferenceservices/{name}"
    with Kube.in_cluster(os.environ) as kube:
        print(f"trainlab: InferenceService {namespace}/{name} {_ended(kube, path)}", flush=True)
    return 0


def _ended(kube: Kube, path: str) -> str:
    service = kube.find(path)
    if service is None:
        return "is not there: nothing is served"
    text = (service["metadata"].get("annotations") or {}).get(UNTIL)
    if text is None:
        return "is served without end"
    try:
        over = datetime.fromisoformat(text) <= datetime.now(UTC)
    except (TypeError, ValueError):
        raise UserError(
            f"{path}: annotation {UNTIL} is '{text}'; write a time with its zone such as 2026-11-24T10:00:00+00:00, or remove it"
        ) from None
    if not over:
        return f"is served until {text}"
    # A promotion may have begun its time anew since.
    if kube.delete(path, version=service["metadata"]["resourceVersion"]):
        return f"was served until {text}, and is deleted"
    return "has just changed, and stays"
