"""Each call of Helm by the role train reaches the cluster that the other tasks reach; a program that records stands in for Helm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from slow import but_the_first

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
HELM = r"""#!/bin/sh
# there is no release, and the first upgrade meets Trainer's lagging webhook
{ printf '%s\n' "$@"; echo --; env | grep -E '^(KUBECONFIG|HELM_KUBE|HTTPS_PROXY)'; echo ==; } >> "$CALLS"
case " $* " in
  *" version "*) echo 'version.BuildInfo{Version:"v4.3.0", GitCommit:""}' ;;
  *" status "*) echo 'Error: release: not found' >&2; exit 1 ;;
  *" --dry-run=server "*) echo 'no' >&2; exit 1 ;;
  *" --install "*) mkdir "$CALLS.met" 2> /dev/null || exit 0; echo 'must be created before the TrainJob is created' >&2; exit 1 ;;
  *) exit 2 ;;
esac
"""
OPTIONS = {
    "--kube-context": "HELM_KUBECONTEXT",
    "--kube-apiserver": "HELM_KUBEAPISERVER",
    "--kube-insecure-skip-tls-verify": "HELM_KUBEINSECURE_SKIP_TLS_VERIFY",
    "--kube-as-user": "HELM_KUBEASUSER",
    "--kubeconfig": "KUBECONFIG",
}
"""Helm's options win over its environment; source: helm help."""
START = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: trainlab.rhoai.phase, tasks_from: resolve}
    - ansible.builtin.include_role: {name: trainlab.rhoai.train, tasks_from: look}
    - ansible.builtin.include_role: {name: trainlab.rhoai.train, tasks_from: release}
"""
PLAY = (
    START
    + """\
      vars: {image_ref: "registry.example.com/trainer:1", __train_removed: {changed: false, present: []}}
    - ansible.builtin.include_role: {name: trainlab.rhoai.train, tasks_from: absent}
"""
)
PODS = "/api/v1/namespaces/trainlab-demo/pods"
NONE = {"kind": "PodList", "apiVersion": "v1", "items": []}


def serve_pods(cluster: Any, *answers: Any) -> None:
    """Serve a list of pods, and what kubernetes.core asks before it."""
    cluster.objects["/apis"] = {"kind": "APIGroupList", "groups": []}
    kind = {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["get", "list", "delete"],
    }
    cluster.objects["/api/v1"] = {"kind": "APIResourceList", "groupVersion": "v1", "resources": [kind]}
    cluster.objects[PODS] = list(answers)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the role with variables and an environment, and returns what each call of Helm was given."""
    for name in [name for name in os.environ if name.startswith(("K8S_AUTH", "KUBE", "HELM", "ANSIBLE_"))]:
        monkeypatch.delenv(name)
    program = tmp_path / "my tools" / "helm"
    program.parent.mkdir()
    program.write_text(HELM, encoding="utf-8")
    program.chmod(0o755)
    record, play = tmp_path / "calls", tmp_path / "play.yml"
    play.write_text(PLAY, encoding="utf-8")

    def run(variables: dict[str, str], **environment: str) -> list[dict[str, str]]:
        given = {"trainlab_helm": str(program), "trainlab_values": ["values/resnet.yaml"], **variables}
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory/kubernetes", str(play)]
        env = {**os.environ, "HOME": str(tmp_path), "CALLS": str(record), **environment}
        command += ["-e", json.dumps(given)]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert record.exists(), done.stdout + done.stderr
        found = [
            each for each in record.read_text(encoding="utf-8").split("==\n") if each and "version\n--\n" not in each
        ]
        # four of the release, one before its removal; the stub has no API for what follows that
        assert len(found) == 5 and "--install\n" in found[2] and found[2] == found[3], done.stdout + done.stderr
        return [reached(each) for each in found]

    return run


