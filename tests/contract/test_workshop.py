"""The workshop for Showroom is the attendee's sheet: its commands are `solve`, and `validate` calls our checks.

Antora 3.1.15 of npm built it without a warning on 2026-11-28 (node 20, a UI bundle of one layout); it was not run on the Demo Platform.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SHEET = ROOT / "docs" / "present" / "attendees.md"
workshop = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "workshop.py")))
HELM = """#!/bin/sh
echo "$* KUBECONFIG:$(cat $KUBECONFIG)" >> "$CALLS"
case "$*" in $FAIL) echo "Error: $FAIL" >&2; exit 1;; esac
"""
GIT = '#!/bin/sh\necho "$*" >> "$CALLS"\nmkdir trainlab\n'
VALIDATION_CHECK = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(dict(check=dict(type="bool"), pass_msg=dict(), error_msg=dict()))
done = module.params
module.exit_json(msg=done["pass_msg"]) if done["check"] else module.fail_json(msg=done["error_msg"])
"""
"""Stands in for the module of the platform's runner, with its arguments."""


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """The content repository."""
    workshop.main(tmp_path / "workshop")
    return tmp_path / "workshop"


def test_each_section_is_a_page_with_its_commands(built: Path) -> None:
    """Nothing of the sheet is lost, and what is one attendee's is the reader's."""
    text = "".join(path.read_text("utf-8") for path in sorted(built.glob("content/modules/ROOT/pages/*.adoc")))
    sheet = SHEET.read_text(encoding="utf-8")
    titles = [title for title, _ in workshop.sections(sheet)]
    assert re.findall(r"^= (.*)$", text, re.MULTILINE) == titles and len(titles) > 4
    for command in workshop.commands(sheet):
        assert command.replace("user1", "{user}") in text, command
    plain = re.sub(r"\W+", " ", text)
    for word in re.findall(r"\w+", re.sub(r"user1|^```bash", "", sheet, flags=re.MULTILINE)):
        assert word in plain, word
    assert "user1" not in text and "**" not in text and "```" not in text
    nav = (built / "content/modules/ROOT/nav.adoc").read_text(encoding="utf-8")
    for name in re.findall(r"xref:([\w.-]+)\[", nav):
        assert (built / "content/modules/ROOT/pages" / name).is_file(), name
    assert nav.count("xref:") == len(titles)


def test_the_users_data_is_what_the_workload_reports(built: Path) -> None:
    """Each attribute is set by role ocp4_workload_trainlab for a user, or by Showroom."""
    attributes = yaml.safe_load((built / "content" / "antora.yml").read_text(encoding="utf-8"))["asciidoc"][
        "attributes"
    ]
    text = "".join(path.read_text("utf-8") for path in built.rglob("*.adoc"))
    post = (ROOT / "roles/ocp4_workload_trainlab/tasks/post_workload.yml").read_text(encoding="utf-8")
    used = set(re.findall(r"\{(\w+)\}", text))
    assert used == {"user", *workshop.FILES.values()} and used <= set(attributes)
    for key in used - {"user"}:
        assert re.search(rf"^ +{key}: ", post.split("Report what each attendee gets", 1)[1], re.MULTILINE), key


def play(path: Path, folder: Path, fail: str = "nothing") -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a playbook of the runner with stand-ins for helm, git and the runner's module; return it and the calls."""
    programs, library = folder / "bin", folder / "library"
    for name, text in (("helm", HELM), ("git", GIT)):
        programs.mkdir(exist_ok=True)
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    library.mkdir(exist_ok=True)
    (library / "validation_check.py").write_text(VALIDATION_CHECK, encoding="utf-8")
    (folder / "calls").write_text("", encoding="utf-8")
    env = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "ANSIBLE_LIBRARY": str(library),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "CALLS": str(folder / "calls"),
        "FAIL": fail,
        "TRAINLAB_FOLDER": str(folder),
        "TRAINLAB_KUBECONFIG": "of user7",
        "TRAINLAB_SITE": "site: {}",
    }
    command = [sys.executable, "-m", "ansible", "playbook", str(path)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done, (folder / "calls").read_text(encoding="utf-8").splitlines()


@pytest.mark.rest
def test_solve_runs_the_page_and_validate_asks_the_cluster(built: Path, tmp_path: Path) -> None:
    """With the attendee's own kubeconfig; where the check fails it names the remedy."""
    kept = " KUBECONFIG:of user7"
    stages = {path.parent.name: path for path in built.glob("runtime-automation/*/solve.yml")}
    assert set(stages) == {"module-01", "module-02", "module-03", "module-05"}
    done, calls = play(stages["module-02"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert calls == [
        "clone https://github.com/trainlab/rhoai trainlab",
        f"install quick charts/trainjob -f values/quick.yaml -f site.yaml{kept}",
    ]
    assert "of user7" not in done.stdout
    asked = stages["module-03"].with_name("validate.yml")
    done, calls = play(asked, tmp_path)
    assert done.returncode == 0 and calls == [f"test quick --timeout 10m{kept}"], done.stdout
    done, _ = play(asked, tmp_path, fail="test*")
    assert done.returncode and "The model is not promoted yet" in done.stdout and "Error: test*" in done.stdout
    left = stages["module-05"].with_name("validate.yml")
    assert play(left, tmp_path)[0].returncode == 0
    assert play(left, tmp_path, fail="list*")[0].returncode, "a helm that fails is no proof that the release is gone"


def test_what_the_generator_does_not_know_is_refused() -> None:
    """Another block or a title without a check ends in a sentence that names the sheet."""
    with pytest.raises(ValueError, match=r"attendees\.md: \| a \|: docs/workshop\.py knows"):
        workshop.asciidoc("| a |")
    sheet = SHEET.read_text(encoding="utf-8").replace("## Train\n", "## Learn\n")
    with pytest.raises(ValueError, match=r"attendees\.md: sections with commands are .*Learn.*CHECKS"):
        list(workshop.pages(sheet))
