"""The demo's server among people, from outside the cluster: texts of megabytes, a hall that asks at once, visitors who leave, its
end amid an answer, and two promotions at the same time.
"""

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from waiting import until

from e2e import machine
from e2e.commands import NAMESPACE, PHASE, kubectl, objects, sh
from e2e.release import question

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
SERVER = f"app=isvc.{PHASE}-predictor"
PORT = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "visitors", "namespace": NAMESPACE},
    "spec": {
        "type": "NodePort",
        "selector": dict([SERVER.split("=")]),
        "ports": [{"port": 80, "targetPort": 8080}],
    },
}
VISITORS, WORDS = 200, 4
SECONDS = 300.0
ASKED = "What do I do first when the power is out?"
HEALTH = 10.0
"""Seconds in which /health has to answer, whatever else is asked; a tenth of one where nothing else runs on the machine."""
SOON = 60.0


@pytest.fixture(scope="module")
def url(demo: str) -> Iterator[str]:
    """Where the server is reached from outside: a port of the first node."""
    kubectl("apply", "-f", "-", given=json.dumps(PORT))
    try:
        made = json.loads(kubectl("-n", NAMESPACE, "get", "service", "visitors", "-o", "json"))
        node = kubectl("get", "node", "n1", "-o", 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}')
        address = f"http://{node}:{made['spec']['ports'][0]['nodePort']}"
        waits_for(lambda: answered(address), 60)
        yield address
    finally:
        kubectl("-n", NAMESPACE, "delete", "service", "visitors")


@pytest.fixture(autouse=True)
def as_before(url: str) -> Iterator[None]:
    """Whatever was done to it, it ends as it began: nobody waits, and it says the same to the same question."""
    said = answer(url)
    yield
    waits_for(lambda: waiting(url) == 0, 60)
    assert answer(url) == said


def waits_for(is_true: Callable[[], bool], seconds: float = SECONDS) -> None:
    until(is_true, seconds, lambda: kubectl("-n", NAMESPACE, "get", "pods,events", "-o", "wide"), 0.5)


def get(url: str, path: str) -> httpx.Response:
    return httpx.get(f"{url}{path}", timeout=HEALTH, trust_env=False)


def answered(url: str) -> bool:
    """Whether the models are loaded."""
    with contextlib.suppress(httpx.TransportError):
        return get(url, "/ready").status_code == 200
    return False


def waiting(url: str) -> float:
    """How many are being answered, or wait for it."""
    names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
    return sum(float(line.split()[-1]) for line in get(url, "/metrics").text.splitlines() if line.startswith(names))


def post(url: str, timeout: float = SECONDS, **more: Any) -> httpx.Response:
    body = {**question("tuned", ASKED), "max_tokens": WORDS, **more}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=timeout, trust_env=False)


def answer(url: str) -> str:
    return str(post(url).json()["choices"][0]["message"]["content"])


def restarts() -> dict[str, int]:
    """How often the container of each of the server's pods was started again."""
    pods = objects("pods", NAMESPACE, "-l", SERVER)
    return {pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}


def healthy_while(url: str, these_go_on: list[Future[Any]]) -> None:
    while not all(one.done() for one in these_go_on):
        assert get(url, "/health").status_code == 200
        time.sleep(0.05)


