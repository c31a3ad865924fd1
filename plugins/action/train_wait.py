"""Action plugin train_wait: see plugins/modules/train_wait.py."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail

from ..plugin_utils import jobs
from ..plugin_utils.documented import DocumentedAction
from ..plugin_utils.kube import Api, Json, connect
from ..plugin_utils.pods import name
from ..plugin_utils.waiting import (
    ApiRetries,
    Follower,
    StatusLines,
    polls,
    watch_pods,
)

REMEDY = "fix the cause and run the playbook again"
RESUMES = {"train": "; it resumes at the last checkpoint", "prepare": "; it goes on after the last complete shard"}
WHAT = {"train": "training", "prepare": "preparing the text of"}
JOB = {"train": "training job", "prepare": "Job that prepares the text"}
BLOCKS = {"train": "phase.resources", "prepare": "site.prepare"}
REMOVES = " with -e train_again=true, which removes the waiting job first"


class ActionModule(DocumentedAction):
    """Waits for the training job of a release, or for the Job that prepares its text, reports what happens, ends as soon as the outcome is certain."""

    _due = 0.0
    """Seconds from the start since when the job must have pods: one that was admitted, or restarts, has none for a moment."""

    def run_on_controller(self, args: Json) -> Json:
        """Return run, kind, seconds; AnsibleActionFail with the reason when the job failed or cannot succeed."""
        api, _version = connect(args["kubeconfig"], args["kube_context"])
        lines = StatusLines()
        result = self._wait(api, args, lines)
        return {"changed": False, "seconds": round(lines.seconds), **result}

    def _wait(self, api: Api, args: Json, lines: StatusLines) -> Json:
        namespace, retries = args["namespace"], ApiRetries(lines)
        follower = Follower(api, namespace, lines)
        hint = (
            f"{api.kubectl} -n {namespace} get pods,events shows more; the job goes on, with its place in a queue: run the playbook again "
            "to follow it, or raise train_timeout"
        )
        for _poll in polls(args["timeout"], f"the {JOB[args['step']]} of release {args['release']}", hint):
            job = retries.ask(lambda: _find(api, namespace, args["release"], args["step"]))
            if retries.unanswered:
                continue
            if job is None:
                if self.check:
                    return {"run": "", "kind": "", "state": "absent"}
                if lines.seconds > args["start_timeout"]:
                    raise AnsibleActionFail(_missing(api, args))
                continue
            kind, resource = job
            result = retries.ask(
                lambda kind=kind, resource=resource: self._look(api, kind, resource, args, lines, follower)
            )
            if result or self.check:
                return result or {"run": jobs.run_of(resource), "kind": kind.kind, "state": "running"}
        raise AssertionError("polls() ends with an error")

    def _look(
        self, api: Api, kind: jobs.Kind, job: dict[str, Any], args: Json, lines: StatusLines, follower: Follower
    ) -> Json | None:
        """Look once; return the result when the job has succeeded."""
        run, namespace, step = jobs.run_of(job), args["namespace"], args["step"]
        word, message = jobs.outcome(kind, job)
        if word == "succeeded":
            return {"run": run, "kind": kind.kind, "state": "succeeded"}
        pods = api.items(f"/api/v1/namespaces/{namespace}/pods", f"{kind.pod_label}={name(job)}")
        restarts = word != "failed" and jobs.restarts(job) > 0
        trouble = watch_pods(api, namespace, pods, lines, args["unschedulable_timeout"], BLOCKS[step], restarts)
        if word == "failed" and self.check:
            return {"run": run, "kind": kind.kind, "state": "failed"}
        if word == "failed" or trouble:
            # roles/train removes a failed job by itself; one that still waits for its pods may be on its way
            how = RESUMES[step] if word == "failed" else REMOVES
            why = jobs.took_too_long(api, namespace, kind, job) or trouble or message
            raise AnsibleActionFail(f"{WHAT[step]} {run} failed: {why}\n{REMEDY}{how}")
        if word == "queued":
            why = jobs.waits_for(jobs.workload_of(api, namespace, job))
            lines.changed(run, f"waits in the queue: {why or message}")
        if word == "queued" or pods:
            self._due = lines.seconds
        elif (without := lines.seconds - self._due) > args["start_timeout"]:
            raise AnsibleActionFail(
                f"{WHAT[step]} {run}: {kind.kind} has had no pods for {without:.0f} s: is its operator "
                f"running? {api.kubectl} -n {namespace} describe {kind.kind.lower()} {name(job)}"
            )
        for pod in pods:
            if _leads(pod):
                for container in [*_started(pod, "initContainerStatuses"), *_started(pod, "containerStatuses")]:
                    follower.follow(name(pod), container)
        lines.alive(f"{run}: still {word}, {len(pods)} pods")
        return None


def _find(api: Api, namespace: str, release: str, step: str) -> tuple[jobs.Kind, dict[str, Any]] | None:
    if step == "prepare":
        job = jobs.live(jobs.BATCH, jobs.preparing(api, namespace, release))
        return (jobs.BATCH, job) if job else None
    for kind in jobs.KINDS.values():
        job = jobs.live(kind, kind.of_release(api, namespace, release))
        if job:
            return kind, job
    return None


def _missing(api: Api, args: Json) -> str:
    return (
        f"release {args['release']} in namespace {args['namespace']} has no {JOB[args['step']]}: playbooks/train.yml creates "
        f"it; `{api.connection.command('helm')} -n {args['namespace']} status {args['release']}` shows whether the release exists"
    )


def _leads(pod: dict[str, Any]) -> bool:
    """True for the pod of rank 0: the master, or index 0 of a TrainJob's job."""
    labels = pod["metadata"].get("labels", {})
    if "training.kubeflow.org/replica-type" in labels:
        return bool(labels["training.kubeflow.org/replica-type"] == "master")
    return bool(labels.get("batch.kubernetes.io/job-completion-index", "0") == "0")


def _started(pod: dict[str, Any], key: str) -> list[str]:
    statuses = pod.get("status", {}).get(key) or []
    return [each["name"] for each in statuses if "waiting" not in each.get("state", {})]
