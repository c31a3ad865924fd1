"""Runs a playbook again and again, each time killed (SIGKILL, with all its processes) one task later, until one run ends by itself.

    python tests/api_server/killing.py platform -i INVENTORY [OPTIONS OF ansible-playbook]

That run has to succeed, and the one after it has to change nothing. A playbook with one long task is killed inside it,
after the given numbers of its deletions have passed through the proxy of the test API server:

    python tests/api_server/killing.py platform_teardown --deletions 1,4,9 --log FOLDER/proxy.log -i INVENTORY

Used by molecule/default.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
MAX_TASKS = 60
POLL_SECONDS = 0.02
DELAYS = (0.0, 0.4, 1.2)
"""Seconds after the task's start, in turn: before its first request, between two, or later."""


def command(playbook: str, *options: str) -> list[str]:
    """Return the call of ansible-playbook that belongs to this Python."""
    return [str(Path(sys.executable).with_name("ansible-playbook")), f"playbooks/{playbook}.yml", *options]


def environment(home: str) -> dict[str, str]:
    """Return variables with which each task starts with a line `TASK [`, and killed runs leave their files in `home`."""
    return os.environ | {
        "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_HOME": home,
    }


def family(pid: int) -> list[int]:
    """Return a process and all that it started; Ansible's workers have sessions of their own, and would go on alone."""
    stopped = [pid]
    for each in stopped:
        os.kill(each, signal.SIGSTOP)  # or it might start another one in the meantime
        for task in Path(f"/proc/{each}/task").iterdir():
            stopped += map(int, (task / "children").read_text(encoding="ascii").split())
    return stopped


def killed(call: list[str], task: int, delay: float) -> str | None:
    """Kill a run `delay` seconds after its task number `task` started; return the output of one that ended before."""
    with (
        tempfile.TemporaryDirectory() as home,
        subprocess.Popen(
            call,
            cwd=REPO,
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        lines, tasks = [], 0
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            tasks += line.startswith("TASK [")
            if tasks == task:
                time.sleep(delay)
                for pid in family(process.pid):
                    os.kill(pid, signal.SIGKILL)
                return None
    text = "".join(lines)
    if process.returncode != 0:
        raise RuntimeError(f"the run after {task - 1} killed ones failed:\n{text[-4000:]}")
    return text


def at_every_task(call: list[str], step: int = 1) -> tuple[int, str]:
    """Kill a run at each `step`-th task; return how many were killed, and the output of the one that ended."""
    for number, task in enumerate(range(1, MAX_TASKS, step)):
        text = killed(call, task, DELAYS[number % len(DELAYS)])
        if text is not None:
            return number, text
    raise RuntimeError(f"the playbook has more than {MAX_TASKS} tasks")


def while_deleting(call: list[str], log: Path, deletions: int) -> None:
    """Kill a run once the proxy has seen that many more deletions; RuntimeError for a run that ends before."""
    enough = deleted(log) + deletions
    with (
        tempfile.TemporaryDirectory() as home,
        subprocess.Popen(call, cwd=REPO, env=environment(home), stdout=subprocess.DEVNULL) as process,
    ):
        while process.poll() is None:
            if deleted(log) >= enough:
                for pid in family(process.pid):
                    os.kill(pid, signal.SIGKILL)
                return
            time.sleep(POLL_SECONDS)
    raise RuntimeError(f"the run ended with {process.returncode} before {deletions} deletions")


def deleted(log: Path) -> int:
    """Return the deletions that proxy.py has printed."""
    return log.read_text(encoding="utf-8").count(" DELETE ")


def changed(text: str) -> int:
    """Return the number of changed tasks in the recap."""
    match = re.search(r"changed=(\d+)", text)
    if not match:
        raise RuntimeError(f"no recap in:\n{text[-2000:]}")
    return int(match[1])


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("playbook")
    parser.add_argument("--deletions", type=lambda text: [int(each) for each in text.split(",")], default=[])
    parser.add_argument("--log", type=Path)
    given, options = parser.parse_known_args()
    call = command(given.playbook, *options)
    for deletions in given.deletions:
        while_deleting(call, given.log, deletions)
    if given.deletions:
        print(f"killed after {given.deletions} deletions")
        return 0
    runs, _ = at_every_task(call)
    again = killed(call, MAX_TASKS, 0.0)
    if again is None or changed(again):
        print(f"the run after {runs} killed ones and a whole one changed something:\n{again}", file=sys.stderr)
        return 1
    print(f"{runs} runs were killed, the next one ended well, and the one after it changed nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
