"""What the role train upgrades for, on a real API server with both Helm programs: values and chart, whatever the chart's version says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from api_server.releases import BROKEN, Releases, done, refused
from api_server.server import Server
from charts.rendering import CHART, HELMS, ROOT, binary

pytestmark = pytest.mark.usefixtures("training")
PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - trainlab.rhoai.release_differs: "{{ common | combine(item) }}"
      loop: "{{ cases }}"
      check_mode: "{{ checked }}"
      register: found
    - ansible.builtin.copy:
        content: "{{ found.results | to_json }}"
        dest: "{{ here }}/found.json"
        mode: "0644"
"""


@pytest.fixture(params=HELMS)
def helm(server: Server, request: pytest.FixtureRequest) -> Releases:
    """A namespace of its own for each Helm program."""
    return Releases(server, request.param, "differs")


def asked(helm: Releases, here: Path, checked: bool, *cases: dict[str, Any]) -> list[dict[str, Any]]:
    """What the module says of each case."""
    program = f"{binary(helm.helm_name)} --kubeconfig {helm.server.kubeconfig}"
    common = {"helm": program, "namespace": helm.namespace, "release": "demo", "chart": str(CHART)}
    (here / "play.yml").write_text(PLAY, encoding="utf-8")
    given = {"common": common, "cases": cases, "checked": checked, "here": str(here)}
    command = [str(Path(sys.executable).with_name("ansible-playbook")), str(here / "play.yml"), "-e", json.dumps(given)]
    env = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    ended = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return list(json.loads((here / "found.json").read_text(encoding="utf-8")))


def test_what_an_upgrade_would_change(helm: Releases, tmp_path: Path) -> None:
    """An edited template of a chart with the same version is seen, a page for people is not."""
    before = asked(helm, tmp_path, True, {"values": {}})[0]
    assert (before["status"], before["differs"], before["changed"]) == ("", ["release"], True)

    done(helm.upgrade())
    values = json.loads(done(helm.run("get", "values", "demo", "--output", "json")))
    edited, more, pages = (shutil.copytree(CHART, tmp_path / name) for name in ("edited", "more", "pages"))
    with (edited / "templates" / "_names.tpl").open("a", encoding="utf-8") as stream:
        stream.write("{{/* the same version */}}\n")
    (edited / "presets.json").write_text("{}", encoding="utf-8")
    (more / "templates" / "more.yaml").write_text("", encoding="utf-8")
    (more / "templates" / "NOTES.txt").unlink()
    (pages / "README.md").write_text("# another page\n", encoding="utf-8")
    small = values | {"phase": values["phase"] | {"train": values["phase"]["train"] | {"learning_rate": 0.00005}}}
    cases: list[dict[str, Any]] = [
        {"values": values},
        {"values": small},
        {"values": values, "chart": str(edited)},
        {"values": values, "chart": str(more)},
        {"values": values, "chart": str(pages)},
    ]
    found = asked(helm, tmp_path, False, *cases)
    expected: list[list[str]] = [
        [],
        ["values"],
        ["chart presets.json", "chart templates/_names.tpl"],
        ["chart templates/NOTES.txt", "chart templates/more.yaml"],
        [],
    ]
    assert [each["differs"] for each in found] == expected
    assert {each["status"] for each in found} == {"deployed"} and not any(each["changed"] for each in found)
    done(helm.upgrade("--set-json", "phase.train.learning_rate=0.00005"))
    assert [each["changed"] for each in asked(helm, tmp_path, True, cases[1], cases[0])] == [False, True]

    refused(helm.upgrade(*BROKEN))
    (failed,) = asked(helm, tmp_path, False, {"values": values})
    assert failed["status"] == "failed" and "status" in failed["differs"] and failed["updated"]
