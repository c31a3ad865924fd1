"""The playbook collect against a server that speaks HTTP: it only reads, and what it writes holds no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import kube, recording
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.observing import Observer
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.platform_api import PlatformApi

ROOT = Path(__file__).resolve().parents[2]
PLANTED = "correct-horse-battery"
OLM = "/apis/operators.coreos.com/v1alpha1"
NFD = "/apis/nfd.openshift.io/v1/nodefeaturediscoveries"
PODS = "/api/v1/namespaces/demo/pods"
FAILED = "/api/v1/namespaces/openshift-nfd/pods"


def collect(cluster: Any, folder: Path, *options: str) -> str:
    """Run the playbook and return what it printed."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    program = str(Path(sys.executable).parent / "ansible-playbook")
    given = {"trainlab_kubeconfig": str(cluster.kubeconfig), "trainlab_namespace": "demo", "collect_dest": str(folder)}
    done = subprocess.run(
        [program, "-i", "localhost,", "-c", "local", "playbooks/collect.yml", "-e", json.dumps(given), *options],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def planted(cluster: Any) -> Any:
    """A cluster in which there is a secret wherever one may be read, and one kind that may not be read."""
    for group, kinds in {
        "/api/v1": {"Pod": "pods", "Event": "events", "Node": "nodes", "Secret": "secrets", "ConfigMap": "configmaps"},
        OLM: {"Subscription": "subscriptions", "ClusterServiceVersion": "clusterserviceversions"},
        "/apis/nfd.openshift.io/v1": {"NodeFeatureDiscovery": "nodefeaturediscoveries"},
    }.items():
        resources = [{"kind": kind, "name": name, "namespaced": kind != "Node"} for kind, name in kinds.items()]
        cluster.objects[group] = {"resources": resources}
    definitions = {"kind": "CustomResourceDefinition", "name": "customresourcedefinitions", "namespaced": False}
    cluster.objects["/apis/apiextensions.k8s.io/v1"] = {"resources": [definitions]}
    name = "nodefeaturediscoveries.nfd.openshift.io"
    cluster.objects[f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"] = {
        "metadata": {"name": name},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    }
    place = {"namespace": "openshift-nfd"}
    subscription = {"spec": {"name": "nfd", "channel": "stable"}, "status": {"installedCSV": "nfd.4.20.0-1"}}
    cluster.items(f"{OLM}/subscriptions", {"metadata": place | {"name": "nfd"}, **subscription})
    csv = {"metadata": place | {"name": "nfd.4.20.0-1"}, "status": {"phase": "Succeeded", "secret": PLANTED}}
    cluster.items(f"{OLM}/clusterserviceversions", csv)
    bad = {
        "type": "Degraded",
        "status": "True",
        "reason": "X",
        "message": f"https://me:{PLANTED}@git.example.com failed",
    }
    nfd = {"metadata": place | {"name": "nfd-instance"}, "status": {"conditions": [bad], "token": PLANTED}}
    cluster.items(NFD, nfd)
    cluster.objects["/api/v1/nodes"] = 403
    message = f"pull with sha256~{PLANTED} failed"
    event = {"metadata": place | {"name": "e", "uid": "1"}, "reason": "Failed", "message": message}
    cluster.items(
        "/api/v1/namespaces/openshift-nfd/events", event | {"involvedObject": {"kind": "Pod", "name": "nfd-1"}}
    )
    status = {"name": "main", "image": "quay.io/a:1", "imageID": "quay.io/a@sha256:12", "restartCount": 1}
    ended = status | {"lastState": {"terminated": {"exitCode": 1, "message": f"password={PLANTED}"}}}
    pod = {"metadata": place | {"name": "nfd-1"}, "spec": {"env": PLANTED}, "status": {"containerStatuses": [ended]}}
    cluster.items(FAILED, pod)
    cluster.objects[f"{FAILED}/nfd-1/log"] = f"starting\nHF_TOKEN={PLANTED}\nNo such row\n"
    own = {"metadata": {"name": "survival-1", "namespace": "demo"}, "status": {"containerStatuses": [status]}}
    cluster.items(PODS, own)
    cluster.objects[f"{PODS}/survival-1/log"] = f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\nloss 1.25\n"
    return cluster


def test_a_bundle_explains_what_happened_and_holds_no_secret(planted: Any, tmp_path: Path) -> None:
    """Planted in statuses, messages, events, terminated containers and logs; and nothing but GET was sent."""
    said = collect(planted, tmp_path / "out")
    (archive,) = (tmp_path / "out").iterdir()
    assert str(archive) in said and archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as packed:
        names = {member.name.partition("/")[2]: member for member in packed.getmembers()}
        texts = {name: (packed.extractfile(one) or pytest.fail(name)).read().decode() for name, one in names.items()}
    assert not [name for name, text in texts.items() if PLANTED in text] and PLANTED not in said
    assert "git.example.com failed" in texts["statuses/nfd-4.20.yaml"] and "No such row" in str(texts)
    assert {"logs/demo/survival-1.main.log", "logs/openshift-nfd/nfd-1.main.previous.log"} <= texts.keys()
    versions = yaml.safe_load(texts["versions.yaml"])
    assert versions["images"] == {"quay.io/a:1": ["quay.io/a@sha256:12"]}
    assert versions["operators"]["nfd"]["channel"] == "stable"
    assert "Pod/nfd-1" in texts["events.jsonl"] and "Node: " in texts["unread.yaml"] and "Node: " in said

    assert {method for method, _path in planted.asked} == {"GET"}
    assert not [path for _method, path in planted.asked if "/secrets" in path or "/configmaps" in path]


def test_a_server_that_goes_away_ends_the_pass_and_nothing_is_taken_for_gone(
    planted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each further request would wait as long for an answer."""
    monkeypatch.setattr(kube, "PAUSES", ())
    watch = Observer(PlatformApi(str(planted.kubeconfig)), "demo", "demo")
    seen, complete = watch.look()
    kept = watch.objects
    assert {"NodeFeatureDiscovery", "Pod"} <= complete and "Node" not in complete and watch.unread.keys() == {"Node"}
    planted.objects[f"{OLM}/clusterserviceversions"] = -1
    planted.asked.clear()
    fewer, complete = watch.look()
    assert 0 < len(fewer) < len(seen) and complete == set() and watch.objects is kept
    assert "API server" in watch.unread and planted.asked[-1][1].startswith(f"{OLM}/clusterserviceversions")


def test_what_a_role_waits_for_is_read_once() -> None:
    """The kinds of all waits are listed, the builds where the image is built."""
    sources = list(Observer(None, "demo", "images")._sources())  # type: ignore[arg-type]
    kinds = [source.kind for source in sources]
    assert {"Build", "ImageStream", "DaemonSet", "Job", "InferenceService", "Kueue", "DSCInitialization"} <= set(kinds)
    assert next(source for source in sources if source.kind == "Build").namespaces == ("images",)
    (definitions,) = [source for source in sources if source.kind == "CustomResourceDefinition"]
    assert "clusterqueues.kueue.x-k8s.io" in definitions.names
    assert len(kinds) == len(set(kinds))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        AnsibleActionFail, match=r"collect_dest: .*/file: the bundle cannot be .*; name a folder that can"
    ):
        recording.write_bundle(tmp_path / "file" / "a.tar.gz", {})
