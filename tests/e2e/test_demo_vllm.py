"""vLLM in the place of our server, on the demo's cluster: the line of docs/architecture.md, and what the model then answers."""

import json
import re

import pytest
from embedded_cluster import build

from e2e import machine
from e2e.commands import WHOLE, changed, kubectl, objects, sh
from e2e.release import answer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]
SPACE, RELEASE = "engine", "quick"
DOCS = machine.REPO / "docs" / "architecture.md"


@pytest.mark.skipif(not WHOLE, reason="downloads vLLM, and minutes of training: make test-all-phases runs it")
def test_vllm_answers_as_the_run_was_scored(demo: str) -> None:
    """Base and tuned, to the word; `helm test`; a second run of the playbook changes nothing."""
    (line,) = re.findall(r"^\$ (ansible-playbook .*\"vllm\".*)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    path = {"PATH": f"{machine.REPO}/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    try:
        sh("sh", "-c", line, env=path)
        folder = next(machine.FOLDER.glob(f"share/rwx/*_{SPACE}_{RELEASE}-runs/{RELEASE}-????????"))
        for model, file in (("base", "before"), ("tuned", "after")):
            scored = json.loads((folder / "demo_outputs" / f"{file}.json").read_text(encoding="utf-8"))
            assert scored
            for one in scored:
                assert answer(SPACE, RELEASE, model, one["question"])["text"].strip() == one["text"], model
        (server,) = objects("pods", SPACE, "-l", f"app=isvc.{RELEASE}-predictor")
        assert "vllm" in server["status"]["containerStatuses"][0]["image"]
        sh(str(build.binary("helm")), "-n", SPACE, "test", RELEASE, "--timeout", "10m")
        assert changed(sh("sh", "-c", line, env=path)) == 0
    finally:
        kubectl("delete", "namespace", SPACE, "--timeout=300s", "--ignore-not-found")
