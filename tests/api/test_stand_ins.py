"""The test-only operators themselves: they report, make and deny what statuses/ says, without any playbook."""

from __future__ import annotations

import os
import re
import signal
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import requests
import yaml
from api_server import bundles, catalog, recorded
from api_server.harness import Cluster, node
from waiting import until

OLM = "operators.coreos.com"
DSC, DSCI = "datasciencecluster.opendatahub.io/v2", "dscinitialization.opendatahub.io/v2"
Json = dict[str, Any]
SENT = Path(recorded.__file__).with_name("sent")
"""Where the statuses of a bundle become a test, in a folder named like the bundle."""
MARK = "as a cluster reported"
OURS: Json = {"labels": {"trainlab.dev/owner": "platform"}}
"""So that the role's undo removes it."""


def test_statuses_objects_and_denials_are_those_of_the_files(cluster: Cluster) -> None:
    """Each step is seen, in its order, and what OpenShift AI makes without an owner outlives its owner."""
    client, bare = cluster.client, cluster.objects()
    csvs = client.path(f"{OLM}/v1alpha1", "ClusterServiceVersion")
    assert csvs
    before = (client.get(csvs) or {})["metadata"]["resourceVersion"]
    install(cluster, "rhods-operator", "redhat-ods-operator", "stable-3.4")
    steps = recorded.read("olm")["sequences"]["ClusterServiceVersion"]
    assert reasons(client.watch(csvs, before), "rhods-operator.3.4.4") == unique(
        [step["status"]["reason"] for step in steps]
    )

    until(lambda: client.look("services.platform.opendatahub.io/v1alpha1", "GatewayConfig", "default-gateway"))
    auth = client.look("services.platform.opendatahub.io/v1alpha1", "Auth", "auth")
    assert auth and "ownerReferences" not in auth["metadata"]
    cluster_ = {"apiVersion": DSC, "kind": "DataScienceCluster", "spec": {}}
    client.apply(cluster_ | {"metadata": OURS | {"name": "default-dsc"}})
    made = until(lambda: client.look(DSCI, "DSCInitialization", "default-dsci"))

    def second() -> None:
        """One that is there already is no longer created, so it goes when the policy was not there yet."""
        another = cluster_ | {"metadata": {"name": "another"}}
        client.apply(another)
        client.delete(another)

    denied(second, "Only one instance")
    denied(lambda: client.delete(made | {"apiVersion": DSCI, "kind": "DSCInitialization"}), "Cannot delete")
    second = {"apiVersion": DSCI, "kind": "DSCInitialization", "metadata": {"name": "another"}, "spec": {}}
    # only tried: one that was created before the policy was there would be there already, and its deletion is denied
    where, how = client.path(DSCI, "DSCInitialization", "another"), "application/apply-patch+yaml"
    assert where
    tried = {"fieldManager": "test", "force": "true", "dryRun": "All"}
    denied(lambda: client.send("PATCH", where, second, how, **tried), "Only one instance of DSCInitialization")
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
    until(lambda: cluster.objects() == bare)


def test_what_a_cluster_reported_is_replayed(cluster: Cluster, tmp_path: Path) -> None:
    """A playbook that collects beside platform.yml reads only; from its bundle, platform.yml comes to the same end.

    Only the bundle has the words that are put into each of its sequences.
    """
    nodes = [node("gpu-1", "10de"), node("cpu-1", "1d0f")]
    for each in nodes:
        cluster.client.apply(each, manager="somebody")
    bare, collecting = cluster.objects(), Collecting(cluster, tmp_path)
    wanted = {"platform_operators": ["gpu", "rhoai"], "trainlab_platform_release": "3.4"}
    assert cluster.playbook("platform", **wanted).code == 0
    collecting.await_recorded("rhoai-3.4", "DataScienceCluster, default-dsc", "Ready")
    bundle = collecting.end()
    assert cluster.playbook("platform_teardown").code == 0

    statuses = marked(bundle / "statuses")
    assert set(bundles.wanted(statuses)["platform_operators"]) == {"nfd", "gpu", "jobset", "kueue", "rhoai"}
    again = replayed(cluster, statuses)
    for words in ("1 GPUs on 1 nodes", "DataScienceCluster default-dsc: status.phase is 'Ready'"):
        assert words in again
    for title in ("nfd-instance", "JobSetOperator cluster"):  # in their last step, which no look misses
        assert re.search(rf"{title}.*{MARK}", again), (title, again)
    for sent in sorted(SENT.glob("trainlab-collect-*")):
        replayed(cluster, sent)
    cluster.server.replay(None)
    until(lambda: cluster.objects() == bare)
    for each in nodes:
        cluster.client.delete(each)


