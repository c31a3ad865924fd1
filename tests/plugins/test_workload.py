"""The role ocp4_workload_trainlab finds the cluster that AgnosticD v2 names in the environment of its tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from api_server.agnosticd import V2

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "%s"}}]
users: [{name: a, user: {token: other-token}}]
"""
CLUSTER, ELSEWHERE, TOKEN = "https://127.0.0.1:9", "https://127.0.0.1:10", "secret-token"
"""Ports at which nothing answers: the error names the cluster that was asked."""


@pytest.mark.rest
@pytest.mark.parametrize("way", ["kubeconfig", "address and token", "process"])
def test_the_environment_of_tasks_names_the_cluster(way: str, tmp_path: Path) -> None:
    """Plugins on the controller do not see it; a kubeconfig of the process that leads elsewhere counts only without it."""
    for name, server in (("own", CLUSTER), ("elsewhere", ELSEWHERE)):
        (tmp_path / name).write_text(CONFIG % server, encoding="utf-8")
    environment = {
        "address and token": {"K8S_AUTH_HOST": CLUSTER, "K8S_AUTH_API_KEY": TOKEN, "K8S_AUTH_VERIFY_SSL": False},
        "kubeconfig": {"KUBECONFIG": str(tmp_path / "own")},
        "process": {},
    }[way]
    (tmp_path / "v2.yml").write_text(V2, encoding="utf-8")
    more = {"ACTION": "provision", "environment_of_tasks": environment, "openshift_api_url": CLUSTER}
    image = {"images": {"trainer": "registry.example.com/trainer:1"}}
    more |= {"ocp4_workload_trainlab_steps": ["workspace"], "ocp4_workload_trainlab_site": image}
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        str(tmp_path / "v2.yml"),
        "-e",
        json.dumps(more),
    ]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("K8S_AUTH_")}
    env = kept | {"KUBECONFIG": str(tmp_path / "elsewhere"), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 2 and "Traceback" not in said, said
    asked, other = ("127.0.0.1:10", "127.0.0.1:9") if way == "process" else ("127.0.0.1:9", "127.0.0.1:10")
    failed = next(line for line in said.splitlines() if "fatal" in line or "rror" in line)
    assert f"{asked}" in said and f"{other}'" not in failed and TOKEN not in said, said
