"""Action plugin serve_wait: see plugins/modules/serve_wait.py."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleActionFail

from ..plugin_utils import jobs, labels
from ..plugin_utils.documented import DocumentedAction
from ..plugin_utils.kube import Api, ApiError, Json, Unreachable, condition, connect
from ..plugin_utils.pods import name, served_models, server_address
from ..plugin_utils.waiting import (
    POLL_SECONDS,
    ApiRetries,
    StatusLines,
    polls,
    watch_pods,
)

MODELS = ("base", "tuned")
MAX_TRIES = 5
REMEDY = "fix the cause and run playbooks/train.yml, which repeats the promotion, and this playbook again"


class ActionModule(DocumentedAction):
    """Waits for the promotion and for the served model, then asks it."""

    def run_on_controller(self, args: Json) -> Json:
        """Return promoted, reason, cluster_ip and answers; AnsibleActionFail when the server cannot come up."""
        api, _version = connect(args["kubeconfig"], args["kube_context"])
        lines = StatusLines()
        result: Json = {"changed": False, "promoted": False, "reason": "", "cluster_ip": "", "answers": {}}
        if self.check and not _service(api, args):
            return {**result, "reason": "check mode: not waited for"}
        reason = _promotion(api, args, lines)
        if reason is not None:
            return {**result, "reason": reason}
        _ready(api, args, lines)
        result |= {"promoted": True, "cluster_ip": (api.get(_backend(args)) or {}).get("spec", {}).get("clusterIP")}
        if args["question"]:
            served = _served(api, args)
            result["answers"] = {model: _ask(api, args, model) for model in MODELS if model in served}
        return {**result, "seconds": round(lines.seconds)}


def _backend(args: Json) -> str:
    return f"/api/v1/namespaces/{args['namespace']}/services/{args['release']}-predictor"


def _service(api: Api, args: Json) -> Json | None:
    return api.get(
        f"/apis/serving.kserve.io/v1beta1/namespaces/{args['namespace']}/inferenceservices/{args['release']}"
    )


def _belongs(service: Json | None, run: str) -> bool:
    """Tell whether the InferenceService serves this run, not the one before a changed phase."""
    return bool(service) and (service or {})["metadata"].get("labels", {}).get(labels.RUN, run) == run


def _promotion(api: Api, args: Json, lines: StatusLines) -> str | None:
    """Wait for the promotion Job; return None when it promoted, else why not."""
    retries = ApiRetries(lines)
    hint = (
        f"{api.kubectl} -n {args['namespace']} logs -l app.kubernetes.io/component=promote,{labels.RUN}={args['run']}"
    )
    for _poll in polls(args["timeout"], f"promotion of run {args['run']}", hint):
        word, reason = retries.ask(lambda: _promotion_now(api, args, lines)) or ("", None)
        if word:
            return reason
    raise AssertionError("polls() ends with an error")


def _promotion_now(api: Api, args: Json, lines: StatusLines) -> tuple[str, str | None]:
    """Look once; return (`promoted`, None), (`refused`, why), or (``, None) while the Job runs."""
    namespace, run = args["namespace"], args["run"]
    job = jobs.live(jobs.BATCH, jobs.BATCH.of_run(api, namespace, args["release"], run))
    if job is None:
        if _belongs(_service(api, args), run):
            return "promoted", None
        raise AnsibleActionFail(
            f"run {run} has neither a promotion Job nor an InferenceService: is site.serving true? "
            "playbooks/train.yml creates the Job"
        )
    job_name = name(job)
    word, message = jobs.outcome(jobs.BATCH, job)
    pods = api.items(f"/api/v1/namespaces/{namespace}/pods", f"{jobs.BATCH.pod_label}={job_name}")
    if word == "succeeded":
        if _belongs(_service(api, args), run):
            return "promoted", None
        return "refused", _last_line(api, namespace, pods) or "the promotion Job created no InferenceService"
    # the Job retries with a new pod, so a failed one counts only at the end
    seen = pods if word == "failed" else [pod for pod in pods if pod.get("status", {}).get("phase") != "Failed"]
    trouble = watch_pods(api, namespace, seen, lines, args["unschedulable_timeout"], "phase.serve")
    if word == "failed" or trouble:
        raise AnsibleActionFail(f"promotion {job_name} failed: {trouble or message}\n{REMEDY}")
    lines.alive(f"{job_name}: still running")
    return "", None


def _last_line(api: Api, namespace: str, pods: list[dict[str, Any]]) -> str:
    for pod in pods:
        for container in pod["spec"]["containers"]:
            text = api.log(namespace, pod["metadata"]["name"], container["name"], tailLines=1).strip()
            if text:
                return text
    return ""


def _ready(api: Api, args: Json, lines: StatusLines) -> None:
    """Wait until the InferenceService is Ready and has a pod."""
    namespace, release, retries = args["namespace"], args["release"], ApiRetries(lines)
    hint = f"{api.kubectl} -n {namespace} describe inferenceservice {release}"
    for _poll in polls(args["timeout"], f"InferenceService {release}", hint):
        if retries.ask(lambda: _ready_now(api, args, lines)):
            return


def _ready_now(api: Api, args: Json, lines: StatusLines) -> bool:
    """Look once; AnsibleActionFail when one of its pods cannot recover."""
    namespace, release = args["namespace"], args["release"]
    service = _service(api, args)
    if service is None:
        return False
    ready = condition(service, "Ready")
    pods = api.items(f"/api/v1/namespaces/{namespace}/pods", f"serving.kserve.io/inferenceservice={release}")
    served = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    seen = service.get("status", {}).get("observedGeneration", service["metadata"].get("generation"))
    if ready.get("status") == "True" and served and seen == service["metadata"].get("generation"):
        return True
    trouble = watch_pods(api, namespace, served, lines, args["unschedulable_timeout"], "phase.serve")
    if trouble:
        raise AnsibleActionFail(f"InferenceService {release} cannot become ready: {trouble}")
    lines.alive(f"{release}: not ready yet: {ready.get('message') or ready.get('reason') or 'no status'}")
    return False


def _served(api: Api, args: Json) -> set[str]:
    """Return the names of the served models: vLLM has one in memory, so without an adapter one of the two is missing."""
    names = served_models(_request(api, args, "GET", "models"))
    if args["model"] not in names:
        raise AnsibleActionFail(
            f"the server of {args['release']} lists {', '.join(sorted(names)) or 'no model'}, not {args['model']}; {_logs(api, args)}"
        )
    return names


def _ask(api: Api, args: Json, model: str) -> str:
    """Ask one model."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": args["question"]}],
        "max_tokens": args["max_tokens"],
        "temperature": 0,
    }
    answer = _request(api, args, "POST", "chat/completions", body)
    return str(answer["choices"][0]["message"]["content"])


def _request(api: Api, args: Json, method: str, path: str, body: Json | None = None) -> Json:
    """Send one request through the API server's proxy, which works wherever the API does; AnsibleActionFail without an answer."""
    for left in reversed(range(MAX_TRIES)):
        try:
            server = server_address(api, args["namespace"], args["release"], _service(api, args) or {})
            return api.send(method, f"{server}/v1/{path}", body)
        except (ApiError, Unreachable) as error:
            if left == 0:
                asked = f" {body['model']}" if body else ""
                raise AnsibleActionFail(
                    f"the served model{asked} does not answer: {error}; {_logs(api, args)}"
                ) from error
            time.sleep(POLL_SECONDS)  # a Service may lag about a second behind its ready pods
    raise AssertionError("the last try returns or raises")


def _logs(api: Api, args: Json) -> str:
    return f"{api.kubectl} -n {args['namespace']} logs -l serving.kserve.io/inferenceservice={args['release']}"
