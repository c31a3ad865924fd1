"""`trainlab promote`: wait for the gate, then apply the InferenceService; runs in the promotion Job, without torch.

The Job's Role allows reading one ServingRuntime and creating and patching one InferenceService, nothing more.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config.yamlfile import read_mapping
from trainlab.errors import UserError
from trainlab.run.kube import Kube

POLL, HEARTBEAT = 2.0, 30.0  # seconds
# kind -> (apiVersion, plural) of what a manifest or an owner may be
KINDS = {
    "InferenceService": ("serving.kserve.io/v1beta1", "inferenceservices"),
    "ServingRuntime": ("serving.kserve.io/v1alpha1", "servingruntimes"),
}


def promote(run_dir: Path, manifest: Path, namespace: str, owner: str, timeout: float) -> int:
    """Wait up to `timeout` minutes for RUN_DIR/gate.json; apply `manifest` if it promotes; return exit code 0.

    The object gets an ownerReference to `owner` (KIND/NAME), so that it is deleted with the release. Raises UserError
    when no gate appears in time, for a wrong manifest, and when the API server refuses.
    """
    kind, name = _owner(owner)
    wanted = _service(manifest, namespace)
    gate = wait_for_gate(run_dir / "gate.json", timeout * 60)
    for reason in gate["reasons"]:
        print(f"trainlab: {reason}", flush=True)
    if not gate["promoted"]:
        print("trainlab: not promoted: no InferenceService is created", flush=True)
        return 0
    version, plural = KINDS[kind]
    with Kube.in_cluster(os.environ) as kube:
        held = kube.get(f"/apis/{version}/namespaces/{namespace}/{plural}/{name}")
        reference = {"apiVersion": version, "kind": kind, "name": name, "uid": held["metadata"]["uid"]}
        # No blockOwnerDeletion: OpenShift lets only those who may update the owner's finalizers set it.
        wanted["metadata"] |= {"namespace": namespace, "ownerReferences": [reference]}
        version, plural = KINDS["InferenceService"]
        kube.apply(f"/apis/{version}/namespaces/{namespace}/{plural}/{wanted['metadata']['name']}", wanted)
    print(f"trainlab: promoted: InferenceService {namespace}/{wanted['metadata']['name']} applied", flush=True)
    return 0


def wait_for_gate(path: Path, seconds: float) -> dict[str, Any]:
    """Return the content of gate.json as soon as it exists; prints a line every 30 s. Raises UserError after `seconds`."""
    began = said = time.monotonic()
    while not path.exists():
        now = time.monotonic()
        if now - began >= seconds:
            raise UserError(
                f"{path}: not there after {seconds / 60:g} minutes; training did not get that far: check the Job's log"
            )
        if now - said >= HEARTBEAT:
            said = now
            print(f"trainlab: waiting for {path} ({now - began:.0f} s)", flush=True)
        time.sleep(min(POLL, seconds))
    gate = files.read_json(path)
    if not isinstance(gate, dict) or not isinstance(gate.get("promoted"), bool) or "reasons" not in gate:
        raise UserError(f"{path}: has no promoted: true or false; regenerate it with `trainlab gate {path.parent}`")
    return gate


def _owner(text: str) -> tuple[str, str]:
    kind, _, name = text.partition("/")
    if kind not in KINDS or not name:
        raise UserError(f"--owner is {text}: must be KIND/NAME, KIND one of {', '.join(sorted(KINDS))}")
    return kind, name


def _service(path: Path, namespace: str) -> dict[str, Any]:
    """Return the manifest, checked to be one InferenceService of this namespace, with plain JSON values."""
    found = read_mapping(path)
    metadata = found.get("metadata")
    if found.get("kind") != "InferenceService" or found.get("apiVersion") != KINDS["InferenceService"][0]:
        raise UserError(
            f"{path}: is {found.get('apiVersion')} {found.get('kind')}; must be an InferenceService (v1beta1)"
        )
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise UserError(f"{path}: metadata.name is missing; name the InferenceService")
    if metadata.get("namespace", namespace) != namespace:
        raise UserError(f"{path}: metadata.namespace is {metadata['namespace']}: must be {namespace}")
    return dict(json.loads(json.dumps(found)))
