"""The collection as a user runs it: ansible-playbook from the checkout, against a server that speaks HTTP."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from slow import but_the_first

ROOT = Path(__file__).resolve().parents[2]
JOBS = "/apis/kubeflow.org/v1/namespaces/demo/pytorchjobs"
PODS = "/api/v1/namespaces/demo/pods"
LOG = f"{PODS}/survival-1-worker-0/log"


def ansible(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the checkout's ansible-playbook in a folder, without any variable of this shell that affects it."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    env["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")
    program = str(Path(sys.executable).parent / "ansible-playbook")
    return subprocess.run([program, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return what follows `error:` in the output."""
    assert done.returncode != 0, done.stdout
    match = re.search(r"\nerror: (.*?)\n\nlocalhost:", done.stdout, re.DOTALL)
    assert match, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return match.group(1)


def wait_for_training(cluster: Any, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    task = {
        "kubeconfig": str(cluster.kubeconfig),
        "namespace": "demo",
        "release": "survival",
        "timeout": 30,
        "start_timeout": 3,
    }
    play = [{"hosts": "all", "gather_facts": False, "tasks": [{"name": "Wait", "trainlab.rhoai.train_wait": task}]}]
    playbook = tmp_path / "wait.yml"
    playbook.write_text(json.dumps(play), encoding="utf-8")
    return ansible(str(playbook))


JOB = {"name": "survival-1-abc", "labels": {"trainlab.dev/run": "survival-1"}}


def job(condition: str) -> dict[str, Any]:
    return {"metadata": JOB, "status": {"conditions": [{"type": condition, "status": "True"}]}}


def worker(terminated: dict[str, Any]) -> dict[str, Any]:
    status = {"name": "pytorch", "state": {"terminated": terminated}}
    labels = {"training.kubeflow.org/replica-type": "worker"}
    return {
        "metadata": {"name": "survival-1-worker-0", "labels": labels},
        "status": {"phase": "Failed", "containerStatuses": [status]},
    }


def test_a_failed_pod_ends_the_wait_at_once_with_its_last_lines(cluster: Any, tmp_path: Path) -> None:
    cluster.items(JOBS, job("Running"))
    cluster.items(PODS, worker({"exitCode": 1, "reason": "Error"}))
    cluster.objects[LOG] = "loading\nRuntimeError: no such row\n"
    said = error_of(wait_for_training(cluster, tmp_path))
    assert "training survival-1 failed: pod survival-1-worker-0: container pytorch ended with exit code 1" in said
    assert "RuntimeError: no such row" in said
    assert "train_again=true" in said


def test_a_failed_job_needs_no_variable(cluster: Any, tmp_path: Path) -> None:
    """The next run removes it; one that only waits for its pods is removed on request."""
    cluster.items(JOBS, job("Failed"))
    said = error_of(wait_for_training(cluster, tmp_path))
    assert said.endswith("fix the cause and run the playbook again; it resumes at the last checkpoint")


def test_a_finished_job_is_no_wait(cluster: Any, tmp_path: Path) -> None:
    cluster.items(JOBS, job("Succeeded"))
    done = wait_for_training(cluster, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "changed=0" in done.stdout


@pytest.mark.slow
def test_a_release_without_a_job_is_named(cluster: Any, tmp_path: Path) -> None:
    assert "release survival in namespace demo has no training job" in error_of(wait_for_training(cluster, tmp_path))


@pytest.mark.slow
def test_an_overloaded_api_server_is_waited_for(cluster: Any, tmp_path: Path) -> None:
    """No answer for longer than a job may take to appear proves nothing about the job."""
    cluster.objects[JOBS] = [503, 503, 503, {"items": [job("Succeeded")]}]
    done = wait_for_training(cluster, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "API server: no answer" in done.stdout


@pytest.mark.rest
def test_site_stops_at_an_unreachable_cluster(cluster: Any) -> None:
    cluster.objects["/version"] = 401
    said = error_of(ansible("playbooks/site.yml", "-e", f"trainlab_kubeconfig={cluster.kubeconfig}"))
    assert "trainlab_kubeconfig" in said
    assert {method for method, _ in cluster.asked} == {"GET"}


@pytest.mark.rest
def test_site_stops_at_another_cluster(cluster: Any) -> None:
    cluster.objects["/api/v1/namespaces/kube-system"] = {"metadata": {"uid": "here"}}
    extra = json.dumps({"trainlab_kubeconfig": str(cluster.kubeconfig), "trainlab_cluster_id": "elsewhere"})
    said = " ".join(error_of(ansible("playbooks/site.yml", "-e", extra)).split())
    assert "nothing was applied: trainlab_cluster_id: elsewhere is expected but" in said
    assert "is cluster here; set trainlab_kubeconfig" in said
    assert re.search(r"`kubectl .*get namespace kube-system -o jsonpath=\{\.metadata\.uid\}`", said), said
    assert {method for method, _ in cluster.asked} == {"GET"}


def test_a_wrong_value_is_the_clis_sentence(cluster: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("phase: {train: {epoch: 2}}\n", encoding="utf-8")
    files = ["values/survival.yaml", str(bad)]
    extra = json.dumps({"trainlab_kubeconfig": str(cluster.kubeconfig), "trainlab_values": files})
    said = error_of(ansible("playbooks/site.yml", "-e", extra))
    cli = subprocess.run(
        [sys.executable, "-m", "trainlab.cli", "check", files[0], "-f", files[1]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "training" / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said == cli.stderr.strip().removeprefix("error: ")
    assert cluster.asked == []


@pytest.mark.parametrize("given", [["nodes=1"], ["key=train.packing", "values=true,true"], ["key=phase.seed"]])
def test_one_value_is_nothing_to_compare(cluster: Any, given: list[str]) -> None:
    extra = [word for each in given for word in ("-e", each)]
    said = error_of(ansible("playbooks/compare.yml", "-e", f"trainlab_kubeconfig={cluster.kubeconfig}", *extra))
    assert said.startswith("nothing to compare: name two or more values, as -e nodes=1,2, or a key of the phase")
    assert cluster.asked == []


SMALL = {"phase": "staged-sft", "trainlab_site": {"storage": {"runs": {"size": "100Gi"}}}}
"""Too small for two checkpoints of 7.39 B parameters."""


def planned(cluster: Any, playbook: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run a playbook with the inventory for any Kubernetes."""
    extra = json.dumps({"trainlab_kubeconfig": str(cluster.kubeconfig), **variables})
    return ansible("-i", "inventory/kubernetes", f"playbooks/{playbook}.yml", "-e", extra)


@pytest.mark.parametrize("playbook", but_the_first(["site", "train"]))
def test_a_phase_that_cannot_work_is_refused_before_anything_is_created(cluster: Any, playbook: str) -> None:
    """Reason, key, remedy and how to continue anyway."""
    done = planned(cluster, playbook, **SMALL)
    said = error_of(done)
    refusal = "REFUSED [runs-volume] volume runs is 100Gi (107.37 GB): 192.23 GB at its fullest: 2 checkpoints"
    assert f"the plan refuses phase staged-sft; nothing was created\n{refusal}" in said
    assert "set 200Gi or more (site.storage.runs.size)" in said
    assert "-e train_plan=warn" in said and "values/staged-sft.yaml" in said
    assert {method for method, _ in cluster.asked} == {"GET"}
    assert "changed=0" in done.stdout


# a bare off in YAML is false
@pytest.mark.parametrize(("how", "shown"), but_the_first([("warn", 1), ("off", 0), (False, 0)]))
def test_a_refusal_can_be_overruled(cluster: Any, how: Any, shown: int) -> None:
    done = planned(cluster, "plan", train_plan=how, **SMALL)
    assert done.returncode == 0 and "changed=0" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("REFUSED [runs-volume]") == shown


@pytest.mark.slow
def test_a_drill_is_refused_where_a_loss_would_end_the_job(cluster: Any) -> None:
    done = planned(
        cluster, "drill", phase="quick", drill="rank", trainlab_phase_overrides={"resources": {"restarts": 0}}
    )
    assert "phase.resources.restarts is 0 in phase quick, so a loss would end the job; set it to 1" in error_of(done)
    assert {method for method, _ in cluster.asked} == {"GET"}


@pytest.mark.rest
def test_what_the_api_server_refuses_is_not_taken_for_no_training(cluster: Any) -> None:
    cluster.objects |= {"/api/v1": {"resources": [POD]}, "/api/v1/namespaces/trainlab-demo/pods": 403}
    cluster.objects[REVIEW] = answers_reviews(allowed=True)
    said = error_of(planned(cluster, "drill", phase="quick", train_drill_patience=2))
    assert "/pods: said no" in said and "no running training pod" not in said
    assert {path for method, path in cluster.asked if method != "GET"} == {REVIEW}


REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
POD = {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["list"]}


def answers_reviews(*, allowed: bool) -> Any:
    """Return what tells a user whether they may do something."""
    return lambda review: review | {"status": {"allowed": allowed}}


@pytest.mark.rest
def test_a_drill_is_refused_before_it_waits_where_the_user_may_not_exec(cluster: Any) -> None:
    cluster.objects |= {"/api/v1": {"resources": [POD]}, REVIEW: answers_reviews(allowed=False)}
    cluster.items("/api/v1/namespaces/trainlab-demo/pods")
    said = error_of(planned(cluster, "drill", phase="quick"))
    assert "namespace trainlab-demo: you may not get pods/exec, create pods/exec, by which" in said
    assert "nothing was struck" in said


def test_another_word_for_it_is_refused(cluster: Any) -> None:
    assert "train_plan" in error_of(planned(cluster, "plan", train_plan="maybe"))
    assert cluster.asked == []


@pytest.mark.rest
def test_warnings_are_lines_shown_once(cluster: Any) -> None:
    """site.yml fails on an empty cluster, after the plan, which train.yml would not show again."""
    done = planned(cluster, "site", phase="staged-pretrain")
    assert "\nplan of phase staged-pretrain for" in done.stdout
    assert done.stdout.count("\nwarning [few-tokens] ") == 1, done.stdout
    assert "==> Check that everything needed is there" in done.stdout and "==> Platform" not in done.stdout
    label = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A40"}}
    done = planned(cluster, "plan", phase="survival", trainlab_site=label)
    assert "for A40 (site.nodeSelector nvidia.com/gpu.product): fine: 0 refusals" in done.stdout


@pytest.mark.rest
def test_site_installs_the_operators_that_the_inventory_names(cluster: Any) -> None:
    """After the plan, and before it asks whether they are there; elsewhere nothing of it runs."""
    said = error_of(planned(cluster, "site", phase="survival", platform_operators=["gpu"]))
    assert "this cluster has no Operator Lifecycle Manager" in said


@pytest.mark.rest
def test_a_card_that_the_planner_does_not_know_stops_nothing(cluster: Any) -> None:
    label = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-Z1"}}
    done = planned(cluster, "plan", phase="survival", trainlab_site=label)
    assert done.returncode == 0, done.stdout
    assert "plan of phase survival: not planned\nwarning [not-planned]" in done.stdout
    assert "NVIDIA-Z1: not in the table" in done.stdout


@pytest.mark.rest
def test_a_plan_that_cannot_be_computed_refuses(cluster: Any, tmp_path: Path) -> None:
    """Before anything is created: the training would refuse the same row, an hour later."""
    data = tmp_path / "data" / "mine" / "train"
    data.mkdir(parents=True)
    (data / "rows.jsonl").write_text("{}\n", encoding="utf-8")
    values = tmp_path / "values.yaml"
    values.write_text(
        (ROOT / "values" / "survival.yaml")
        .read_text("utf-8")
        .replace("builtin:survival", "builtin:mine")
        .replace("taught: test", "taught: null")
        .replace("metric: taught_recall", "metric: answer_loss"),
        "utf-8",
    )
    done = planned(cluster, "plan", trainlab_values=[str(values)])
    assert "REFUSED [not-planned]" in done.stdout and "key id is missing" in done.stdout, done.stdout
    assert done.returncode != 0 and "-e train_plan=warn" in done.stdout
    assert planned(cluster, "plan", trainlab_values=[str(values)], train_plan="warn").returncode == 0


@pytest.mark.rest
def test_printed_files_are_quoted(cluster: Any, tmp_path: Path) -> None:
    """What the refusal prints is run word for word."""
    own = tmp_path / "my values" / "it's.yaml"
    own.parent.mkdir()
    own.write_text(json.dumps({"site": SMALL["trainlab_site"]}), encoding="utf-8")
    done = planned(cluster, "plan", trainlab_values=["values/staged-sft.yaml", str(own)])
    (line,) = re.findall(r"`trainlab (plan .+?)`", " ".join(error_of(done).split()))
    command = f"{sys.executable} -m trainlab.cli {line}"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "training" / "src")}
    again = subprocess.run(command, shell=True, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert "REFUSED [runs-volume] volume runs is 100Gi (107.37 GB): 192.23 GB" in again.stdout, (
        again.stdout + again.stderr
    )


@pytest.mark.parametrize("state", but_the_first(["present", "absent"]))
def test_names_from_the_command_line_are_not_split_into_letters(cluster: Any, state: str) -> None:
    """`-e attendees_names=Ada,bo` is a string; `bo` would be two attendees."""
    arguments = ("-e", "attendees_names=Ada,bo", "-e", f"attendees_state={state}")
    done = ansible("playbooks/attendees.yml", "-e", f"trainlab_kubeconfig={cluster.kubeconfig}", *arguments)
    said = error_of(done)
    assert "attendees_names, attendees_prefix: trainlab-Ada is not a valid namespace name" in " ".join(said.split())
    assert "a name twice" not in said


@pytest.mark.rest
def test_an_image_classifier_is_planned_too(cluster: Any) -> None:
    done = planned(cluster, "plan", phase="resnet")
    assert done.returncode == 0 and "plan of phase resnet" in done.stdout, done.stdout
