"""Action plugin operators: see plugins/modules/operators.py.

What decides whether an operator is ours is the owner label on all of its objects but the namespace, which may have been there.
"""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail

from ..plugin_utils import labels
from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import Json, condition, wrong_cluster
from ..plugin_utils.platform_api import title
from ..plugin_utils.playbooks import words
from ..plugin_utils.waiting import ApiRetries, watch_pods

OWNER = "operators"
"""Value of the owner label."""
DEFINITION, NAMESPACE, WEBHOOKS = "CustomResourceDefinition", "Namespace", "WebhookConfiguration"
SETTINGS = (("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job"), ("v1", "PersistentVolumeClaim"))
"""What people may have in an operator's namespace."""
PLACEHOLDER = "Cg=="
"""In the webhooks of an operator that makes no certificate (cluster/manifests): the authority of the one that is made here."""
UNSCHEDULABLE_SECONDS, SHOWN, DAYS = 120.0, 5, 3650


class ActionModule(ClusterAction):
    """Applies or removes one operator after the other, and waits for all together."""

    OPERATION = "operators"

    def run_on_cluster(self, args: Json) -> Json:
        """Return changed, objects and kept."""
        if wrong := wrong_cluster(self.api, args["cluster_id"]):
            raise AnsibleActionFail(f"nothing was changed: {wrong}")
        self._args, self._done, self._kept = args, list[str](), list[str]()
        operators = {name: self._documents(name) for name in args["names"]}
        if args["state"] == "absent":
            self._remove(operators)
        else:
            current = {name: self._existing(documents) for name, documents in operators.items()}
            mine = {name: documents for name, documents in operators.items() if not self._foreign(name, current[name])}
            for name, documents in mine.items():
                self._apply(documents, current[name])
            if not self.check:
                self._wait(
                    [
                        document
                        for documents in mine.values()
                        for document in documents
                        if document["kind"] == "Deployment"
                    ]
                )
        return {"changed": bool(self._done), "objects": self._done, "kept": self._kept}

    def _documents(self, name: str) -> list[Json]:
        """Read an operator's manifests, in the order in which they are applied: webhooks last, as they hold up what comes after."""
        text = (Path(self._args["folder"]) / f"{name}.yaml").read_text(encoding="utf-8")
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        documents: list[Json] = [document for document in yaml.load_all(text, loader) if document]
        for document in documents:
            metadata = document["metadata"]
            metadata["labels"] = (metadata.get("labels") or {}) | {labels.OWNER: OWNER}
            if document["kind"] == "Deployment" and self._args["images"].get(name):
                (container,) = document["spec"]["template"]["spec"]["containers"]
                container["image"] = self._args["images"][name]
        return sorted(documents, key=_place)

    def _existing(self, documents: list[Json]) -> dict[str, Json]:
        """Return what exists, by title."""
        existing = {title(document): self.api.current(document) for document in documents}
        return {name: item for name, item in existing.items() if item is not None}

    def _foreign(self, name: str, current: dict[str, Json]) -> bool:
        """Tell, and say, that an operator is somebody else's."""
        others = [key for key, item in current.items() if item["kind"] != NAMESPACE and not _ours(item)]
        if others:
            shown = ", ".join(others[:SHOWN]) + (", ..." if len(others) > SHOWN else "")
            self._kept.append(f"{name} is there and not ours, and stays as it is: {shown}")
        return bool(others)

    def _apply(self, documents: list[Json], current: dict[str, Json]) -> None:
        self._certify(documents, current)
        for document in documents:
            before = current.get(title(document))
            if before is not None and not _ours(before):  # a namespace
                continue
            if self.check and self.api.resource(document["apiVersion"], document["kind"]) is None:
                continue
            done = self.api.put(document, before, self.check)
            if done != "unchanged":
                self._done.append(f"{done}: {title(document)}")

    def _certify(self, documents: list[Json], current: dict[str, Json]) -> None:
        """Put the authority of a certificate into the webhooks that ask for one, and a Secret with it before them, unless it is there."""
        configs = [
            hook["clientConfig"]
            for document in documents
            for hook in document.get("webhooks") or []
            if hook["clientConfig"].get("caBundle") == PLACEHOLDER
        ]
        if not configs:
            return
        service = configs[0]["service"]
        (name,) = {
            volume["secret"]["secretName"]
            for document in documents
            if document["kind"] == "Deployment"
            for volume in document["spec"]["template"]["spec"].get("volumes") or []
            if "secret" in volume
        }
        secret: Json = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
        secret["metadata"] = {"name": name, "namespace": service["namespace"], "labels": {labels.OWNER: OWNER}}
        before = self.api.current(secret)
        secret["data"] = before["data"] if before else _certificate(f"{service['name']}.{service['namespace']}.svc")
        for config in configs:
            config["caBundle"] = secret["data"]["ca.crt"]
        documents.insert(next(at for at, document in enumerate(documents) if document["kind"] == "Deployment"), secret)
        if before:
            current[title(secret)] = before

    def _wait(self, deployments: list[Json]) -> None:
        retries, pending = ApiRetries(self.lines), {title(deployment): deployment for deployment in deployments}
        end = time.monotonic() + self._args["timeout"]
        while pending:
            for name, deployment in list(pending.items()):
                metadata = deployment["metadata"]
                existing = retries.ask(lambda deployment=deployment: self.api.current(deployment))  # type: ignore[misc]
                if existing and _available(existing):
                    self.lines.say(f"{name}: available")
                    del pending[name]
                    continue
                space = metadata["namespace"]
                selector = ",".join(
                    f"{key}={value}" for key, value in deployment["spec"]["selector"]["matchLabels"].items()
                )
                pods = retries.ask(lambda: self.api.items(f"/api/v1/namespaces/{space}/pods", selector))  # noqa: B023
                if trouble := watch_pods(self.api, space, pods or [], self.lines, UNSCHEDULABLE_SECONDS):
                    raise AnsibleActionFail(f"{name} cannot become available: {trouble}")
                if time.monotonic() > end:
                    raise AnsibleActionFail(
                        f"{name} is not available after {self._args['timeout']:.0f} s; see `{self.api.kubectl} -n {space} describe "
                        "deployments,pods`; raise operators_timeout, or run the playbook again: it continues where it stopped"
                    )
            if pending:
                self.lines.alive(f"still waiting for {', '.join(pending)}")
                time.sleep(self._args["poll"])

    def _remove(self, operators: dict[str, list[Json]]) -> None:
        """Remove all that is ours, the last one first."""
        resources: list[Json] = []
        for name, documents in reversed(operators.items()):
            existing = self._existing(documents)
            if not self._foreign(name, existing):
                resources += [item for item in reversed(existing.values()) if _ours(item)]
        self._refuse(resources)
        stages = (
            [item for item in resources if item["kind"].endswith(WEBHOOKS)],
            [
                item for item in resources if item["kind"] == DEFINITION
            ],  # while the operators are there, which remove finalizers
            [
                item
                for item in resources
                if not item["kind"].endswith(WEBHOOKS) and item["kind"] not in (DEFINITION, NAMESPACE)
            ],
            self._secrets(resources),
            [item for item in resources if item["kind"] == NAMESPACE],
        )
        for stage in stages:
            self._done += self.remove(stage, self._args["timeout"], self._args["poll"])

    def _secrets(self, resources: list[Json]) -> list[Json]:
        """Return the certificates that were made here."""
        spaces = {item["metadata"]["namespace"] for item in resources if item["kind"] == "Deployment"}
        known = {title(item) for item in resources}
        secrets = [self.api.listed("v1", "Secret", space, f"{labels.OWNER}={OWNER}") for space in sorted(spaces)]
        return [secret for several in secrets for secret in several if title(secret) not in known]

    def _refuse(self, resources: list[Json]) -> None:
        """AnsibleActionFail while people use what would go, unless they agreed to lose it."""
        used: list[str] = []
        for crd in (item for item in resources if item["kind"] == DEFINITION):
            spec = crd["spec"]
            version = next(each["name"] for each in spec["versions"] if each["served"])
            used += self._others(f"{spec['group']}/{version}", spec["names"]["kind"])
        for space in (item["metadata"]["name"] for item in resources if item["kind"] == NAMESPACE):
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
        return [title(item) for item in self.api.listed(api_version, kind, namespace) if not _ours(item)]


