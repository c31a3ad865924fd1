"""Action plugin operators: see plugins/modules/operators.py.

What decides whether an operator is ours is the owner label on all of its objects but the namespace, which may have been there.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail

from ..plugin_utils import labels
from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import Json, condition
from ..plugin_utils.platform_api import remove, title
from ..plugin_utils.playbooks import words
from ..plugin_utils.waiting import ApiRetries, StatusLines, watch_pods
from ..plugin_utils.webhook_certificate import made

OWNER = "operators"
"""Value of the owner label."""
DEFINITION, NAMESPACE, WEBHOOKS = "CustomResourceDefinition", "Namespace", "WebhookConfiguration"
SETTINGS = (("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job"), ("v1", "PersistentVolumeClaim"))
"""What people may have in an operator's namespace."""
PLACEHOLDER = "Cg=="
"""In the webhooks of an operator that makes no certificate (cluster/manifests): the authority of the one that is made here."""
UNSCHEDULABLE_SECONDS, SHOWN = 120.0, 5


class ActionModule(ClusterAction):
    """Applies or removes one operator after the other, and waits for all together."""

    OPERATION = "operators"

    def run_on_cluster(self, args: Json) -> Json:
        """Return changed, objects and kept."""
        self._args, self._lines, self._done, self._kept = args, StatusLines(), list[str](), list[str]()
        operators = {name: self._documents(name) for name in args["names"]}
        if args["state"] == "absent":
            self._remove(operators)
        else:
            there = {name: self._there(documents) for name, documents in operators.items()}
            mine = {name: documents for name, documents in operators.items() if not self._foreign(name, there[name])}
            for name, documents in mine.items():
                self._apply(documents, there[name])
            if not self.check:
                self._wait([one for documents in mine.values() for one in documents if one["kind"] == "Deployment"])
        return {"changed": bool(self._done), "objects": self._done, "kept": self._kept}

    def _documents(self, name: str) -> list[Json]:
        """Read an operator's manifests, in the order in which they are applied: webhooks last, as they hold up what comes after."""
        text = (Path(self._args["folder"]) / f"{name}.yaml").read_text(encoding="utf-8")
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        documents: list[Json] = [one for one in yaml.load_all(text, loader) if one]
        for one in documents:
            metadata = one["metadata"]
            metadata["labels"] = (metadata.get("labels") or {}) | {labels.OWNER: OWNER}
            if one["kind"] == "Deployment" and self._args["images"].get(name):
                (container,) = one["spec"]["template"]["spec"]["containers"]
                container["image"] = self._args["images"][name]
        return sorted(documents, key=_place)

    def _there(self, documents: list[Json]) -> dict[str, Json]:
        """Return what exists, by title."""
        found = {title(one): self._look(one) for one in documents}
        return {name: one for name, one in found.items() if one is not None}

    def _look(self, one: Json) -> Json | None:
        metadata = one["metadata"]
        found = self.api.look(one["apiVersion"], one["kind"], metadata["name"], metadata.get("namespace", ""))
        return found and found | {"apiVersion": one["apiVersion"], "kind": one["kind"]}

    def _foreign(self, name: str, there: dict[str, Json]) -> bool:
        """Tell, and say, that an operator is somebody else's."""
        others = [key for key, one in there.items() if one["kind"] != NAMESPACE and not _ours(one)]
        if others:
            shown = ", ".join(others[:SHOWN]) + (", ..." if len(others) > SHOWN else "")
            self._kept.append(f"{name} is there and not ours, and stays as it is: {shown}")
        return bool(others)

    def _apply(self, documents: list[Json], there: dict[str, Json]) -> None:
        self._certify(documents, there)
        for one in documents:
            before = there.get(title(one))
            if before is not None and not _ours(before):  # a namespace
                continue
            if self.check and self.api.resource(one["apiVersion"], one["kind"]) is None:
                continue
            done = self.api.put(one, before, self.check)
            if done != "unchanged":
                self._done.append(f"{done}: {title(one)}")

    def _certify(self, documents: list[Json], there: dict[str, Json]) -> None:
        """Put the authority of a certificate into the webhooks that ask for one, and a Secret with it before them, unless it is there."""
        configs = [
            hook["clientConfig"]
            for one in documents
            for hook in one.get("webhooks") or []
            if hook["clientConfig"].get("caBundle") == PLACEHOLDER
        ]
        if not configs:
            return
        service = configs[0]["service"]
        (name,) = {
            volume["secret"]["secretName"]
            for one in documents
            if one["kind"] == "Deployment"
            for volume in one["spec"]["template"]["spec"].get("volumes") or []
            if "secret" in volume
        }
        secret: Json = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
        secret["metadata"] = {"name": name, "namespace": service["namespace"], "labels": {labels.OWNER: OWNER}}
        before = self._look(secret)
        secret["data"] = before["data"] if before else made(f"{service['name']}.{service['namespace']}.svc")
        for config in configs:
            config["caBundle"] = secret["data"]["ca.crt"]
        documents.insert(next(at for at, one in enumerate(documents) if one["kind"] == "Deployment"), secret)
        if before:
            there[title(secret)] = before

    def _wait(self, deployments: list[Json]) -> None:
        retries, pending = ApiRetries(self._lines), {title(one): one for one in deployments}
        end = time.monotonic() + self._args["timeout"]
        while pending:
            for name, one in list(pending.items()):
                metadata = one["metadata"]
                found = retries.ask(lambda one=one: self._look(one))  # type: ignore[misc]
                if found and _available(found):
                    self._lines.say(f"{name}: available")
                    del pending[name]
                    continue
                space = metadata["namespace"]
                selector = ",".join(f"{key}={value}" for key, value in one["spec"]["selector"]["matchLabels"].items())
                pods = retries.ask(lambda: self.api.items(f"/api/v1/namespaces/{space}/pods", selector))  # noqa: B023
                if trouble := watch_pods(self.api, space, pods or [], self._lines, UNSCHEDULABLE_SECONDS):
                    raise AnsibleActionFail(f"{name} cannot become available: {trouble}")
                if time.monotonic() > end:
                    raise AnsibleActionFail(
                        f"{name} is not available after {self._args['timeout']:.0f} s; see `{self.api.kubectl} -n {space} describe "
                        "deployments,pods`; raise operators_timeout, or run the playbook again: it continues where it stopped"
                    )
            if pending:
                self._lines.alive(f"still waiting for {', '.join(pending)}")
                time.sleep(self._args["poll"])

    def _remove(self, operators: dict[str, list[Json]]) -> None:
        """Remove all that is ours, the last one first."""
        things: list[Json] = []
        for name, documents in reversed(operators.items()):
            found = self._there(documents)
            if not self._foreign(name, found):
                things += [one for one in reversed(found.values()) if _ours(one)]
        self._refuse(things)
        stages = (
            [one for one in things if one["kind"].endswith(WEBHOOKS)],
            [
                one for one in things if one["kind"] == DEFINITION
            ],  # while the operators are there, which remove finalizers
            [
                one
                for one in things
                if not one["kind"].endswith(WEBHOOKS) and one["kind"] not in (DEFINITION, NAMESPACE)
            ],
            self._secrets(things),
            [one for one in things if one["kind"] == NAMESPACE],
        )
        for stage in stages:
            self._done += [f"{'would delete' if self.check else 'deleted'}: {title(one)}" for one in stage]
            if not self.check:
                remove(self.api, stage, self._args["timeout"], self._args["poll"], self._lines)

    def _secrets(self, things: list[Json]) -> list[Json]:
        """Return the certificates that were made here."""
        spaces = {one["metadata"]["namespace"] for one in things if one["kind"] == "Deployment"}
        known = {title(one) for one in things}
        found = [
            one | {"apiVersion": "v1", "kind": "Secret"}
            for space in sorted(spaces)
            for one in self.api.items(f"/api/v1/namespaces/{space}/secrets", f"{labels.OWNER}={OWNER}")
        ]
        return [one for one in found if title(one) not in known]

    def _refuse(self, things: list[Json]) -> None:
        """AnsibleActionFail while people use what would go, unless they agreed to lose it."""
        used: list[str] = []
        for crd in (one for one in things if one["kind"] == DEFINITION):
            spec = crd["spec"]
            version = next(one["name"] for one in spec["versions"] if one["served"])
            used += self._others(f"{spec['group']}/{version}", spec["names"]["kind"])
        for space in (one["metadata"]["name"] for one in things if one["kind"] == NAMESPACE):
            used += [name for kind in SETTINGS for name in self._others(*kind, space)]
        if not used:
            return
        shown = ", ".join(used[:SHOWN]) + (f" and {len(used) - SHOWN} more" if len(used) > SHOWN else "")
        if self.check:
            self._kept.append(f"would be refused: in use by {shown}")
        elif not self._args["remove_data"]:
            raise AnsibleActionFail(
                f"nothing was removed, because others use it: {shown}; delete what is not needed (releases of the chart: "
                f"`ansible-playbook {words('teardown')}`), and run it again. operators_remove_data=true deletes all of that, too, "
                "for good"
            )

    def _others(self, api_version: str, kind: str, namespace: str = "") -> list[str]:
        path = self.api.path(api_version, kind, namespace)
        found = self.api.items(path) if path else []
        return [title(one | {"kind": kind}) for one in found if not _ours(one)]


def _ours(one: Json) -> bool:
    return bool((one["metadata"].get("labels") or {}).get(labels.OWNER) == OWNER)


def _place(one: Json) -> int:
    kind = one["kind"]
    return {NAMESPACE: 0, DEFINITION: 1, "Deployment": 3}.get(kind, 4 if kind.endswith(WEBHOOKS) else 2)


def _available(found: Json) -> bool:
    status: dict[str, Any] = found.get("status") or {}
    latest = status.get("observedGeneration") == found["metadata"]["generation"]
    return bool(
        latest
        and condition(found, "Available").get("status") == "True"
        and status.get("updatedReplicas") == found["spec"].get("replicas", 1)
    )