@pytest.mark.parametrize("megabytes", [1, 12, 50])
def test_a_prompt_of_megabytes_is_refused_and_others_notice_nothing(url: str, megabytes: int) -> None:
    before, text = restarts(), "water " * (megabytes * 10**6 // 6)
    with ThreadPoolExecutor(1) as thread:
        sent = thread.submit(post, url, messages=[{"role": "user", "content": text}])
        healthy_while(url, [sent])
    error = sent.result().json()["error"]
    assert (sent.result().status_code, error["code"]) in [(413, "request_too_large"), (400, "context_length_exceeded")]
    assert restarts() == before


def test_a_hall_that_asks_at_once_is_answered_or_told_when_to_come_back(url: str) -> None:
    before, said = restarts(), answer(url)
    with ThreadPoolExecutor(VISITORS) as threads:
        sent = [threads.submit(post, url) for _ in range(VISITORS)]
        healthy_while(url, sent)
    replies = [one.result() for one in sent]
    assert {reply.status_code for reply in replies} == {200, 429}
    assert {one.json()["choices"][0]["message"]["content"] for one in replies if one.status_code == 200} == {said}
    refused = [one for one in replies if one.status_code == 429]
    assert all(int(one.headers["Retry-After"]) > 0 and "try again" in one.json()["error"]["message"] for one in refused)
    assert len(replies) - len(refused) > 64, "a full line is answered"
    assert restarts() == before


def test_visitors_who_leave_keep_nobody_waiting(url: str) -> None:
    before = restarts()
    body = {**question("tuned", ASKED), "stream": True}

    def leave(_: int) -> None:
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=SECONDS, trust_env=False) as reply:
            next(reply.iter_lines(), None)

    with ThreadPoolExecutor(60) as threads:
        list(threads.map(leave, range(60)))
    began = time.monotonic()
    answer(url)
    assert time.monotonic() - began < SOON, "after at most one token of a batch"
    assert restarts() == before


def test_killed_amid_an_answer_it_comes_back_and_says_the_same(url: str) -> None:
    """Who was being answered sees a broken answer, who asks meanwhile reads a sentence, and afterwards all is as it was."""
    ((pod, count),) = restarts().items()
    body = {**question("tuned", ASKED), "stream": True}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=SECONDS, trust_env=False) as reply:
        lines = reply.iter_lines()
        next(lines)
        os.kill(process(pod), signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            list(lines)
    asked = sh(".venv/bin/trainlab", "ask", ASKED, "--url", url, ok=None)
    assert re.match("error: .*(cannot be reached|no model is served yet)", asked), asked
    waits_for(lambda: restarts() == {pod: count + 1} and answered(url))


def process(pod: str) -> int:
    """The server of a pod, as the host numbers it."""
    (found,) = [one for one in objects("pods", NAMESPACE, "-l", SERVER) if one["metadata"]["name"] == pod]
    uid = found["metadata"]["uid"]
    pids = []
    for pid in sorted(machine.group()):
        with contextlib.suppress(OSError):
            mine = uid in Path(f"/proc/{pid}/cgroup").read_text().replace("_", "-")
            if mine and "serve" in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                pids.append(pid)
    assert pids, pod
    return pids[0]


def test_two_promotions_at_once_make_one_server(url: str, tmp_path: Path) -> None:
    """As after a network's cut, when nothing is served: both create it, and both end well."""
    jobs = objects("jobs", NAMESPACE, "-l", f"app.kubernetes.io/instance={PHASE}")
    (job,) = [one for one in jobs if "-promote-" in one["metadata"]["name"]]
    names = [f"{job['metadata']['name']}-{letter}" for letter in "ab"]
    before = {one["metadata"]["name"] for one in objects("servingruntimes", NAMESPACE)}
    kubectl("-n", NAMESPACE, "delete", "inferenceservice", PHASE)
    waits_for(lambda: not objects("pods", NAMESPACE, "-l", SERVER))
    spec = job["spec"] | {"selector": None, "manualSelector": None, "suspend": False}
    spec["template"]["metadata"]["labels"] = {"app.kubernetes.io/component": "promote"}
    copies = [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": NAMESPACE}} for name in names
    ]
    try:
        kubectl("create", "-f", "-", given=yaml.safe_dump_all([copy | {"spec": spec} for copy in copies]))
        for name in names:
            kubectl("-n", NAMESPACE, "wait", "job", name, "--for=condition=Complete", "--timeout=180s")
        said = [kubectl("-n", NAMESPACE, "logs", f"job/{name}") for name in names]
        assert all("promoted: InferenceService" in one for one in said), said
    finally:
        kubectl("-n", NAMESPACE, "delete", "jobs", *names, "--ignore-not-found")
    waits_for(lambda: answered(url))
    assert {one["metadata"]["name"] for one in objects("servingruntimes", NAMESPACE)} == before
    assert len(restarts()) == 1
