"""The test-only operators themselves: they report, make and deny what statuses/ says, without any playbook."""

from __future__ import annotations

import os
import signal
import tarfile
import time
from pathlib import Path
from typing import Any

import requests
from api_server import catalog, recorded
from api_server.harness import Cluster

OLM = "operators.coreos.com"
DSC, DSCI = "datasciencecluster.opendatahub.io/v2", "dscinitialization.opendatahub.io/v2"
Json = dict[str, Any]
OURS: Json = {"labels": {"trainlab.dev/owner": "platform"}}
"""So that the role's undo removes it."""


def test_statuses_objects_and_denials_are_those_of_the_files(cluster: Cluster, tmp_path: Path) -> None:
    """Each step is seen, in its order, and what OpenShift AI makes without an owner outlives its owner.

    A playbook that collects beside it reads only, and its bundle is the sequence of the file again.
    """
    client, bare = cluster.client, cluster.objects()
    collecting = Collecting(cluster, tmp_path)
    for package, namespace in (("nfd", "openshift-nfd"), ("rhods-operator", "redhat-ods-operator")):
        install(cluster, package, namespace, "stable" if package == "nfd" else "stable-3.4")
    csv = ("operators.coreos.com/v1alpha1", "ClusterServiceVersion", "nfd.4.20.0-202510211040", "openshift-nfd")
    steps = recorded.read("olm")["sequences"]["ClusterServiceVersion"]
    assert seen(cluster, csv, lambda status: status.get("reason"), "Succeeded") == unique(
        [step["status"]["reason"] for step in steps]
    )

    collecting.await_in("versions.yaml", "nfd.4.20.0")
    cluster.server.fault({"nfd": "0"})
    nfd = {"apiVersion": "nfd.openshift.io/v1", "kind": "NodeFeatureDiscovery"}
    client.apply(nfd | {"metadata": OURS | {"name": "nfd-instance", "namespace": "openshift-nfd"}, "spec": {}})
    steps = recorded.read("nfd-4.20")["sequences"]["NodeFeatureDiscovery"]
    for at, step in enumerate(steps):  # a step would end before the playbook has looked
        cluster.server.fault({"nfd": str(at)})
        collecting.await_in("statuses/nfd-4.20.yaml", active(step["status"]))
    cluster.server.fault({})
    assert collecting.replayed("nfd-4.20", "NodeFeatureDiscovery") == unique([active(step["status"]) for step in steps])

    wait(lambda: client.look("services.platform.opendatahub.io/v1alpha1", "GatewayConfig", "default-gateway"))
    auth = client.look("services.platform.opendatahub.io/v1alpha1", "Auth", "auth")
    assert auth and "ownerReferences" not in auth["metadata"]
    cluster_ = {"apiVersion": DSC, "kind": "DataScienceCluster", "spec": {}}
    client.apply(cluster_ | {"metadata": OURS | {"name": "default-dsc"}})
    made = wait(lambda: client.look(DSCI, "DSCInitialization", "default-dsci"))
    denied(lambda: client.apply(cluster_ | {"metadata": {"name": "another"}}), "Only one instance")
    denied(lambda: client.delete(made | {"apiVersion": DSCI, "kind": "DSCInitialization"}), "Cannot delete")
    second = {"apiVersion": DSCI, "kind": "DSCInitialization", "metadata": {"name": "another"}, "spec": {}}
    denied(lambda: client.apply(second), "Only one instance of DSCInitialization")
    managed = {"spec": {"components": {"kueue": {"managementState": "Managed"}}}}
    denied(lambda: client.merge(cluster_ | {"metadata": {"name": "default-dsc"}}, managed), "Managed is no longer")
    trainer = {"spec": {"components": {"trainer": {"managementState": "Managed"}}}}
    client.merge(cluster_ | {"metadata": {"name": "default-dsc"}}, trainer)
    old = cluster_ | {"apiVersion": DSC.replace("v2", "v1"), "metadata": {"name": "default-dsc"}}
    edit = {"spec": {"components": {"ray": {"managementState": "Managed"}}}}
    denied(lambda: client.merge(old, edit), "cannot modify DataScienceCluster using v1 API")
    profiles = "hardwareprofile-isvc-injector.opendatahub.io"  # what it denies: test_served.py
    assert client.look("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", profiles)

    assert cluster.playbook("platform_teardown").code == 0
    wait(lambda: cluster.objects() == bare)


