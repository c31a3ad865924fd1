"""A server among people, from outside the cluster: texts of megabytes, a hall that asks at once, visitors who leave, its end amid an
answer, and two promotions at the same time; for the files that serve one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from waiting import until

from e2e import machine
from e2e.commands import kubectl, objects, serving, sh
from e2e.release import question

VISITORS, WORDS = 200, 4
SECONDS = 300.0
ASKED = "What do I do first when the power is out?"
HEALTH = 10.0
"""Seconds in which /health has to answer, whatever else is asked; a tenth of one where nothing else runs on the machine."""
SOON = 60.0
PORT = 8088


@dataclass(frozen=True)
class Server:
    """A served release. `line`: how many may wait for an answer, None for as many as come; `program`: a word of its command;
    `refusals`: the code that it has for a text that is too long, by HTTP status, None where it names none of its own.
    """

    namespace: str
    release: str
    line: int | None
    program: str
    refusals: dict[int, str] | None = None
    url: str = ""

    @property
    def selector(self) -> str:
        """Label of its pods."""
        return serving(self.release)

    def waits_for(self, is_true: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Wait, and tell what the namespace has if it is in vain."""
        until(is_true, seconds, lambda: kubectl("-n", self.namespace, "get", "pods,events", "-o", "wide"), 0.5)

    def get(self, path: str) -> httpx.Response:
        """Ask for a page."""
        return httpx.get(f"{self.url}{path}", timeout=HEALTH, trust_env=False)

    def answered(self) -> bool:
        """Whether a model is loaded."""
        with contextlib.suppress(httpx.TransportError):
            return self.get("/v1/models").json().get("data", []) != []
        return False

    def waiting(self) -> float:
        """How many are being answered, or wait for it."""
        names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
        lines = self.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(names))

    def post(self, **more: Any) -> httpx.Response:
        """Ask a short question."""
        body = {**question("tuned", ASKED), "max_tokens": WORDS, **more}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=SECONDS, trust_env=False)

    @contextlib.contextmanager
    def streamed(self) -> Iterator[Iterator[str]]:
        """The lines of a whole answer."""
        body = {**question("tuned", ASKED), "stream": True}
        asked = httpx.stream("POST", f"{self.url}/v1/chat/completions", json=body, timeout=SECONDS, trust_env=False)
        with asked as reply:
            yield reply.iter_lines()

    def answer(self) -> str:
        """What it says to the short question."""
        return str(self.post().json()["choices"][0]["message"]["content"])

    def restarts(self) -> dict[str, int]:
        """How often the container of each of its pods was started again."""
        pods = objects("pods", self.namespace, "-l", self.selector)
        return {pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}

    def healthy_while(self, these_go_on: list[Future[Any]]) -> None:
        """/health answers as long as these are asked."""
        while not all(one.done() for one in these_go_on):
            assert self.get("/health").status_code == 200
            time.sleep(0.05)

    def process(self, pod: str) -> int:
        """The server of a pod, as the host numbers it."""
        (found,) = [
            one for one in objects("pods", self.namespace, "-l", self.selector) if one["metadata"]["name"] == pod
        ]
        uid = found["metadata"]["uid"]
        pids = []
        for pid in sorted(machine.group()):
            with contextlib.suppress(OSError):
                mine = uid in Path(f"/proc/{pid}/cgroup").read_text().replace("_", "-")
                if mine and self.program in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                    pids.append(pid)
        assert pids, pod
        return pids[0]


@contextlib.contextmanager
def reachable(server: Server) -> Iterator[Server]:
    """Give it a port at the first node's address; of NodePorts the quota of a namespace of ours has none."""
    name, spaced = "visitors", ("-n", server.namespace)
    node = kubectl("get", "node", "n1", "-o", 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}')
    key, _, value = server.selector.partition("=")
    spec = {"selector": {key: value}, "externalIPs": [node], "ports": [{"port": PORT, "targetPort": 8080}]}
    metadata = {"name": name, "namespace": server.namespace}
    kubectl(
        "apply",
        "-f",
        "-",
        given=json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}),
    )
    try:
        found = replace(server, url=f"http://{node}:{PORT}")
        found.waits_for(found.answered, 60)
        yield found
    finally:
        kubectl(*spaced, "delete", "service", name)


