"""Action plugin run_results: see plugins/modules/run_results.py."""

from __future__ import annotations

import base64
import binascii
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ..plugin_utils import labels
from ..plugin_utils.documented import DocumentedAction
from ..plugin_utils.kube import Api, ApiError, Json, connect
from ..plugin_utils.waiting import StatusLines, polls, watch_pods

UNSCHEDULABLE_SECONDS = 30.0
QUIET_SECONDS = 5.0
# small files only: a kubelet rotates a container's log at 10 MiB
SCRIPT = (
    '[ -d "/runs/$TRAINLAB_RUN" ] || exit 0; cd "/runs/$TRAINLAB_RUN" && find . -maxdepth 1 -type f -name "*.[jh][st]*" -size -3000k -print0 '
    "| tar --null --files-from=- -czf - | base64"
)


class ActionModule(DocumentedAction):
    """Copies JSON files and report of a run to the controller."""

    def run_on_controller(self, args: Json) -> Json:
        """Return path, files, report, gate; AnsibleActionFail when the volume cannot be read."""
        folder = Path(args["dest"]).expanduser() / args["run"]
        if self.check:
            return {"changed": False, "path": str(folder), **_known(folder)}
        api, _version = connect(args["kubeconfig"], args["kube_context"])
        text = _read(api, args)
        if not text.strip():  # no such folder: even an archive of nothing is not empty
            if args["required"]:
                raise AnsibleActionFail(
                    f"run {args['run']} is not in claim {args['claim']} of namespace {args['namespace']}; train it first"
                )
            return {"changed": False, "path": str(folder), "files": [], "report": {}, "gate": {}}
        files = unpacked(text, args["run"])
        changed = _write(folder, files)
        return {"changed": changed, "path": str(folder), **_known(folder)}


def unpacked(text: str, run: str) -> dict[str, bytes]:
    """Return the files of the archive in a pod's log; AnsibleActionFail when it holds none."""
    try:
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(text, validate=False)), mode="r:gz") as archive:
            result = {}
            for member in archive.getmembers():
                content = archive.extractfile(member)
                if content is not None:
                    result[Path(member.name).name] = content.read()
            return result
    except (binascii.Error, tarfile.TarError, EOFError, OSError) as error:
        raise AnsibleActionFail(f"run {run} could not be read from its volume ({error}): {text[-500:]}") from error


def _write(folder: Path, files: dict[str, bytes]) -> bool:
    """Write what differs, each file whole or not at all; tell whether anything did."""
    changed = False
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        target = folder / name
        if target.is_file() and target.read_bytes() == content:
            continue
        part = target.with_name(f".{name}.part")
        part.write_bytes(content)
        part.replace(target)
        changed = True
    return changed


def _known(folder: Path) -> Json:
    names = sorted(each.name for each in folder.iterdir() if each.is_file()) if folder.is_dir() else []
    return {"files": names, "report": _json(folder / "report.json"), "gate": _json(folder / "gate.json")}


def _json(file: Path) -> Json:
    if not file.is_file():
        return {}
    try:
        result: Json = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AnsibleActionFail(f"{file}: not JSON ({error}); remove the file and run playbooks/report.yml") from error
    return result


def _read(api: Api, args: Json) -> str:
    """Run the reader pod to its end and return its log."""
    lines, namespace = StatusLines(), args["namespace"]
    with _pod(api, args) as name:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        for _poll in polls(args["timeout"], f"pod {name}", f"{api.kubectl} -n {namespace} describe pod {name}"):
            pod = api.get(path)
            if pod is None:
                raise AnsibleActionFail(f"pod {name} was removed while it read the volume")
            if pod.get("status", {}).get("phase") == "Succeeded":
                return api.log(namespace, name, "read")
            if lines.seconds > QUIET_SECONDS:
                trouble = watch_pods(api, namespace, [pod], lines, UNSCHEDULABLE_SECONDS)
                if trouble:
                    raise AnsibleActionFail(f"the results of {args['run']} cannot be read: {trouble}")
    raise AssertionError("polls() ends with an error")


@contextmanager
def _pod(api: Api, args: Json) -> Iterator[str]:
    """Create the pod, and remove it whatever happens; one left by a killed playbook is replaced."""
    name = f"{args['run']}-read"
    pods = f"/api/v1/namespaces/{args['namespace']}/pods"
    _delete(api, f"{pods}/{name}")
    try:
        api.send("POST", pods, reader(name, args))
    except ApiError as error:
        raise AnsibleActionFail(f"pod {name} cannot be created in {args['namespace']}: {error}") from error
    try:
        yield name
    finally:
        _delete(api, f"{pods}/{name}")


def _delete(api: Api, path: str) -> None:
    if api.get(path) is None:
        return
    try:
        api.send("DELETE", path, {"gracePeriodSeconds": 0})
    except ApiError as error:
        if error.status != 404:
            raise AnsibleActionFail(f"{path} cannot be removed: {error}") from error
    for _poll in polls(30, f"removal of {path}", "look for its finalizers"):
        if api.get(path) is None:
            return


def reader(name: str, args: Json) -> dict[str, Any]:
    """Return the pod: passes the `restricted` level, may read the claim, has no token."""
    container: Json = {
        "name": "read",
        "image": args["image"],
        "imagePullPolicy": args["pull_policy"],
        "command": ["/bin/sh", "-ec", SCRIPT],
        "env": [{"name": "TRAINLAB_RUN", "value": args["run"]}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "runs", "mountPath": "/runs", "readOnly": True}],
    }
    if args["sub_path"]:
        container["volumeMounts"][0]["subPath"] = args["sub_path"]
    spec: Json = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "runs", "persistentVolumeClaim": {"claimName": args["claim"]}}],
        **{key: value for key, value in args["placement"].items() if value},
    }
    if args["pull_secret"]:
        spec["imagePullSecrets"] = [{"name": args["pull_secret"]}]
    carried = {
        "app.kubernetes.io/name": "trainjob",
        "app.kubernetes.io/instance": args["release"],
        "app.kubernetes.io/component": "reader",
        "app.kubernetes.io/part-of": "trainlab",
        labels.RUN: args["run"],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": carried}, "spec": spec}
