"""What a bundle says of each wait is what the roles would have said: the same judges, and every wait that a role has."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.observing import Observer

Json = dict[str, Any]
CONDITION = {"conditions": [{"type": "Established", "status": "True"}]}


def observer() -> Observer:
    """One with the tables of the role, which has not looked yet."""
    return Observer(None, "demo", "images")  # type: ignore[arg-type]


def named(kind: str, name: str, namespace: str = "", **fields: Any) -> Json:
    """An object."""
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace, "generation": 1}, **fields}


def installed(package: str, csv: str, current: str = "", phase: str = "Succeeded") -> dict[str, list[Json]]:
    """What OLM says of an operator."""
    status = {"installedCSV": csv, "currentCSV": current or csv, "state": "AtLatestKnown"}
    return {
        "Subscription": [named("Subscription", package, spec={"name": package}, status=status)],
        "ClusterServiceVersion": [named("ClusterServiceVersion", csv, status={"phase": phase})],
    }


@pytest.mark.parametrize(
    ("objects", "title", "state", "words"),
    [
        (
            installed("odf-operator", "odf-operator.v4.20.1"),
            "operator OpenShift Data Foundation",
            "waiting",
            "odf-operator.v4.20.1 phase Succeeded, but its API storageclusters.ocs.openshift.io does not exist yet",
        ),
        (
            installed("odf-operator", "odf-operator.v4.20.1")
            | {"CustomResourceDefinition": [named("CRD", "storageclusters.ocs.openshift.io", status=CONDITION)]},
            "operator OpenShift Data Foundation",
            "ready",
            "odf-operator.v4.20.1 phase Succeeded",
        ),
        (
            installed("rhods-operator", "rhods-operator.3.4.2", "rhods-operator.3.4.3"),
            "operator Red Hat OpenShift AI",
            "waiting",
            "rhods-operator.3.4.3 is replacing rhods-operator.3.4.2",
        ),
        (
            {"DSCInitialization": [named("DSCInitialization", "default-dsci", status={"phase": "Ready"})]},
            "DSCInitialization default-dsci, which the operator creates itself",
            "ready",
            "status.phase is 'Ready'",
        ),
        (
            {"Kueue": [named("Kueue", "cluster", status={"conditions": [{"type": "Available", "status": "True"}]})]},
            "Kueue cluster",
            "ready",
            "Available=True",
        ),
        ({}, "Kueue's own API", "waiting", "does not exist yet"),
        ({}, "API of the DataScienceCluster", "waiting", "does not exist yet"),
        (
            installed("rhods-operator", "rhods-operator.3.4.3")
            | {
                "DataScienceCluster": [
                    named("DSC", "default-dsc", status={"phase": "Ready", "release": {"version": "3.3.6"}})
                ]
            },
            "DataScienceCluster default-dsc",
            "waiting",
            "was said by 3.3.6, rhods-operator.3.4.3 is installed",
        ),
        ({"Build": [named("Build", "t-1", "images", status={"phase": "Complete"})]}, "Build images/t-1", "ready", ""),
        (
            {"Build": [named("Build", "t-1", "images", status={"phase": "Failed", "reason": "OutOfMemoryKilled"})]},
            "Build images/t-1",
            "failed",
            "Failed (OutOfMemoryKilled)",
        ),
        (
            {
                "DaemonSet": [
                    named(
                        "DaemonSet",
                        "trainlab-prepull",
                        "demo",
                        status={
                            "observedGeneration": 1,
                            "desiredNumberScheduled": 2,
                            "updatedNumberScheduled": 2,
                            "numberReady": 1,
                        },
                    )
                ]
            },
            "DaemonSet demo/trainlab-prepull",
            "waiting",
            "images on 1 of 2 nodes",
        ),
        (
            {
                "TrainJob": [
                    named("TrainJob", "a", "demo", status={"conditions": [{"type": "Complete", "status": "True"}]})
                ]
            },
            "TrainJob demo/a",
            "ready",
            "succeeded",
        ),
        (
            {"PyTorchJob": [named("PyTorchJob", "a", "demo")]}
            | {"Pod": [{"metadata": {"name": "a-0", "labels": {"training.kubeflow.org/job-name": "a"}}, "spec": {}}]},
            "pods of PyTorchJob demo/a",
            "waiting",
            "0 of 1 have a node",
        ),
        (
            {"Job": [named("Job", "p", "demo", status={"conditions": [{"type": "Failed", "status": "True"}]})]},
            "Job demo/p",
            "failed",
            "failed",
        ),
        (
            {
                "InferenceService": [
                    named("InferenceService", "s", "demo", status={"conditions": [{"type": "Ready", "status": "True"}]})
                ]
            },
            "InferenceService demo/s",
            "ready",
            "Ready=True",
        ),
    ],
)
def test_a_wait_is_judged_as_its_role_does(objects: dict[str, list[Json]], title: str, state: str, words: str) -> None:
    """By the objects of one pass."""
    one = observer()
    one.objects = objects
    verdict = one.verdicts()[title]
    assert (verdict.state, words in verdict.text) == (state, True), verdict


def test_each_wait_has_its_source() -> None:
    """The kinds of all waits are listed, the builds where the image is built."""
    sources = list(observer()._sources())
    kinds = [source.kind for source in sources]
    assert {"Build", "ImageStream", "DaemonSet", "Job", "InferenceService", "Kueue", "DSCInitialization"} <= set(kinds)
    assert next(source for source in sources if source.kind == "Build").namespaces == ("images",)
    (definitions,) = [source for source in sources if source.kind == "CustomResourceDefinition"]
    assert "clusterqueues.kueue.x-k8s.io" in definitions.names
    assert len(kinds) == len(set(kinds)), "each is asked for once"
