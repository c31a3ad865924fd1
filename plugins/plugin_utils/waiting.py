"""What the waiting plugins share: lines for people, following pods and a log, one sentence at the end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from .kube import OVERLOADED, Api, ApiError, Json, Unreachable
from .pods import Pod, Trouble, diagnose, name, state

POLL_SECONDS = 2.0
HEARTBEAT_SECONDS = 30.0
MAX_UNANSWERED = 15
LAST_LINES = 15
# `trainlab`'s lines in a pod start so; other lines are its libraries' and only matter when something failed
OURS = re.compile(r"^(?:\[\w+\]:\s*)?trainlab: (.*)$")


class StatusLines:
    """Prints lines with the seconds since the start, and a sign of life after 30 silent seconds."""

    def __init__(self, printer: Callable[[str], None] | None = None) -> None:
        """`printer` writes one line; default is Ansible's display."""
        self._print = printer or Display().display
        self.start = time.monotonic()
        self._last = self.start
        self._texts: dict[str, str] = {}

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def say(self, text: str) -> None:
        """Print one line."""
        self._last = time.monotonic()
        self._print(f"          {self.seconds:5.0f} s  {text}")

    def changed(self, key: str, text: str) -> None:
        """Print `key: text` if it differs from this key's last line."""
        if self._texts.get(key) != text:
            self._texts[key] = text
            self.say(f"{key}: {text}")

    def alive(self, text: str) -> None:
        """Print the text when nothing was printed for 30 s."""
        if time.monotonic() - self._last >= HEARTBEAT_SECONDS:
            self.say(text)


class Follower:
    """Prints the new lines of one container's log, each once; requests little more than what is new."""

    def __init__(self, api: Api, namespace: str, lines: StatusLines) -> None:
        """Nothing is requested before `follow`."""
        self._api, self._namespace, self._lines = api, namespace, lines
        self._seen: dict[tuple[str, str], str] = {}

    def follow(self, pod: str, container: str) -> None:
        """Print what this container wrote since the last call."""
        last = self._seen.get((pod, container), "")
        query = {"sinceTime": f"{last[:19]}Z"} if last else {"tailLines": 20}
        for line in self._api.log(self._namespace, pod, container, timestamps="true", **query).splitlines():
            stamp, _blank, text = line.partition(" ")
            if stamp <= last:
                continue
            last = stamp
            match = OURS.match(text)
            if match:
                self._lines.say(match.group(1)[:200])
        self._seen[(pod, container)] = last


def explain(api: Api, namespace: str, trouble: Trouble) -> str:
    """Return the trouble as a message with the last lines of the container's log."""
    text = f"pod {trouble.pod}: {trouble.reason}"
    if not trouble.has_log:
        return text
    query: Json = {"tailLines": LAST_LINES}
    if trouble.previous:
        query["previous"] = "true"
    log = api.log(namespace, trouble.pod, trouble.container, **query).strip()
    return f"{text}\nlast lines of its log:\n" + "\n".join(f"    {line}" for line in log.splitlines()) if log else text


def watch_pods(
    api: Api,
    namespace: str,
    pods: list[Pod],
    lines: StatusLines,
    grace: float,
    block: str = "phase.resources",
    restarts: bool = False,
) -> str | None:
    """Print what changed in these pods; return the message when one of them cannot recover.

    `restarts`: the job makes lost pods again, so losing one is only printed.
    """
    now = datetime.now(UTC)
    for pod in sorted(pods, key=name):
        lines.changed(name(pod), state(pod))
    troubles = [trouble for pod in pods if (trouble := diagnose(pod, now, grace, block))]
    if restarts:
        for trouble in troubles:
            if trouble.may_return:
                lines.changed(f"lost {trouble.pod}", trouble.reason)
        troubles = [trouble for trouble in troubles if not trouble.may_return]
    # a rank whose peer died fails with an error of its own: the first one to end is the cause
    troubles.sort(key=lambda trouble: (_ended_at(trouble, pods), trouble.pod))
    return explain(api, namespace, troubles[0]) if troubles else None


def _ended_at(trouble: Trouble, pods: list[Pod]) -> str:
    pod = next(each for each in pods if name(each) == trouble.pod)
    status = pod.get("status", {})
    for each in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        if each["name"] == trouble.container:
            ended = each.get("lastState" if trouble.previous else "state", {}).get("terminated") or {}
            return str(ended.get("finishedAt") or "")
    return "9999"


def polls(timeout: float, what: str, hint: str) -> Iterator[None]:
    """Yield once per poll; AnsibleActionFail when `timeout` seconds have passed."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        yield
        time.sleep(POLL_SECONDS)
    raise AnsibleActionFail(f"{what} is not done after {timeout:.0f} s; {hint}")


class ApiRetries:
    """Tolerates an API server that is away or overloaded for a while: what is waited for has not failed."""

    def __init__(self, lines: StatusLines) -> None:
        """No answer is missing so far."""
        self._lines, self._missed = lines, 0

    @property
    def unanswered(self) -> bool:
        """True when the last question got no answer, so that its None means nothing."""
        return self._missed > 0

    def ask(self, question: Callable[[], Any]) -> Any:
        """Return the question's answer, None if there was none this time."""
        try:
            answer = question()
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError) and error.status not in OVERLOADED:
                raise
            self._missed += 1
            self._lines.changed("API server", f"no answer ({error})")
            if self._missed > MAX_UNANSWERED:
                raise AnsibleActionFail(f"the API server went away while waiting: {error}") from error
            return None
        self._missed = 0
        return answer