class Collecting:
    """The playbook that collects, beside the test: through the proxy, which notes each request."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """Start it."""
        self._bundles, self._requests = folder / "bundles", cluster.server.folder / "proxy.log"
        self._before = self._requests.stat().st_size
        settings = {"collect_seconds": 120, "collect_poll": 0.1, "collect_dest": str(self._bundles)}
        inventory = cluster.inventory(cluster.server.shaky, **settings)
        self._process = cluster.beside("collect", inventory, folder / "collect.log")

    def await_in(self, name: str, words: str) -> None:
        """Wait until a file of the bundle has these words."""
        wait(lambda: words in self._text(name))

    def _text(self, name: str) -> str:
        """Return a file of the bundle as it is by now, empty while there is none."""
        for archive in self._bundles.glob("trainlab-collect-*.tar.gz"):
            with tarfile.open(archive) as packed:
                found = [one for one in packed if one.name.endswith(f"/{name}")]
                stream = packed.extractfile(found[0]) if found else None
                return stream.read().decode("utf-8") if stream else ""
        return ""

    def replayed(self, file: str, sequence: str) -> list[str]:
        """Interrupt the playbook as Ctrl-C does, and replay what is in its bundle."""
        os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(timeout=60)
        told = self._requests.read_text(encoding="utf-8")[self._before :].splitlines()
        requests = [line for line in told if line.startswith("passed ")]
        assert len(requests) > 50 and all(line.startswith("passed GET ") for line in requests)
        assert not [line for line in requests if "/secrets" in line or "/configmaps" in line]

        folder = self._bundles / "statuses"
        folder.mkdir()
        (folder / f"{file}.yaml").write_text(self._text(f"statuses/{file}.yaml"), encoding="utf-8")
        assert all(map(recorded.sourced, recorded.entries(file, folder)))
        steps = recorded.read(file, folder)["sequences"][sequence]
        replay, thing = recorded.Replay(), {"metadata": {"uid": "1"}}
        said = [active(replay.step(thing, steps, sequence)["status"]) for _step in steps]
        return unique([reason for reason in said if reason])


def install(cluster: Cluster, package: str, namespace: str, channel: str) -> None:
    """Subscribe as the role does."""
    targets = {"targetNamespaces": [namespace]} if catalog.PACKAGES[package].mode == catalog.OWN else {}
    spec = {"name": package, "channel": channel, "source": catalog.PACKAGES[package].source}
    for thing in (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": OURS | {"name": namespace}},
        {"apiVersion": f"{OLM}/v1", "kind": "OperatorGroup", "spec": targets},
        {"apiVersion": f"{OLM}/v1alpha1", "kind": "Subscription"}
        | {"spec": {**spec, "sourceNamespace": "openshift-marketplace"}},
    ):
        named = {"metadata": OURS | {"name": package, "namespace": namespace}}
        cluster.client.apply(named | thing)


def active(status: Json) -> str:
    """The reason of the condition that is True, of those that are not about upgrades."""
    kinds = ("Available", "Progressing", "Degraded")
    true = [one["reason"] for one in status.get("conditions", []) if one["type"] in kinds and one["status"] == "True"]
    return true[0] if true else ""


def unique(values: list[str]) -> list[str]:
    """Without what is equal to its predecessor."""
    return [value for at, value in enumerate(values) if at == 0 or values[at - 1] != value]


def seen(cluster: Cluster, place: tuple[str, str, str, str], key: Any, last: str) -> list[str]:
    """Poll an object's status until its key, or its phase, is the last one; return its values in their order."""
    values: list[str] = []
    end = time.monotonic() + 60
    while time.monotonic() < end:
        status = ((cluster.client.look(*place) or {}).get("status")) or {}
        values += [key(status)] if key(status) else []
        if last in (key(status), status.get("phase")):
            return unique(values)
        time.sleep(0.05)
    raise AssertionError(f"{place}: {unique(values)}")


def denied(request: Any, words: str) -> None:
    """A new policy applies a moment later."""

    def refused() -> bool:
        try:
            request()
        except requests.HTTPError as error:
            return words in str(error)
        return False

    wait(refused)


def wait(question: Any) -> Any:
    """Return the first answer that is true."""
    end = time.monotonic() + 60
    while not (answer := question()):
        assert time.monotonic() < end, question
        time.sleep(0.2)
    return answer
