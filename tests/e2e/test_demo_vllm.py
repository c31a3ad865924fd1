"""vLLM in the place of our server, on the demo's cluster: the line of docs/operate/serve.md, what the model then answers, also among
visitors, and a model that was trained whole.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_cluster.builds import build

from e2e import machine, visitors
from e2e.commands import changes, kubectl, objects, serving, sh
from e2e.release import answer

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(3600),
    pytest.mark.tier,
]
SPACE, RELEASE = "engine", "quick"
DOCS = machine.REPO / "docs" / "operate" / "serve.md"
PATH = {"PATH": f"{machine.REPO}/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
WHOLLY = {
    "lora": {"rank": 0},
    "unfreeze": {"layers": 2, "lm_head": False},
    "train": {"learning_rate": 3e-4},
    "gate": {"metric": "answer_loss", "require_taught": False, "max_fact_recall_drop": 1},
}
"""The model itself instead of adapters; two layers learn a manner, no fact."""


@pytest.fixture(scope="module", autouse=True)
def space(demo: str) -> Iterator[None]:
    """The namespace of the printed line, gone at the end."""
    yield
    kubectl("delete", "namespace", SPACE, "--timeout=300s", "--ignore-not-found")


def printed() -> str:
    """The line, word for word."""
    (match,) = re.findall(r"^(ansible-playbook .*\"vllm\".*)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    return match


def wholly(weights: str) -> str:
    """The line for a training of the model itself."""
    start, _, given = printed().partition(" -e '{")
    overrides = json.loads("{" + given.removesuffix("'"))["trainlab_phase_overrides"]
    overrides |= WHOLLY | {"serve": {**overrides["serve"], "weights": weights}}
    return f"{start} -e '{json.dumps({'trainlab_phase_overrides': overrides})}'"


def newest_run() -> Path:
    """The run directory whose gate decided last."""
    share = machine.FOLDER / "share" / "rwx"
    runs = share.glob(f"*_{SPACE}_{RELEASE}-runs/{RELEASE}-????????")
    return max(runs, key=lambda one: (one / "gate.json").stat().st_mtime)


def answers_as_scored(*models: str) -> str:
    """Ask the newest run's questions and compare, word for word, then `helm test`; return its name."""
    folder = newest_run()
    for model in models:
        answers(folder, model)
    sh(str(build.binary("helm")), "-n", SPACE, "test", RELEASE, "--timeout", "10m")
    return folder.name


def answers(folder: Path, model: str) -> None:
    """Ask vLLM a run's questions and compare with what the run was scored by, word for word."""
    scored = _scored(folder, model)
    assert scored
    for one in scored:
        assert answer(SPACE, RELEASE, model, one["question"])["text"].strip() == one["text"], model
    (server,) = objects("pods", SPACE, "-l", serving(RELEASE))
    assert "vllm" in server["status"]["containerStatuses"][0]["image"]


def _scored(folder: Path, model: str) -> list[dict[str, str]]:
    file = folder / "demo_outputs" / f"{'before' if model == 'base' else 'after'}.json"
    return list(json.loads(file.read_text(encoding="utf-8")))


def test_vllm_answers_as_the_run_was_scored() -> None:
    """Base and tuned, to the word; `helm test`; a second run of the playbook changes nothing."""
    sh("sh", "-c", printed(), env=PATH)
    answers_as_scored("base", "tuned")
    assert changes(sh("sh", "-c", printed(), env=PATH)) == []


@pytest.fixture(scope="module")
def server() -> Iterator[visitors.Server]:
    """What the printed line ends with, which the test above ran."""
    with visitors.reachable(
        visitors.Server(SPACE, RELEASE, line=None, program="vllm.entrypoints.openai.api_server")
    ) as found:
        yield found


class TestVisitors(visitors.Visits):
    """All of them, with an engine that lets everybody wait in line."""


def test_a_model_trained_whole_and_its_base_on_request() -> None:
    """One of the two at a time; changing over, and back, trains nothing."""
    sh("sh", "-c", wholly("tuned"), env=PATH)
    run = answers_as_scored("tuned")
    trained = {job["metadata"]["uid"] for job in objects("pytorchjobs", SPACE)}
    for weights in ("base", "tuned"):
        said = sh("sh", "-c", wholly(weights), env=PATH)
        assert f'"model": "{weights}"' in said
        assert answers_as_scored(weights) == run
        assert {job["metadata"]["uid"] for job in objects("pytorchjobs", SPACE)} == trained


def test_weights_half_written_are_not_served_in_the_place_of_those_that_are() -> None:
    """A promotion of them, as after a change of the server, is refused by name; the server that has the whole ones answers on."""
    sh("sh", "-c", wholly("tuned"), env=PATH)
    whole = newest_run() / "best_model" / "model.safetensors"
    aside = whole.rename(whole.with_suffix(".aside"))
    whole.write_bytes(aside.read_bytes()[: aside.stat().st_size // 2])
    try:
        said = sh("sh", "-c", wholly("base"), env=PATH, ok=False)
        assert f"{whole.name}: half written or no safetensors file" in said, said
        answers(newest_run(), "tuned")
    finally:
        aside.replace(whole)
    sh("sh", "-c", wholly("base"), env=PATH)
    answers_as_scored("base")
