"""What OpenShift's console shows of a room, against the real CRDs: as far as they are served and the user may; gone with the room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import crds
from api_server.client import Json
from api_server.harness import Cluster, Run
from waiting import until

pytestmark = pytest.mark.usefixtures("training")
SPACE = "room-console"
CONSOLE = "console.openshift.io/v1"
KINDS = (
    ("helm.openshift.io/v1beta1", "ProjectHelmChartRepository"),
    (CONSOLE, "ConsoleLink"),
    (CONSOLE, "ConsoleQuickStart"),
)
WANTED: dict[str, Any] = {
    "trainlab_namespace": SPACE,
    "trainlab_release": "quick",
    "trainlab_values": ["values/quick.yaml"],
    "room_address": "https://room.example.org",
}
PLAY = """---
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: trainlab.rhoai.phase, tasks_from: resolve}
    - ansible.builtin.include_role: {name: trainlab.rhoai.room, tasks_from: console}
"""


@pytest.fixture
def space(cluster: Cluster) -> Iterator[None]:
    """The namespace."""
    one = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    cluster.client.apply(one)
    yield
    cluster.client.delete(one)
    until(lambda: not cluster.client.look("v1", "Namespace", SPACE))


@pytest.fixture
def console(cluster: Cluster) -> Iterator[None]:
    """The kinds of OpenShift's console."""
    made = crds.console()
    for crd in made:
        cluster.client.apply(crd)
    for api, kind in KINDS:
        until(lambda api=api, kind=kind: kind in cluster.client.resources(api, fresh=True))
    yield
    for crd in made:
        cluster.client.delete(crd)
    for api, kind in KINDS:
        until(lambda api=api, kind=kind: kind not in cluster.client.resources(api, fresh=True))


def shown(cluster: Cluster, folder: Path, kubeconfig: Path | None = None, **changes: Any) -> Run:
    """Run the tasks of the role that show the room in the console."""
    play = folder / "console.yml"
    play.write_text(PLAY, encoding="utf-8")
    return cluster.run(str(play), cluster.inventory(kubeconfig, **{**WANTED, **changes}))


def there(cluster: Cluster) -> dict[str, Json]:
    """Return the spec of what the console shows, by kind."""
    return {kind: one["spec"] for api, kind in KINDS for one in cluster.client.items(api, kind)}


@pytest.mark.usefixtures("space", "console")
def test_the_console_shows_the_room_until_it_is_removed(cluster: Cluster, tmp_path: Path) -> None:
    first = shown(cluster, tmp_path)
    assert first.code == 0, first.text
    specs = there(cluster)
    assert specs["ProjectHelmChartRepository"]["connectionConfig"]["url"] == f"http://quick-room.{SPACE}.svc/charts"
    assert specs["ConsoleLink"]["href"] == "https://room.example.org/"
    assert specs["ConsoleLink"]["namespaceDashboard"]["namespaces"] == [SPACE]
    line = "helm install quick trainjob --repo https://room.example.org/charts -f https://room.example.org/charts/quick.yaml"
    assert line in specs["ConsoleQuickStart"]["tasks"][1]["description"]
    second = shown(cluster, tmp_path)
    assert (second.code, second.changed) == (0, 0), second.text
    kept = there(cluster)
    assert kept == specs
    gone = cluster.playbook("room", **WANTED, room_state="absent")
    assert gone.code == 0, gone.text
    assert there(cluster) == {}
    again = cluster.playbook("room", **WANTED, room_state="absent")
    assert (again.code, again.changed) == (0, 0), again.text


@pytest.mark.usefixtures("space", "console")
def test_without_https_there_is_no_link_and_a_sentence(cluster: Cluster, tmp_path: Path) -> None:
    done = shown(cluster, tmp_path, room_address="http://room.example.org:8090")
    assert done.code == 0, done.text
    assert "no ConsoleLink: it needs https, and the room is at http://room.example.org:8090" in done.text
    assert set(there(cluster)) == {"ProjectHelmChartRepository", "ConsoleQuickStart"}
    assert cluster.playbook("room", **WANTED, room_state="absent").code == 0
    assert there(cluster) == {}


@pytest.mark.usefixtures("space", "console")
def test_who_may_not_is_told_and_nothing_fails(cluster: Cluster, tmp_path: Path) -> None:
    """A user of the namespace opens a room, and removes it, beside what an administrator shows."""
    user = shown(cluster, tmp_path, kubeconfig=cluster.server.nobody)
    assert user.code == 0, user.text
    for resource in ("projecthelmchartrepositories.helm", "consolelinks.console", "consolequickstarts.console"):
        assert f"this user may not get or create or patch {resource}.openshift.io" in user.text
    assert there(cluster) == {}


@pytest.mark.usefixtures("space")
def test_a_cluster_without_the_console_is_no_error(cluster: Cluster, tmp_path: Path) -> None:
    done = shown(cluster, tmp_path)
    assert done.code == 0, done.text
    for api, kind in KINDS:
        assert f"no {kind}: the cluster does not serve {api}" in done.text
