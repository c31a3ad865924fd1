"""The role attendees by itself and as a step of the workload, on a server that keeps what is applied: what is made, and what is told."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.action import objects_apply

from plugins.keeping import KUEUE, Kept
from plugins.test_kubeconfigs import token

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
AGNOSTICD = ROOT / "tests" / "api" / "agnosticd"
IMAGE = "registry.example.com/trainlab/trainer:0.1.0"
AMD = "amd.com/gpu"
QUEUE = {
    "apiVersion": KUEUE,
    "kind": "ClusterQueue",
    "metadata": {"name": "pool", "labels": {"trainlab.dev/owner": "platform"}},
    "spec": {
        "cohortName": "pool",
        "resourceGroups": [
            {
                "coveredResources": [AMD],
                "flavors": [{"name": "pool", "resources": [{"name": AMD, "nominalQuota": "4"}]}],
            }
        ],
    },
}
GIVEN: dict[str, Any] = {
    "attendees_count": 1,
    "trainlab_namespace": "talk",
    "trainlab_image_source": "checkout",
    "image_ref": IMAGE,  # as the role image leaves it
}


@pytest.fixture
def kept(cluster: Any) -> Kept:
    """A cluster with a queue of ours, which gives tokens."""
    one = Kept(cluster)
    one.keep(QUEUE)
    one["/api/v1/namespaces/trainlab-user1/serviceaccounts/attendee/token"] = token("ServiceAccount-attendee", hours=12)
    return one


def run(cluster: Any, folder: Path, playbook: str | None = None, **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run a playbook with these variables in the inventory, where AgnosticD's collection is; without one, the role by itself."""
    own = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    given = GIVEN | {"trainlab_kubeconfig": str(cluster.kubeconfig), "attendees_dest": str(folder / "out")} | variables
    inventory = folder / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": {"here": own}, "vars": given}}), encoding="utf-8")
    alone = folder / "alone.yml"
    alone.write_text(json.dumps([{"hosts": "all", "roles": ["trainlab.rhoai.attendees"]}]), encoding="utf-8")
    env = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "K8S_AUTH"))}
    env["ANSIBLE_COLLECTIONS_PATH"] = f"{ROOT / '.collections'}:{AGNOSTICD}"
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(inventory), playbook or str(alone)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def lines(text: str) -> list[str]:
    """Return what is told to run."""
    return re.findall(r"^ *(helm install .*)$", text, re.MULTILINE)


