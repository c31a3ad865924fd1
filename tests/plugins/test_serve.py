"""The action serve_wait, run by a playbook against a server that speaks HTTP: promotion, server, answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from plugins.test_playbooks import ansible, error_of

SPACE = "/api/v1/namespaces/demo"
SERVER = f"{SPACE}/services/survival-predictor"
PROMOTIONS = "/apis/batch/v1/namespaces/demo/jobs"
SERVICE = "/apis/serving.kserve.io/v1beta1/namespaces/demo/inferenceservices/survival"


def ended(how: str) -> dict[str, Any]:
    """A Job's status."""
    metadata = {"name": "survival-1-promote-abc", "labels": {"trainlab.dev/run": "survival-1"}}
    return {"metadata": metadata, "status": {"conditions": [{"type": how, "status": "True"}]}}


@pytest.fixture
def playbook(cluster: Any, tmp_path: Path) -> Path:
    """Waits for a run that was promoted, with a server that lists base and tuned, and answers for what it lists."""
    cluster.items(PROMOTIONS, ended("Complete"))
    cluster.objects[SERVICE] = {
        "metadata": {"labels": {}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    cluster.objects[SERVER] = {"spec": {"clusterIP": "10.0.0.1"}}
    cluster.items(f"{SPACE}/pods", {"metadata": {"name": "server"}, "spec": {"containers": []}, "status": {}})
    lists(cluster, "base", "tuned")
    task = {"kubeconfig": str(cluster.kubeconfig), "namespace": "demo", "release": "survival", "run": "survival-1"}
    wait = {"trainlab.rhoai.serve_wait": {**task, "question": "How?", "timeout": 30}, "register": "found"}
    show = {"ansible.builtin.debug": {"msg": "answered by {{ found.answers.keys() | sort | join(' and ') }}."}}
    file = tmp_path / "serve.yml"
    file.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [wait, show]}]), encoding="utf-8")
    return file


def lists(cluster: Any, *names: str) -> None:
    """Serve these models; any other is not found."""
    said = {"choices": [{"message": {"content": "Like this."}}]}
    cluster.objects[f"{SERVER}:80/proxy/v1/models"] = {"data": [{"id": name} for name in names]}
    cluster.objects[f"{SERVER}:80/proxy/v1/chat/completions"] = lambda asked: said if asked["model"] in names else 404


@pytest.mark.parametrize("names", [("base", "tuned"), ("tuned",)])
def test_what_is_served_is_asked(cluster: Any, playbook: Path, names: tuple[str, ...]) -> None:
    """vLLM has only the tuned model where it was trained as a whole."""
    lists(cluster, *names)
    done = ansible(str(playbook))
    assert done.returncode == 0 and f"answered by {' and '.join(names)}." in done.stdout, done.stdout


def test_with_auth_the_pod_is_asked(cluster: Any, playbook: Path) -> None:
    """Its Service has only the port that wants a token, which the API server's proxy does not pass on."""
    cluster.objects[SERVICE]["metadata"]["annotations"] = {"security.opendatahub.io/enable-auth": "true"}
    for path in [path for path in cluster.objects if path.startswith(f"{SERVER}:80/")]:
        cluster.objects[path.replace(f"{SERVER}:80/", f"{SPACE}/pods/server:8080/")] = cluster.objects.pop(path)
    done = ansible(str(playbook))
    assert done.returncode == 0 and "answered by base and tuned." in done.stdout, done.stdout


def test_base_on_request(cluster: Any, playbook: Path) -> None:
    """As phase.serve.weights says."""
    lists(cluster, "base")
    (play,) = json.loads(playbook.read_text(encoding="utf-8"))
    play["tasks"][0]["trainlab.rhoai.serve_wait"]["model"] = "base"
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    done = ansible(str(playbook))
    assert done.returncode == 0 and "answered by base." in done.stdout, done.stdout


def test_the_status_of_the_model_before_an_upgrade_is_not_that_of_the_new_one(cluster: Any, playbook: Path) -> None:
    """It stays Ready until KServe has seen the change."""
    cluster.objects[SERVICE]["metadata"]["generation"] = 2
    cluster.objects[SERVICE]["status"]["observedGeneration"] = 1
    (play,) = json.loads(playbook.read_text(encoding="utf-8"))
    play["tasks"][0]["trainlab.rhoai.serve_wait"]["timeout"] = 1
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    assert "InferenceService survival is not done after 1 s" in error_of(ansible(str(playbook)))


def test_a_server_without_the_tuned_model(cluster: Any, playbook: Path) -> None:
    lists(cluster, "base")
    said = error_of(ansible(str(playbook)))
    assert re.search(r"the server of survival lists base, not tuned; kubectl .*logs -l serving", said), said


def test_a_failed_promotion_says_what_repeats_it(cluster: Any, playbook: Path) -> None:
    cluster.items(PROMOTIONS, ended("Failed"))
    said = error_of(ansible(str(playbook)))
    assert "run playbooks/train.yml, which repeats the promotion, and this playbook again" in said