class Visits:
    """The tests; a file that serves one gives the fixture `server`, of its module."""

    @pytest.fixture(autouse=True)
    def as_before(self, server: Server) -> Iterator[None]:
        """Whatever was done to it, it ends as it began: nobody waits, and it says the same to the same question."""
        said = server.answer()
        yield
        server.waits_for(lambda: server.waiting() == 0, 60)
        assert server.answer() == said

    @pytest.mark.parametrize("megabytes", [*(pytest.param(size, marks=pytest.mark.rest) for size in (1, 12)), 50])
    def test_a_prompt_of_megabytes_is_refused_and_others_notice_nothing(self, server: Server, megabytes: int) -> None:
        before, text = server.restarts(), "water " * (megabytes * 10**6 // 6)
        with ThreadPoolExecutor(1) as thread:
            sent = thread.submit(server.post, messages=[{"role": "user", "content": text}])
            server.healthy_while([sent])
        status, error = sent.result().status_code, sent.result().json()["error"]
        assert status in (400, 413) and error["message"]
        assert server.refusals is None or error["code"] == server.refusals[status]
        assert server.restarts() == before

    @pytest.mark.rest
    def test_a_hall_that_asks_at_once_is_answered_or_told_when_to_come_back(self, server: Server) -> None:
        before, said = server.restarts(), server.answer()
        with ThreadPoolExecutor(VISITORS) as threads:
            sent = [threads.submit(server.post) for _ in range(VISITORS)]
            server.healthy_while(sent)
        replies = [one.result() for one in sent]
        assert {reply.status_code for reply in replies} == ({200} if server.line is None else {200, 429})
        assert {one.json()["choices"][0]["message"]["content"] for one in replies if one.status_code == 200} == {said}
        refused = [one for one in replies if one.status_code == 429]
        assert all(
            int(one.headers["Retry-After"]) > 0 and "try again" in one.json()["error"]["message"] for one in refused
        )
        assert len(replies) - len(refused) > (server.line or VISITORS - 1), "a full line is answered"
        assert server.restarts() == before

    @pytest.mark.rest
    def test_visitors_who_leave_keep_nobody_waiting(self, server: Server) -> None:
        before = server.restarts()

        def leave(_: int) -> None:
            with server.streamed() as lines:
                next(lines, None)

        with ThreadPoolExecutor(60) as threads:
            list(threads.map(leave, range(60)))
        began = time.monotonic()
        server.answer()
        assert time.monotonic() - began < SOON, "after at most one token of a batch"
        assert server.restarts() == before

    @pytest.mark.rest
    def test_killed_amid_an_answer_it_comes_back_and_says_the_same(self, server: Server) -> None:
        """Who was being answered sees a broken answer, who asks meanwhile reads a sentence, and afterwards all is as it was."""
        ((pod, count),) = server.restarts().items()
        with server.streamed() as lines:
            next(lines)
            os.kill(server.process(pod), signal.SIGKILL)
            with pytest.raises(httpx.TransportError):
                list(lines)
        asked = sh(".venv/bin/trainlab", "ask", ASKED, "--url", server.url, ok=None)
        assert re.match("error: .*(cannot be reached|no model is served yet)", asked), asked
        server.waits_for(lambda: server.restarts() == {pod: count + 1} and server.answered())

    @pytest.mark.rest
    def test_two_promotions_at_once_make_one_server(self, server: Server) -> None:
        """As after a network's cut, when nothing is served: both create it, and both end well."""
        space = server.namespace
        (job,) = [one for one in _jobs(server) if "-promote-" in one["metadata"]["name"]]
        names = [f"{job['metadata']['name']}-{letter}" for letter in "ab"]
        before = {one["metadata"]["name"] for one in objects("servingruntimes", space)}
        kubectl("-n", space, "delete", "inferenceservice", server.release)
        server.waits_for(lambda: not objects("pods", space, "-l", server.selector))
        spec = job["spec"] | {"selector": None, "manualSelector": None, "suspend": False}
        spec["template"]["metadata"]["labels"] = {"app.kubernetes.io/component": "promote"}
        kinds = {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}
        try:
            copies = [kinds | {"metadata": {"name": name, "namespace": space}} for name in names]
            kubectl("create", "-f", "-", given=yaml.safe_dump_all(copies))
            for name in names:
                kubectl("-n", space, "wait", "job", name, "--for=condition=Complete", "--timeout=180s")
            said = [kubectl("-n", space, "logs", f"job/{name}") for name in names]
            assert all("promoted: InferenceService" in one for one in said), said
        finally:
            kubectl("-n", space, "delete", "jobs", *names, "--ignore-not-found")
        server.waits_for(server.answered)
        assert {one["metadata"]["name"] for one in objects("servingruntimes", space)} == before
        assert len(server.restarts()) == 1


def _jobs(server: Server) -> list[dict[str, Any]]:
    return objects("jobs", server.namespace, "-l", f"app.kubernetes.io/instance={server.release}")
