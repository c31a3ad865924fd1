"""What teardown calls a loss: people's objects, and not what operators made for themselves."""

from __future__ import annotations

from typing import Any

from ansible_collections.trainlab.rhoai.plugins.plugin_utils.losses import Losses

Json = dict[str, Any]
ENTRY: Json = {"leftovers": [{"kind": "Auth", "name": "auth"}]}


def thing(kind: str, name: str, namespace: str = "", owner: str = "", **more: Any) -> Json:
    """An object, perhaps owned by one of this API group."""
    owners = [{"apiVersion": f"{owner}/v1", "kind": "Owner", "name": "owner", "uid": "owner"}] if owner else []
    metadata = {"name": name, "namespace": namespace, "uid": f"{kind}/{name}", "ownerReferences": owners} | more
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def test_what_operators_made_is_no_loss() -> None:
    """By name, by label, by owner, in the operator's namespace, ours, or going already."""
    losses = Losses({"datasciencecluster.opendatahub.io"})
    losses.add(
        ENTRY,
        {"redhat-ods-applications"},
        [
            thing("Auth", "auth"),
            thing("HardwareProfile", "default-profile", "redhat-ods-applications"),
            thing("Kserve", "default-kserve", owner="datasciencecluster.opendatahub.io"),
            thing("ClusterQueue", "default", labels={"platform.opendatahub.io/part-of": "kueue"}),
            thing("DataScienceCluster", "default-dsc", labels={"trainlab.dev/owner": "platform"}),
            thing("Notebook", "gone", deletionTimestamp="2026-01-01T00:00:00Z"),
        ],
    )
    assert losses.resources() == [] and losses.sentence("oc") == ""


def test_what_people_made_is_counted_and_named() -> None:
    """An object of a person's object goes with it; one that a foreign controller owns is a loss of its own."""
    losses = Losses({"datasciencecluster.opendatahub.io"})
    notebook = thing("Notebook", "nb-ann", "rhods-notebooks")
    part = thing("PersistentVolumeClaim", "part", "rhods-notebooks")
    part["metadata"]["ownerReferences"] = [{"apiVersion": "kubeflow.org/v1", "uid": notebook["metadata"]["uid"]}]
    claims = [thing("PersistentVolumeClaim", f"nb-{number}", "rhods-notebooks") for number in range(4)]
    losses.add(ENTRY, set(), [notebook, part, *claims, thing("Auth", "another")])
    losses.add(ENTRY, set(), [thing("Workload", "job", "people", owner="kubeflow.org")])
    assert losses.sentence("oc") == (
        "1 Auth (another); 1 Notebook (rhods-notebooks/nb-ann); 4 PersistentVolumeClaim (rhods-notebooks/nb-0, "
        "rhods-notebooks/nb-1, rhods-notebooks/nb-2, ...); 1 Workload (people/job) (`oc get "
        "auth,notebook,persistentvolumeclaim,workload -A` lists them)"
    )


def test_what_somebody_edited_in_an_object_of_ours_that_is_the_administrators_is_a_loss() -> None:
    """By who set fields of it; status and metadata are nobody's edits, and neither are ours."""
    mine = {"manager": "trainlab-platform", "fieldsV1": {"f:spec": {}}}
    status = {"manager": "gpu-operator", "subresource": "status", "fieldsV1": {"f:status": {}}}
    edit = {"manager": "kubectl-edit", "fieldsV1": {"f:spec": {"f:mig": {}}}}
    labels = {"trainlab.dev/owner": "platform"}
    left = thing("ClusterPolicy", "left", labels=labels, managedFields=[mine, status])
    edited = thing("ClusterPolicy", "edited", labels=labels, managedFields=[mine, status, edit])
    losses = Losses({"nvidia.com"}, {"ClusterPolicy"})
    losses.add(ENTRY, set(), [left, edited, thing("NodeFeature", "n", labels=labels, managedFields=[edit])])
    assert losses.resources() == [edited]