def replayed(cluster: Cluster, statuses: Path) -> str:
    """Install on the bare cluster what a bundle's cluster had, and remove it; return what the first playbook said."""
    cluster.server.replay(statuses)
    done = cluster.playbook("platform", **bundles.wanted(statuses))
    assert done.code == 0, f"{statuses}: {done.text}"
    undone = cluster.playbook("platform_teardown")
    assert undone.code == 0, f"{statuses}: {undone.text}"
    return done.text


def marked(statuses: Path) -> Path:
    """Put a mark into each message of a bundle, so that what is reported can come from nowhere else."""
    for path in statuses.glob("*.yaml"):
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        for step in [step for steps in found["sequences"].values() for step in steps]:
            status = step.get("status", {})
            for condition in [status, *(status.get("conditions") or [])]:
                if "message" in condition:
                    condition["message"] += f" {MARK}"
        path.write_text(yaml.safe_dump(found), encoding="utf-8")
        assert all(map(recorded.sourced, recorded.entries(path.stem, statuses)))
    return statuses


class Collecting:
    """The playbook that collects, beside the test: through the proxy, which notes each request."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """Start it."""
        self._bundles, self._requests = folder / "bundles", cluster.server.folder / "proxy.log"
        self._before = self._requests.stat().st_size
        settings = {"collect_seconds": 240, "collect_poll": 0.1, "collect_dest": str(self._bundles)}
        inventory = cluster.inventory(cluster.server.shaky, **settings)
        self._process = cluster.beside("collect", inventory.rename(folder / "collect.json"), folder / "collect.log")

    def await_recorded(self, file: str, sequence: str, phase: str) -> None:
        """Wait until the bundle has this phase as the last step of a sequence."""

        def last() -> object:
            found = yaml.safe_load(self._text(f"statuses/{file}.yaml")) or {"sequences": {}}
            return found["sequences"].get(sequence, [{"status": {}}])[-1]["status"].get("phase")

        until(lambda: last() == phase)

    def _text(self, name: str) -> str:
        """Return a file of the bundle as it is by now, empty while there is none."""
        for archive in self._bundles.glob("trainlab-collect-*.tar.gz"):
            with tarfile.open(archive) as packed:
                found = [one for one in packed if one.name.endswith(f"/{name}")]
                stream = packed.extractfile(found[0]) if found else None
                return stream.read().decode("utf-8") if stream else ""
        return ""

    def end(self) -> Path:
        """Interrupt the playbook as Ctrl-C does, and return the unpacked bundle."""
        os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(timeout=60)
        told = self._requests.read_text(encoding="utf-8")[self._before :].splitlines()
        requests = [line for line in told if line.startswith("passed ")]
        assert len(requests) > 50 and all(line.startswith("passed GET ") for line in requests)
        assert not [line for line in requests if "/secrets" in line or "/configmaps" in line]
        (archive,) = self._bundles.glob("trainlab-collect-*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12's Python 3.11.2 has none
            packed.extractall(self._bundles)
        return archive.with_name(archive.name.removesuffix(".tar.gz"))


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


def unique(values: list[str]) -> list[str]:
    """Without what is equal to its predecessor."""
    return [value for at, value in enumerate(values) if at == 0 or values[at - 1] != value]


def reasons(states: Iterable[Json], name: str) -> list[str]:
    """The reasons that the status of one object has, one after the other, until its phase is Succeeded."""
    values: list[str] = []
    for state in states:
        status = state.get("status") or {}
        if state["metadata"]["name"] == name and "reason" in status:
            values.append(status["reason"])
            if status.get("phase") == "Succeeded":
                return unique(values)
    raise AssertionError(f"{name}: {unique(values)}")


def denied(request: Any, words: str) -> None:
    """A new policy applies a moment later."""

    def refused() -> bool:
        try:
            request()
        except requests.HTTPError as error:
            return words in str(error)
        return False

    until(refused)
