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
    - ansible.builtin.include_tasks: case.yml
      loop: "{{ cases }}"
    - ansible.builtin.copy:
        content: "{{ found | to_json }}"
        dest: "{{ here }}/found.json"
        mode: "0644"
      check_mode: false
"""
MORE = "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: more, annotations: {{{}}}}}\n"
HOOK = "helm.sh/hook: test"
CASE = """
- ansible.builtin.include_role: {name: trainlab.rhoai.train, tasks_from: look}
  vars: {__phase_chart: "{{ item.chart | default(chart) }}"}
- ansible.builtin.include_role: {name: trainlab.rhoai.train, tasks_from: release}
  vars:
    __train_release_values: "{{ item['values'] }}"
    __phase_chart: "{{ item.chart | default(chart) }}"
    __train_removed: {changed: false, present: "{{ item.present | default([]) }}"}
- ansible.builtin.set_fact:
    found: "{{ found | default([]) + [[__phase_preview is changed, __train_upgraded is skipped]] }}"
"""


@pytest.fixture(params=HELMS)
def helm(server: Server, request: pytest.FixtureRequest) -> Releases:
    """A namespace of its own for each Helm program."""
    return Releases(server, request.param, "differs")


def upgrades(helm: Releases, here: Path, *cases: dict[str, Any]) -> list[bool]:
    """Whether the role would upgrade for each case, in check mode, in which nothing is installed."""
    program = f"{binary(helm.helm_name)} --kubeconfig {helm.server.kubeconfig}"
    for name, text in (("play", PLAY), ("case", CASE)):
        (here / f"{name}.yml").write_text(text, encoding="utf-8")
    given = {"trainlab_namespace": helm.namespace, "trainlab_release": "demo", "trainlab_kubeconfig": ""}
    resolved = {"helm": program, "kubectl": "kubectl", "phase": {"name": "survival"}}
    given |= {"trainlab_resolved": resolved, "chart": str(CHART), "here": str(here)}
    given |= {"trainlab_helm": "helm", "cases": [{"values": {}} | each for each in cases]}
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "--check", str(here / "play.yml")]
    env = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    ended = subprocess.run(
        [*command, "-e", json.dumps(given)], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads((here / "found.json").read_text(encoding="utf-8"))
    assert all(skipped for _changed, skipped in found)
    return [changed for changed, _skipped in found]


def test_what_an_upgrade_would_change(helm: Releases, tmp_path: Path) -> None:
    """An edited template of a chart with the same version is seen, a page for people is not."""
    assert upgrades(helm, tmp_path, {}) == [True]

    done(helm.upgrade())
    values = json.loads(done(helm.run("get", "values", "demo", "--output", "json")))
    edited, tested, pages = (shutil.copytree(CHART, tmp_path / name) for name in ("edited", "tested", "pages"))
    for chart, folder in ((edited, ""), (tested, "tests/")):
        file = next((chart / "templates" / folder).glob("*.yaml"))
        file.write_text(file.read_text(encoding="utf-8") + MORE.format(folder and HOOK), encoding="utf-8")
    (pages / "README.md").write_text("# another page\n", encoding="utf-8")
    small = values | {"phase": values["phase"] | {"train": values["phase"]["train"] | {"learning_rate": 0.00005}}}
    cases = [{}, {"values": small}, *({"chart": str(chart)} for chart in (edited, tested, pages))]
    assert upgrades(helm, tmp_path, *({"values": values} | each for each in cases)) == [False, True, True, True, False]
    done(helm.upgrade("--set-json", "phase.train.learning_rate=0.00005"))
    assert upgrades(helm, tmp_path, {"values": small}, {"values": values}) == [False, True]

    refused(helm.upgrade(*BROKEN))
    assert upgrades(helm, tmp_path, {"values": small}) == [True]