@pytest.mark.rest
def test_the_gpu_is_the_sites_and_the_image_is_pulled_from_where_it_is_built(
    cluster: Any, kept: Kept, tmp_path: Path
) -> None:
    """By itself: quota and queue count the site's GPUs, and the line fits them; what a later run leaves out goes."""
    site = {"gpuResource": AMD, "images": {"trainer": IMAGE}}
    given = {"trainlab_site": site, "attendees_cluster_queue": "pool", "image_namespace": "images"}
    given["attendees_egress_ports"] = "443,8443"  # as -e gives it
    done = run(cluster, tmp_path, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines(done.stdout) == ["helm install quick charts/trainjob -f values/quick.yaml -f site.yaml"]
    quota = kept["/api/v1/namespaces/trainlab-user1/resourcequotas/trainlab"]["spec"]["hard"]
    assert {key: value for key, value in quota.items() if "gpu" in key} == {f"requests.{AMD}": "1"}
    queue = kept[f"/apis/{KUEUE}/clusterqueues/trainlab-attendee-trainlab-user1"]["spec"]["resourceGroups"][0]
    assert queue["flavors"][0]["resources"] == [{"name": AMD, "nominalQuota": "0", "borrowingLimit": "1"}]
    assert "images/trainlab-pull-trainlab-user1" in kept.names("RoleBinding")
    fetch = kept["/apis/networking.k8s.io/v1/namespaces/trainlab-user1/networkpolicies/fetch"]
    assert [each["port"] for each in fetch["spec"]["egress"][0]["ports"]] == [443, 8443]
    assert kept.names("ClusterRoleBinding") and kept.names("LocalQueue")

    fewer = {"attendees_cluster_queue": "", "attendees_image_namespace": "", "attendees_preflight": False}
    done = run(cluster, tmp_path, **given | fewer, attendees_phase="survival")
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines(done.stdout) == ["helm install survival charts/trainjob -f values/survival.yaml -f site.yaml"]
    assert kept.names("RoleBinding") == {"trainlab-user1/attendee"}
    assert not kept.names("ClusterRoleBinding") | kept.names("LocalQueue")
    assert kept.names("ClusterQueue") == {"/pool"}


@pytest.mark.rest
def test_the_workload_tells_each_attendee_all_they_need(cluster: Any, kept: Kept, tmp_path: Path) -> None:
    """The presenter trains survival; the attendees' line is their own phase's, and its site.yaml is in their data."""
    prefix = "ocp4_workload_trainlab_"
    variables = {
        "ACTION": "create",
        "num_users": 1,
        "output_dir": str(tmp_path),
        f"{prefix}kubeconfig": str(cluster.kubeconfig),
        f"{prefix}namespace": "talk",
        f"{prefix}site": {"images": {"trainer": IMAGE}},
        f"{prefix}steps": "attendees",
    }
    done = run(cluster, tmp_path, "playbooks/ocp4_workload.yml", **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [json.loads(line) for line in (tmp_path / "user-info.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [each.get("user") for each in told] == [None, "user1"]
    line = "helm install quick charts/trainjob -f values/quick.yaml -f site.yaml"
    assert lines(told[0]["msg"]) == [line]
    assert told[0]["msg"].startswith("trainlab is set up: attendees.")
    assert told[0]["data"]["trainlab_phase"] == "survival"
    assert lines(told[1]["msg"]) == [line]
    handed = told[1]["data"]
    assert yaml.safe_load(handed["trainlab_site"])["site"]["images"] == {"trainer": IMAGE}
    assert yaml.safe_load(handed["trainlab_kubeconfig"])["kind"] == "Config"


@pytest.mark.rest
def test_a_name_stays_text_whatever_yaml_makes_of_it(cluster: Any, kept: Kept, tmp_path: Path) -> None:
    """In front of the namespace there is no prefix here, so that it is such a word, too."""
    names = ["ada", "no", "on", "42", "007", "null", "1e3", "0x1f", "y"]
    for name in names:
        kept[f"/api/v1/namespaces/{name}/serviceaccounts/attendee/token"] = token("ServiceAccount-attendee", hours=12)
    given = {"attendees_count": 0, "attendees_names": names, "attendees_prefix": "", "image_namespace": "images"}
    given |= {"attendees_cluster_queue": "pool", "trainlab_site": {"gpuResource": AMD, "images": {"trainer": IMAGE}}}
    done = run(cluster, tmp_path, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert kept.names("Namespace") == {f"/{name}" for name in names}
    for name in names:
        made = [kept[f"/api/v1/namespaces/{name}"], kept[f"/apis/{KUEUE}/clusterqueues/trainlab-attendee-{name}"]]
        assert [one["metadata"]["labels"]["trainlab.dev/attendee"] for one in made] == [name, name]


@pytest.mark.rest
def test_a_label_that_is_no_text_is_refused_before_anything_is_applied() -> None:
    good = {"kind": "Namespace", "metadata": {"name": "a", "labels": {"x": "1"}}}
    objects_apply.refuse_other_types([good])
    for wrong in ({"labels": {"x": False}}, {"name": 42}, {"annotations": {"y": None}}):
        with pytest.raises(AnsibleActionFail, match=r"is (false|42|null), which is no text; .* nothing was applied"):
            objects_apply.refuse_other_types([good, {"kind": "Namespace", "metadata": good["metadata"] | wrong}])


@pytest.mark.parametrize(("kind", "serves"), [("csi", True), ("nfs", True), ("hostPath", False)])
def test_volumes_that_other_namespaces_can_mount(kind: str, serves: bool) -> None:
    tasks = yaml.safe_load((ROOT / "roles/attendees/tasks/models.yml").read_text(encoding="utf-8"))
    (that,) = [each["ansible.builtin.assert"]["that"] for each in tasks if "ansible.builtin.assert" in each]
    assert bool(jinja2.Environment().compile_expression(that)(__attendees_spec={kind: {}})) is serves
