"""The lessons, pasted from their pages, on the demo's cluster: not done before, done after, with the answer of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e import machine
from e2e.commands import NAMESPACE, PHASE, WITH_PROGRAMS, kubectl, sh

pytestmark = [pytest.mark.e2e, pytest.mark.tier, pytest.mark.timeout(3600)]
PAGES = sorted((machine.REPO / "docs" / "learn" / "lessons").glob("*.md"))
SPACE = "lesson"
"""A namespace of its own, next to what the demo serves."""


def block(page: Path, heading: str) -> list[str]:
    """The lines of a page's first block below a heading that begins so, with the paths and the namespace of this cluster."""
    below = page.read_text(encoding="utf-8").split(f"\n## {heading}", 1)[1]
    text = re.findall(r"^```bash\n(.*?)^```", below, re.MULTILINE | re.DOTALL)[0]
    text = text.replace("/var/lib/trainlab/cluster/admin.conf", str(machine.KUBECONFIG))
    text = text.replace("/var/lib/trainlab", str(machine.HOME)).replace("artifacts/", f"{machine.ARTIFACTS}/")
    text = text.replace(NAMESPACE, SPACE)
    text = re.sub(r"^ansible-playbook .*$", rf"\g<0> -e trainlab_namespace={SPACE}", text, flags=re.MULTILINE)
    return str(text).splitlines()


def pasted(lines: list[str], ok: bool = True) -> str:
    """What a shell of the checkout says to these lines."""
    return sh("bash", "-e", "-c", "\n".join(lines), ok=ok, env=WITH_PROGRAMS, seconds=3000)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_lesson_is_done_when_its_page_was_followed(demo: str, page: Path) -> None:
    check = f". .venv/bin/activate\ntrainlab lesson {page.name[0]} --check"
    helm = block(page, "Run on the embedded cluster")
    if page.stem.partition("-")[2] == PHASE:  # the demo's own run, from which a learner starts as well
        helm = [line for line in helm if "playbooks/site.yml" not in line]
    kubectl("create", "namespace", SPACE)
    try:
        pasted(block(page, "Change") + block(page, "Predict"))
        before = pasted([check], ok=False)
        assert before.count("\ndone ") + before.count("\nmissing ") == 4 and "\nmissing  train with" in before, before
        said = pasted(helm)
        (answer,) = re.findall(r"The answer is `([a-c])`", page.read_text(encoding="utf-8"))
        assert said.rpartition("\nlesson ")[2].count("\ndone ") == 4 and f"\nThat is {answer}: " in said, said
    finally:
        machine.cluster("link")
        kubectl("delete", "namespace", SPACE, "--timeout=300s")
