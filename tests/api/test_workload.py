"""The role ocp4_workload_trainlab as AgnosticD runs it: ACTION create, again, remove, against a real API server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import catalog
from api_server.agnosticd import V2
from api_server.attendee import may
from api_server.harness import REPO, Cluster
from charts.rendering import IMAGE

AGNOSTICD = Path(__file__).resolve().parent / "agnosticd"
ROLE = "ocp4_workload_trainlab_"


def given(cluster: Cluster, folder: Path, **more: Any) -> dict[str, Any]:
    """The variables that AgnosticD's catalog item would set."""
    return {
        f"{ROLE}kubeconfig": str(cluster.server.kubeconfig),
        f"{ROLE}image_source": "none",
        f"{ROLE}site": {"images": {"trainer": IMAGE}},
        "num_users": 2,
        "output_dir": str(folder),
        "attendees_timeout": 60,
    } | more


def test_create_again_and_remove(cluster: Cluster, tmp_path: Path) -> None:
    """Platform, namespace and attendees are there; the second run changes nothing; remove leaves nothing."""
    bare, wanted = cluster.objects(), given(cluster, tmp_path)
    planned = cluster.playbook("ocp4_workload", "--check", ACTION="create", **wanted)
    assert planned.code == 0, planned.text
    assert cluster.objects() == bare

    first = cluster.playbook("ocp4_workload", ACTION="create", **wanted)
    assert first.code == 0, first.text
    found = cluster.client.look("datasciencecluster.opendatahub.io/v2", "DataScienceCluster", "default-dsc")
    assert found and found["status"]["phase"] == "Ready"
    assert cluster.client.look("v1", "Namespace", "trainlab-demo")
    assert may(tmp_path / "attendees" / "user2.kubeconfig", "create", "kubeflow.org", "pytorchjobs", "trainlab-user2")
    assert "Attendees: 2, each with a namespace" in first.text
    assert "users:" not in first.text, "no kubeconfig is printed"

    second = cluster.playbook("ocp4_workload", "-v", ACTION="provision", **wanted, silent=True)
    assert (second.code, second.changed) == (0, 0), second.text
    assert "Attendees: 2" not in second.text
    nothing = cluster.playbook("ocp4_workload", ACTION="stop", **wanted)
    assert (nothing.code, nothing.changed) == (0, 0), nothing.text

    undone = cluster.playbook("ocp4_workload", ACTION="remove", **wanted)
    assert undone.code == 0, undone.text
    assert cluster.objects() == bare
    again = cluster.playbook("ocp4_workload", ACTION="destroy", **wanted)
    assert (again.code, again.changed) == (0, 0), again.text


def test_agnosticd_is_told(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With AgnosticD's collection: its plugin gets text and data; address and token replace a kubeconfig."""
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", f"{REPO / '.collections'}:{AGNOSTICD}")
    login = yaml.safe_load(cluster.server.kubeconfig.read_text(encoding="utf-8"))
    where = login["clusters"][0]["cluster"]
    wanted = given(
        cluster,
        tmp_path,
        num_users=1,
        openshift_api_url=where["server"],
        openshift_api_key=login["users"][0]["user"]["token"],
        openshift_api_ca_cert=Path(where["certificate-authority"]).read_text(encoding="ascii"),
        silent=True,
        **{f"{ROLE}kubeconfig": "nowhere", f"{ROLE}steps": ["workspace", "attendees"]},
    )
    run = cluster.playbook("ocp4_workload", "-vv", ACTION="provision", **wanted)
    assert run.code == 0, run.text
    told = [json.loads(line) for line in (tmp_path / "user-info.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [each.get("user") for each in told] == [None, "user1"]
    assert told[0]["data"]["trainlab_namespace"] == "trainlab-demo"
    config = yaml.safe_load(told[1]["data"]["trainlab_kubeconfig"])
    token = config["users"][0]["user"]["token"]
    assert token not in run.text
    assert wanted["openshift_api_key"] not in run.text
    undone = cluster.playbook("ocp4_workload", ACTION="remove", **wanted)
    assert undone.code == 0, undone.text


@pytest.mark.parametrize("way", ["address and token", "kubeconfig"])
def test_agnosticd_v2_names_the_cluster_in_the_environment_of_tasks(way: str, cluster: Cluster, tmp_path: Path) -> None:
    """Which plugins on the controller do not see; a kubeconfig of the process that leads elsewhere does not count."""
    login = yaml.safe_load(cluster.server.kubeconfig.read_text(encoding="utf-8"))
    where, token = login["clusters"][0]["cluster"]["server"], login["users"][0]["user"]["token"]
    environment = {
        "address and token": {"K8S_AUTH_HOST": where, "K8S_AUTH_API_KEY": token, "K8S_AUTH_VERIFY_SSL": False},
        "kubeconfig": {"KUBECONFIG": str(cluster.server.kubeconfig)},
    }[way]
    wanted = given(cluster, tmp_path, num_users=1, openshift_api_url=where, environment_of_tasks=environment)
    wanted[f"{ROLE}steps"] = ["workspace", "attendees"]
    del wanted[f"{ROLE}kubeconfig"]
    playbook = tmp_path / "v2.yml"
    playbook.write_text(V2, encoding="utf-8")
    (tmp_path / "elsewhere").write_text("{}", encoding="utf-8")
    bare = cluster.objects()
    for action in ("provision", "destroy"):
        inventory = cluster.inventory(hosts={"localhost": {}}, **wanted, ACTION=action)
        name = os.path.relpath(playbook.with_suffix(""), REPO / "playbooks")
        run = cluster.run(name, inventory, environment={"KUBECONFIG": str(tmp_path / "elsewhere")})
        assert run.code == 0, run.text
        assert token not in run.text
        assert (cluster.objects() == bare) == (action == "destroy")


WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "action": ({"ACTION": "begin"}, ["ocp4_workload_trainlab_action", "provision"]),
    "address": (
        {"openshift_api_key": "secret-token"},
        ["ocp4_workload_trainlab_api_url is empty", "nothing was applied"],
    ),
    "release": ({f"{ROLE}rhoai_release": "3.1"}, ["trainlab_platform_release", "'3.1'", ", ".join(catalog.RELEASES)]),
    "phase": ({f"{ROLE}phase": "poems"}, ["poems.yaml", "no such file", "survival"]),
}


def test_wrong_input_applies_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Each error names the variable, and none holds the token."""
    bare = cluster.objects()
    given_ = {what: variables for what, (variables, _) in WRONG.items()}
    common = {"ACTION": "create"} | given(cluster, tmp_path)
    errors = cluster.refusals("ocp4_workload", given_, hidden="secret-token", **common)
    for what, (_, words) in WRONG.items():
        for word in words:
            assert word in errors[what], f"{what}: {errors[what]}"
    assert cluster.objects() == bare
