"""The callback that prints a playbook's run: a training's lines come while it runs, through a pipe, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ACTION = """
import time
from pathlib import Path
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        Display().display("it trains")
        until = time.monotonic() + 30
        while not Path(self._task.args["seen"]).exists():
            if time.monotonic() > until:
                return {"failed": True, "msg": "nobody has read the line"}
            time.sleep(0.05)
        return {"changed": False}
"""


@pytest.mark.slow
def test_a_line_of_a_task_comes_before_its_end(tmp_path: Path) -> None:
    """As in `make demo | tee log`, or in CI: Ansible's own output would keep it until the task has ended."""
    (tmp_path / "action_plugins").mkdir()
    (tmp_path / "action_plugins" / "trains.py").write_text(ACTION, encoding="utf-8")
    play = "- hosts: localhost\n  gather_facts: false\n  tasks: [{trains: {seen: SEEN}}]\n"
    (tmp_path / "play.yml").write_text(play.replace("SEEN", str(tmp_path / "seen")), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-c", "local", "-i", "localhost,"]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [*command, str(tmp_path / "play.yml")], cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE
    ) as playbook:
        assert playbook.stdout is not None
        lines = []
        for line in playbook.stdout:
            lines.append(line)
            if "it trains" in line:
                (tmp_path / "seen").touch()
    assert playbook.returncode == 0, "".join(lines)


def test_an_ignored_error_is_not_printed_as_a_failure(tmp_path: Path) -> None:
    play = "- hosts: localhost\n  gather_facts: false\n  tasks:\n"
    play += "    - {name: may fail, fail: {msg: no}, ignore_errors: true}\n    - {name: must not, fail: {msg: never}}\n"
    (tmp_path / "play.yml").write_text(play, encoding="utf-8")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-c", "local", "-i", "localhost,"]
    done = subprocess.run([*command, str(tmp_path / "play.yml")], cwd=ROOT, text=True, capture_output=True, check=False)
    words = [line.split() for line in done.stdout.splitlines()]
    assert [each[0] for each in words if each[-2:] in (["may", "fail"], ["must", "not"])] == ["ignored", "FAILED"], (
        done.stdout
    )


def test_each_item_of_a_loop_that_failed_is_explained(tmp_path: Path) -> None:
    """Ansible's message of the whole only says that one or more failed."""
    play = "- hosts: localhost\n  gather_facts: false\n  tasks:\n"
    play += "    - {name: removes, fail: {msg: 'no right to delete {{ item.name }}'}, when: item.name != 'b', "
    play += "loop: [{name: a}, {name: b}, {name: c}], loop_control: {label: 'Pod {{ item.name }}'}}\n"
    printed = _printed(tmp_path, play)
    assert "error: Pod a: no right to delete a" in printed and "error: Pod c: no right to delete c" in printed
    assert "Pod b" not in printed and "items failed" not in printed


@pytest.mark.rest
def test_diff_mode_prints_what_differs(tmp_path: Path) -> None:
    """Of one file and of a loop of them, without -v, as Ansible's own output does."""
    play = "- hosts: localhost\n  gather_facts: false\n  tasks:\n"
    play += f"    - {{copy: {{content: first, dest: {tmp_path}/one}}}}\n"
    play += f"    - {{copy: {{content: '{{{{ item }}}}', dest: '{tmp_path}/{{{{ item }}}}'}}, loop: [second, third]}}\n"
    assert "+first" not in _printed(tmp_path, play, "--check")
    printed = _printed(tmp_path, play, "--diff", "--check")
    assert all(f"+{word}" in printed for word in ("first", "second", "third")), printed


def _printed(folder: Path, play: str, *options: str) -> str:
    """Run a play; return what it prints."""
    (folder / "play.yml").write_text(play, encoding="utf-8")
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        "-c",
        "local",
        "-i",
        "localhost,",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
        *options,
    ]
    run = subprocess.run([*command, str(folder / "play.yml")], cwd=ROOT, text=True, capture_output=True, check=False)
    return run.stdout