def reached(call: str) -> dict[str, str]:
    """Return a recorded call's connection by the names of Helm's variables, of those that are not empty."""
    arguments, _, environment = call.partition("--\n")
    found = dict(line.split("=", 1) for line in environment.splitlines())
    words = arguments.splitlines()
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option in OPTIONS:
            found[OPTIONS[option]] = value if equals else following
    return {name: value for name, value in found.items() if value}


@pytest.mark.rest
def test_a_credential_of_automation_platform(cluster: Any, calls: Any) -> None:
    environment = {
        "K8S_AUTH_HOST": cluster.url,
        "K8S_AUTH_API_KEY": "of the credential",
        "K8S_AUTH_VERIFY_SSL": "False",
    }
    for call in calls({}, **environment):
        assert (call["HELM_KUBEAPISERVER"], call["HELM_KUBETOKEN"]) == (cluster.url, "of the credential")
        assert call["HELM_KUBEINSECURE_SKIP_TLS_VERIFY"] == "true"
        assert call["KUBECONFIG"] == "/dev/null"


@pytest.mark.parametrize("by", but_the_first(["variable", "K8S_AUTH_CONTEXT", "both"]))
@pytest.mark.rest
def test_a_context_of_several_files(cluster: Any, calls: Any, tmp_path: Path, by: str) -> None:
    """The variable wins over the environment."""
    config = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
    config["contexts"][0]["name"] = "the right one"
    config["current-context"] = "none"
    second = tmp_path / "my clusters" / "b"
    second.parent.mkdir()
    second.write_text(yaml.safe_dump(config), encoding="utf-8")
    files = f"{tmp_path / 'absent'}:{second}"
    variables = {"trainlab_kubeconfig": files}
    variables |= {} if by == "K8S_AUTH_CONTEXT" else {"trainlab_kube_context": "the right one"}
    environment = {"K8S_AUTH_CONTEXT": "the right one"} if by == "K8S_AUTH_CONTEXT" else {}
    environment |= {"K8S_AUTH_CONTEXT": "none"} if by == "both" else {}
    for call in calls(variables, **environment):
        assert (call["KUBECONFIG"], call["HELM_KUBECONTEXT"]) == (str(second), "the right one")


@pytest.mark.rest
@pytest.mark.parametrize("by", ["trainlab_kubeconfig", "KUBECONFIG"])
def test_files_as_kubectl_takes_them(cluster: Any, calls: Any, by: str) -> None:
    """One absent, one relative to where the command was started, which is not the playbook's folder."""
    serve_pods(cluster, NONE)
    files = f"absent:{os.path.relpath(cluster.kubeconfig, ROOT)}:~/kubeconfig"
    for call in calls({by: files}) if by == "trainlab_kubeconfig" else calls({}, KUBECONFIG=files):
        assert [os.path.normpath(file) for file in call["KUBECONFIG"].split(":")] == [str(cluster.kubeconfig)] * 2
    assert PODS in [path.partition("?")[0] for _, path in cluster.asked], "the last task asks for pods"


@pytest.mark.rest
def test_an_api_server_that_is_away_for_a_moment(cluster: Any, calls: Any) -> None:
    """While the pods of the release are waited for."""
    serve_pods(cluster, 503, NONE)
    calls({"trainlab_kubeconfig": str(cluster.kubeconfig)})
    assert len([path for _, path in cluster.asked if path.partition("?")[0] == PODS]) == 2


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            {"msg": "403: no"},
            "the pods of release a in namespace b could not be listed for two minutes: 403: no; run the",
        ),
        (
            {"resources": [{"metadata": {"name": "p"}}]},
            "pods of release a in namespace b are still there after two minutes: p; `k",
        ),
    ],
)
def test_a_removal_that_cannot_be_seen_is_no_pod_that_stays(found: dict[str, Any], said: str) -> None:
    tasks = yaml.safe_load((ROOT / "roles/train/tasks/absent.yml").read_text(encoding="utf-8"))[-1]["rescue"]
    names: dict[str, Any] = {
        "trainlab_release": "a",
        "trainlab_namespace": "b",
        "trainlab_resolved": {"kubectl": "kubectl"},
    }
    names |= {"__train_pods": found}
    environment = jinja2.Environment()
    asked = [each for each in tasks if environment.compile_expression(each.get("when", "true"))(**names)]
    assert environment.from_string(asked[0]["ansible.builtin.fail"]["msg"]).render(names).startswith(said)


