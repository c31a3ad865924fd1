"""The queue on clusters that serve one version of Kueue's API: what is made is the same, under the names that the version has."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server.client import Json
from api_server.crds import serving
from api_server.harness import Cluster
from api_server.training_api import KUEUES, install
from charts.rendering import IMAGE, binary
from charts.upstream import from_module, from_older
from waiting import until

pytestmark = pytest.mark.usefixtures("training")
OLD, NEW = "v1beta1", "v1beta2"
Read = Callable[[str, str], str]


@pytest.fixture(params=[(from_older, OLD, "cohort"), (from_module, NEW, "cohortName")], ids=["until 0.14", "from 0.20"])
def queued(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[tuple[Cluster, str, str]]:
    """A cluster with the API of such a Kueue, which has one version; that and the field of the cohort's name. All of it back at the end."""
    read, version, field = request.param
    change(cluster, read, {version})
    yield cluster, f"kueue.x-k8s.io/{version}", field
    change(cluster, from_module, {OLD, NEW})


def change(cluster: Cluster, read: Read, versions: set[str]) -> None:
    """Install the CustomResourceDefinitions of a Kueue that serves these versions and stores the newest of them."""
    install(cluster.client, read, KUEUES, functools.partial(serving, versions=versions))
    until(
        lambda: f"kueue.x-k8s.io/{max(versions)} ClusterQueue /nvidia-pool" in cluster.objects()
    )  # its cache lags behind


def test_pool_places_and_checks(queued: tuple[Cluster, str, str], tmp_path: Path) -> None:
    cluster, api, field = queued
    before = cluster.objects()
    site: Json = {"images": {"trainer": IMAGE}, "tolerations": [{"operator": "Exists"}], "queue": "team"}
    pool = {"platform_queue": "trainlab-pool", "platform_queue_quota": {"memory": "32Gi"}, "trainlab_site": site}
    places: dict[str, Any] = {
        "attendees_names": ["ada"],
        "attendees_dest": str(tmp_path / "out"),
        "attendees_cluster_queue": "trainlab-pool",
        "attendees_preflight": False,
    }
    for changes in (True, False):
        for name, wanted in (("platform", pool), ("attendees", places)):
            run = cluster.playbook(name, **wanted)
            assert (run.code, run.changed > 0) == (0, changes), run.text
    mine, theirs = "trainlab-pool", "trainlab-attendee-trainlab-ada"
    made = {each["metadata"]["name"]: each["spec"] for each in cluster.client.items(api, "ClusterQueue")}
    assert {name: made[name].get(field) for name in (mine, theirs)} == {mine: mine, theirs: mine}
    local = cluster.client.look(api, "LocalQueue", "trainlab", "trainlab-ada")
    assert local and local["spec"]["clusterQueue"] == theirs

    asked = {
        "trainlab_site": site,
        "trainlab_cluster_queue": mine,
        "trainlab_helm": str(binary("helm")),
        "stage": "before",
    }
    told = tmp_path / "verify.json"
    run = cluster.playbook("verify", verify_json=str(told), trainlab_namespace="trainlab-ada", phase="quick", **asked)
    rows = {each["name"]: each for each in json.loads(told.read_text(encoding="utf-8"))}
    assert (rows["queue"]["state"], rows["queue"]["fix"]) == ("ok", ""), run.text
    assert rows["queue quota"]["state"] == "ok", run.text

    assert "is in use by ClusterQueue trainlab-attendee-trainlab-ada" in cluster.playbook("platform_teardown").error
    for name, state in (("attendees", {**places, "attendees_state": "absent"}), ("platform_teardown", {})):
        undone = cluster.playbook(name, **state)
        assert undone.code == 0, undone.text
    assert cluster.objects() == before