def _ours(item: Json) -> bool:
    return bool((item["metadata"].get("labels") or {}).get(labels.OWNER) == OWNER)


def _place(document: Json) -> int:
    kind = document["kind"]
    return {NAMESPACE: 0, DEFINITION: 1, "Deployment": 3}.get(kind, 4 if kind.endswith(WEBHOOKS) else 2)


def _available(deployment: Json) -> bool:
    status: dict[str, Any] = deployment.get("status") or {}
    latest = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return bool(
        latest
        and condition(deployment, "Available").get("status") == "True"
        and status.get("updatedReplicas") == deployment["spec"].get("replicas", 1)
    )


def _certificate(host: str) -> dict[str, str]:
    """Return `tls.crt`, `tls.key` and `ca.crt` of a server with this DNS name, as a Secret has them; the authority's key is not kept."""
    # ansible-core brings it, and `ansible-test sanity` imports this file without it
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)

    def named(subject: list[Any], public: Any) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(x509.Name(subject)).issuer_name(x509.Name(issuer))
        builder = builder.public_key(public).serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=DAYS))

    issuer = [x509.NameAttribute(x509.NameOID.COMMON_NAME, "trainlab webhook CA")]
    top = x509.BasicConstraints(ca=True, path_length=0)
    ca = named(issuer, authority.public_key()).add_extension(top, critical=True).sign(authority, hashes.SHA256())
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    usage = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH])
    server = named([], key.public_key()).add_extension(names, critical=True).add_extension(usage, critical=False)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    signed = server.sign(authority, hashes.SHA256()).public_bytes(pem)
    parts = {"tls.crt": signed, "tls.key": private, "ca.crt": ca.public_bytes(pem)}
    return {part: base64.b64encode(content).decode("ascii") for part, content in parts.items()}