@pytest.mark.parametrize(
    ("answer", "ends"),
    [({"resources": []}, True), ({"resources": [{"metadata": {"name": "p"}}]}, False), ({"msg": "503"}, False)],
    ids=["gone", "left", "not asked"],
)
def test_a_removal_waits_until_the_pods_are_gone(answer: dict[str, Any], ends: bool) -> None:
    tasks = yaml.safe_load((ROOT / "roles/train/tasks/absent.yml").read_text(encoding="utf-8"))
    (until,) = [each["until"] for each in tasks[-1]["block"] if "until" in each]
    assert bool(jinja2.Environment().compile_expression(until)(__train_pods=answer)) is ends


@pytest.mark.rest
def test_a_context_and_a_certificate_that_is_not_checked(cluster: Any, calls: Any) -> None:
    """The module excludes its own option for the one with the environment of the other."""
    variables = {"trainlab_kubeconfig": str(cluster.kubeconfig), "trainlab_kube_context": "test"}
    for call in calls(variables, K8S_AUTH_VERIFY_SSL="no", K8S_AUTH_IMPERSONATE_USER="ann", K8S_AUTH_PROXY=""):
        assert (call["KUBECONFIG"], call["HELM_KUBECONTEXT"]) == (str(cluster.kubeconfig), "test")
        assert call["HELM_KUBEINSECURE_SKIP_TLS_VERIFY"] == "true" and call["HELM_KUBEASUSER"] == "ann"


KEPT = r"""#!/bin/sh
# there is a release, and nothing of it would change
case " $* " in
  *" version "*) echo 'version.BuildInfo{Version:"v4.3.0", GitCommit:""}' ;;
  *" status "* | *" --dry-run=server "*) cat "$RELEASE" ;;
  *" --install "*) echo upgraded >> "$CALLS" ;;
  *) exit 2 ;;
esac
"""
GONE = (
    START
    + """\
      vars: {image_ref: "registry.example.com/trainer:1", __train_removed: {changed: false, present: "{{ item }}"}}
      loop: [[PyTorchJob a, Job b, Job c], [Job b]]
"""
)


def test_a_release_whose_job_is_gone_is_installed_again(cluster: Any, tmp_path: Path) -> None:
    """Somebody deleted it, or a run was ended while it removed a failed one: Helm alone would see no difference."""
    manifest = "---\n" + "---\n".join(
        f"kind: {kind}\nmetadata: {{name: {name}}}\n"
        for kind, name in (("PyTorchJob", "a"), ("Job", "b"), ("Secret", "d"))
    )
    release = {"info": {"status": "deployed", "notes": "This revision trains a."}, "manifest": manifest, "config": {}}
    for name, text in (("helm", KEPT), ("release", json.dumps(release)), ("play.yml", GONE)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "helm").chmod(0o755)
    calls = tmp_path / "calls"
    given = {"trainlab_helm": str(tmp_path / "helm"), "trainlab_kubeconfig": str(cluster.kubeconfig)}
    given |= {"trainlab_values": ["values/resnet.yaml"]}
    env = {**os.environ, "HOME": str(tmp_path), "CALLS": str(calls), "RELEASE": str(tmp_path / "release")}
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventory/kubernetes"]
    command += [str(tmp_path / "play.yml"), "-e", json.dumps(given)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert calls.read_text(encoding="utf-8") == "upgraded\n", done.stdout
