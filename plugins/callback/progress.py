"""Output for people: one line per task that did something, with its seconds; the stdout callback of ansible.cfg."""

from __future__ import annotations

DOCUMENTATION = """
name: progress
type: stdout
short_description: Task names with their seconds, no noise
description:
  - Prints each play in which something ran, each task that ran with its outcome and seconds, and a one-line recap.
  - Skipped tasks and results are printed only with C(-v). Of failures only the message is printed.
  - Lines that the collection's own plugins print while they wait appear between the tasks.
version_added: 0.1.0
requirements:
  - Set as stdout in configuration.
"""

# Ansible's sanity test wants the documentation before the imports.
import io  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from typing import Any  # noqa: E402

from ansible import constants as C  # noqa: E402
from ansible.plugins.callback import CallbackBase  # noqa: E402

HIDDEN_ACTIONS = {
    "ansible.builtin.include_role",
    "ansible.builtin.include_tasks",
    "ansible.builtin.set_fact",
    "ansible.builtin.validate_argument_spec",
}
DEBUG = {"ansible.builtin.debug", "debug", "trainlab.rhoai.user_info"}


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Prints a run; keeps nothing but times and counts."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "trainlab.rhoai.progress"

    def __init__(self) -> None:
        """Start the clock, and let each line out at once: through a pipe, as of `tee`, Ansible keeps them until a buffer is full,
        so that those of a training would come when it has ended.
        """
        super().__init__()
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        self._start = time.monotonic()
        self._task_start = self._start
        self._play = ""

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Note the play's name; it is printed before its first line."""
        self._play = f"\n==> {play.get_name().strip()}  ({_clock(time.monotonic() - self._start)})"

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Note the time; name a task of our own plugins at once, because their lines follow."""
        self._task_start = time.monotonic()
        if task.action.startswith("trainlab.rhoai.") or self._display.verbosity > 0:
            self._head()
            self._display.display(f"    ..                {_named(task)}")

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """As any task."""
        self.v2_playbook_on_task_start(task, False)

    def v2_runner_on_ok(self, result: Any) -> None:
        """Print outcome, seconds and name; of a debug task only the message."""
        data = _data(result)
        if _task(result).action in DEBUG and "msg" in data:
            self._head()
            for item in data.get("results") or [data]:
                if "msg" in item:
                    self._display.display(_text(item["msg"]))
            return
        changed = bool(data.get("changed", False))
        seconds = time.monotonic() - self._task_start
        if changed or self._display.verbosity > 0 or _task(result).action not in HIDDEN_ACTIONS:
            self._line("changed" if changed else "ok", seconds, result, C.COLOR_CHANGED if changed else C.COLOR_OK)
        for warning in data.get("warnings") or []:
            self._display.display(f"          {_text(warning)}", color=C.COLOR_WARN)
        if self._display.verbosity > 0:
            self._display.display(self._dump_results(data))

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Print the message, of a loop that of each item that failed, without where it was raised."""
        seconds = time.monotonic() - self._task_start
        color = C.COLOR_WARN if ignore_errors else C.COLOR_ERROR
        self._line("ignored" if ignore_errors else "FAILED", seconds, result, color)
        data = _data(result)
        failed = [each for each in data.get("results") or [] if each.get("failed") or each.get("unreachable")]
        for each in failed:  # of a loop, whose own message only says that there are some
            self._display.display(f"\nerror: {_label(each)}: {explained(each)}", color=color)
        self._display.display("" if failed else f"\nerror: {explained(data)}\n", color=color)
        if self._display.verbosity > 1:
            self._display.display(self._dump_results(data))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """As a failure."""
        self.v2_runner_on_failed(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Print it only with -v."""
        if self._display.verbosity > 0:
            self._line("skipped", time.monotonic() - self._task_start, result, C.COLOR_SKIP)

    def v2_runner_retry(self, result: Any) -> None:
        """Say that a task is retried."""
        data = _data(result)
        self._head()
        self._display.display(
            f"          {_task(result).get_name()}: {data.get('attempts')} of {data.get('retries')} tries"
        )

    def v2_on_file_diff(self, result: Any) -> None:
        """Print the differences, of a loop those of each item; Ansible calls it in diff mode only."""
        data = _data(result)
        for each in data["results"] if _task(result).loop and "results" in data else [data]:
            if each.get("diff") and (text := self._get_diff(each["diff"])):
                self._head()
                self._display.display(text.rstrip("\n"))

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Say why nothing runs."""
        self._display.display("no host of the inventory matches: use -i inventory/local, kubernetes or openshift")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print one line for each host, in the words of Ansible's own recap."""
        seconds = _clock(time.monotonic() - self._start)
        for host in sorted(stats.processed):
            summary = stats.summarize(host)
            counts = " ".join(f"{name}={summary[name]}" for name in ("ok", "changed", "skipped", "failures"))
            counts += f" unreachable={summary['unreachable']}"
            bad = summary["failures"] or summary["unreachable"]
            self._display.display(f"\n{host}: {counts}  ({seconds})", color=C.COLOR_ERROR if bad else C.COLOR_OK)

    def _head(self) -> None:
        if self._play:
            self._display.display(self._play)
        self._play = ""

    def _line(self, word: str, seconds: float, result: Any, color: str) -> None:
        self._head()
        name = _named(_task(result))
        item = _data(result).get("_ansible_item_label")
        suffix = f" ({item})" if item is not None else ""
        self._display.display(f"    {word:<8}{seconds:6.1f} s  {name}{suffix}", color=color)


def _data(result: Any) -> dict[str, Any]:
    """Return what a task returned; ansible-core before 2.19 has it under a private name only."""
    data: dict[str, Any] = result.result if hasattr(result, "result") else result._result
    return data


def _task(result: Any) -> Any:
    return result.task if hasattr(result, "task") else result._task


def explained(data: dict[str, Any]) -> str:
    """Return the text of a failed result: its message, and the error stream if that adds something."""
    text = _text(data.get("msg") or "no message").removeprefix("Task failed: ").removeprefix("Action failed: ")
    stream = _text(data.get("stderr") or data.get("module_stderr") or "").strip()
    if stream and stream not in text:
        text = f"{text}\n{stream[-2000:]}"
    return text


def _label(item: dict[str, Any]) -> str:
    """Return how the loop names this item."""
    return _text(item.get("_ansible_item_label", item.get("item", "")))


def _named(task: Any) -> str:
    """Return `role : task` without the name of the collection."""
    return str(task.get_name()).removeprefix("trainlab.rhoai.")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.rstrip()
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "\n".join(value)
    return json.dumps(value, indent=2, default=str)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s" if seconds >= 60 else f"{seconds:.0f} s"
