"""Tasks of lm-evaluation-harness: our own files, its names, their data, and the scores of a real model on them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from checkout import ROOT, SOURCES
from hub_server import serving
from tiny import make_phase, write_data
from torch.nn.functional import log_softmax
from trainlab import files
from trainlab.config import Phase
from trainlab.errors import UserError
from trainlab.evaluation import task_score, tasks
from trainlab.models import chat
from trainlab.recipes import sft
from trainlab.recipes.base import Run
from trainlab.run import launch, results, worker

TRAIN = {"epochs": 2, "batch_size": 4, "learning_rate": 0.02, "checkpoints": 1, "validation_fraction": 0.2}
CHOICE = """---
task: which_boils
dataset_path: json
dataset_kwargs: {data_files: {test: which.jsonl, train: [shown.jsonl]}}
training_split: train
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{right}}"
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
metadata: {version: 1.5}
"""
WRITTEN = """---
task: say_boil
dataset_path: json
dataset_kwargs: {data_files: {test: say.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["?"], do_sample: false, max_gen_toks: 8}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true}
"""
PARTS = ("train", "validation", "test")
BOTH = ("pvc:own/which.yaml", "pvc:own/say.yaml")


def write_tasks(models: Path) -> Path:
    """Write two tasks with their data below `models`: ten choices between two answers, six answers to generate."""
    folder = models / "own"
    rows = {
        "which": [{"question": f"water {i}", "choices": ["boil it", "drink"], "right": i % 2} for i in range(10)],
        "shown": [{"question": f"fire {i}", "choices": ["boil it", "drink"], "right": 0} for i in range(4)],
        "say": [{"question": f"fire {i}", "answer": f"boil {i}"} for i in range(6)],
    }
    for name, content in rows.items():
        files.write_text(folder / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in content))
    files.write_text(folder / "which.yaml", CHOICE)
    files.write_text(folder / "say.yaml", WRITTEN)
    return folder


def stamps(folder: Path) -> dict[str, int]:
    """Return when each file and folder was changed, in nanoseconds."""
    return {str(path): path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


@pytest.fixture
def models(tmp_path: Path, tiny_model: Path) -> Path:
    shutil.copytree(tiny_model, tmp_path / "models" / "tiny")
    write_tasks(tmp_path / "models")
    return tmp_path / "models"


def with_tasks(base: dict[str, Any], *names: str, **more: Any) -> Phase:
    return make_phase(base, evaluate={"tasks": names, **more}, train=TRAIN)


def test_own_tasks_score_what_the_model_itself_says(phase_dict: dict[str, Any], models: Path) -> None:
    phase = with_tasks(phase_dict, *BOTH)
    model, tokenizer = chat.load_base(models / "tiny", phase)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(7)
    drawn = torch.random.get_rng_state()
    found = task_score.score(model, tokenizer, phase, models)
    assert torch.equal(torch.random.get_rng_state(), drawn), "scoring draws from the generator that training uses"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight

    right = []
    for i in range(10):
        sums = []
        for answer in (" boil it", " drink"):
            prompt = tokenizer(f"water {i}", add_special_tokens=False)["input_ids"]
            whole = tokenizer(f"water {i}{answer}", add_special_tokens=False)["input_ids"]
            with torch.inference_mode():
                log = log_softmax(model(torch.tensor([whole])).logits[0], -1)
            sums.append(sum(float(log[k - 1, whole[k]]) for k in range(len(prompt), len(whole))))
        right.append(float(sums.index(max(sums)) == i % 2))
    which = found["results"]["which_boils"]
    assert which["metrics"]["acc,none"]["values"] == right
    assert which["metrics"]["acc,none"]["value"] == pytest.approx(sum(right) / 10)
    assert which["metrics"]["acc,none"]["stderr"] > 0 and which["metrics"]["acc,none"]["higher_is_better"]
    assert (which["items"], which["of"], which["few_shot"], which["version"], which["cut"]) == (10, 10, 0, 1.5, 0)
    say = found["results"]["say_boil"]["metrics"]["exact_match,none"]
    assert say["value"] == sum(say["values"]) / 6 and len(say["values"]) == 6

    limited = with_tasks(phase_dict, *BOTH, task_limit=4, few_shot=2)
    found = task_score.score(model, tokenizer, limited, models)
    which = found["results"]["which_boils"]
    assert (which["items"], which["of"], which["few_shot"]) == (4, 10, 2)
    with pytest.raises(
        UserError, match=r"evaluate.few_shot: which_boils would show 4 examples but has 4; set at most 3"
    ):
        tasks.load(with_tasks(phase_dict, BOTH[0], few_shot=4), models)


@pytest.mark.parametrize(
    ("folder", "name", "task", "least"),
    [("survival", "choice", "survival_choice", 100), ("verses", "reading", "verses_reading", 24)],
)
def test_our_own_questions_are_a_choice_of_one_in_four(
    phase_dict: dict[str, Any], models: Path, folder: str, name: str, task: str, least: int
) -> None:
    (models / folder).symlink_to(ROOT / "data" / folder)
    phase = with_tasks(phase_dict, f"pvc:{folder}/{name}.yaml", task_limit=8)
    (loaded,) = tasks.load(phase, models).tasks.values()
    rows = list(loaded.eval_docs)
    for row in rows:
        choices = loaded.doc_to_choice(row)
        assert choices == [row["answer"], *row["distractors"]] and len(set(choices)) == 4
        assert loaded.doc_to_target(row) == 0 and row["question"] in loaded.doc_to_text(row)
    found = task_score.score(*chat.load_base(models / "tiny", phase), phase, models)["results"][task]
    assert (found["items"], found["of"]) == (8, len(rows)) and len(rows) >= least
    assert set(found["metrics"]["acc_norm,none"]["values"]) <= {0.0, 1.0}


def test_a_run_with_tasks_tells_both_sides_beside_the_gate(phase_dict: dict[str, Any], models: Path) -> None:
    phase, run_dir, data_dir = with_tasks(phase_dict, *BOTH), models.parent / "run", write_data(models.parent / "data")
    volume = stamps(models)
    worker.work(Run(phase, run_dir, models / "tiny", data_dir, models))
    assert stamps(models) == volume, "a pod cannot write into the model volume"
    gate = files.read_json(run_dir / "gate.json")
    rows = {(row["task"], row["metric"]): row for row in gate["tasks"]}
    assert set(rows) == {("which_boils", "acc"), ("which_boils", "acc_norm"), ("say_boil", "exact_match")}
    sides = [files.read_json(run_dir / f"eval_{name}.json")["tasks"]["results"] for name in ("before", "after")]
    row, metric = rows["which_boils", "acc"], "acc,none"
    assert [row["before"], row["after"]] == [side["which_boils"]["metrics"][metric]["value"] for side in sides]
    assert row["gain"]["mean"] == pytest.approx(row["after"] - row["before"]) and row["gain"]["pairs"] == 10
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    assert "Tasks of lm-evaluation-harness" in page and "which_boils" in page and "10 of 10" in page
    assert files.read_json(run_dir / "report.json")["tasks"] == gate["tasks"]
    assert results.gate_again(run_dir)["tasks"] == gate["tasks"]
    kept = {name: files.read_json(run_dir / f"eval_{name}.json")["tasks"]["results"] for name in ("before", "after")}
    sft.rescore(Run(phase, run_dir, models / "tiny", data_dir, models))
    for name, scores in kept.items():
        assert files.read_json(run_dir / f"eval_{name}.json")["tasks"]["results"] == scores


@pytest.mark.rest
def test_ranks_share_the_items_and_find_what_one_finds(phase_dict: dict[str, Any], models: Path) -> None:
    """Two ranks over ten and six items; over one item rank 0 works alone."""
    code = (
        "import json, sys; from pathlib import Path; from trainlab.models import chat; from trainlab.engine import dist; from trainlab.evaluation import task_score\n"
        "from trainlab.config import SftPhase; dist.start(2); models = Path(sys.argv[1]); everything = []\n"
        "for text in sys.argv[2:]:\n"
        "    phase = SftPhase.model_validate_json(text); model, tokenizer = chat.load_base(models / 'tiny', phase)\n"
        "    everything.append(task_score.score(model, tokenizer, phase, models)['results'])\n"
        "same = dist.gather(everything); assert all(one == same[0] for one in same)\n"
        "if dist.is_main(): print('RESULT', json.dumps(everything), flush=True)\n"
        "dist.finish(0)\n"
    )
    phases = [with_tasks(phase_dict, *BOTH), with_tasks(phase_dict, *BOTH, task_limit=1)]
    script = models.parent / "rank.py"
    script.write_text(code, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", *launch.ONE_MACHINE]
    command = [*launcher, "--nproc-per-node=2", str(script)]
    texts = [phase.model_dump_json() for phase in phases]
    path = os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
    done = subprocess.run([*command, str(models), *texts], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    model, tokenizer = chat.load_base(models / "tiny", phases[0])
    for phase, shared in zip(phases, json.loads(line.removeprefix("RESULT ")), strict=True):
        alone = task_score.score(model, tokenizer, phase, models)["results"]
        for name, result in alone.items():
            assert {**shared[name], "metrics": {}} == {**result, "metrics": {}}
            for metric, numbers in result["metrics"].items():
                assert shared[name]["metrics"][metric]["values"] == numbers["values"]
                assert shared[name]["metrics"][metric]["value"] == pytest.approx(numbers["value"])


def test_no_rank_waits_for_another_where_a_task_has_fewer_items_than_ranks(
    phase_dict: dict[str, Any], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 alone may take longer than the ranks wait for one another."""
    ran: list[int] = []
    monkeypatch.setattr(task_score.dist, "world_size", lambda: 99)
    monkeypatch.setattr(task_score.dist, "is_main", lambda: False)
    monkeypatch.setattr(task_score.dist, "gather", lambda mine: [mine])
    monkeypatch.setattr(task_score, "_run", lambda *given: ran.append(given[-1]))
    task_score.score(None, None, with_tasks(phase_dict, *BOTH), models)
    assert ran == [1]


@pytest.mark.rest
def test_a_name_that_the_harness_lacks_is_refused_with_near_ones(phase_dict: dict[str, Any], models: Path) -> None:
    with pytest.raises(UserError, match=r"phase.evaluate.tasks: arc_eazy is not a task of .*did you mean arc_easy"):
        tasks.load(with_tasks(phase_dict, BOTH[0], "arc_eazy"), models)
    with pytest.raises(UserError, match=r"tasks: humaneval needs the package evaluate, which is not installed here"):
        tasks.load(with_tasks(phase_dict, "humaneval"), models)


def fill(models: Path, path: str, name: str, **columns: list[Any]) -> Path:
    """Put a data set into the volume as `trainlab fetch` leaves it."""
    table = datasets.DatasetDict({part: datasets.Dataset.from_dict(columns) for part in PARTS})
    folder = tasks.place(models, path, name, {})
    table.save_to_disk(folder / tasks.ROWS)
    files.write_json(folder / tasks.NOTE, {"source": path})
    return folder


@pytest.mark.rest
def test_a_task_of_the_harness_reads_its_data_from_the_volume(phase_dict: dict[str, Any], models: Path) -> None:
    phase = with_tasks(phase_dict, "arc_easy", task_limit=2)
    with pytest.raises(
        UserError, match=r"the data of arc_easy \(allenai/ai2_arc ARC-Easy\) are not in the model volume"
    ):
        tasks.load(phase, models)
    choices = {"text": ["boil it", "drink"], "label": ["A", "B"]}
    folder = fill(
        models,
        "allenai/ai2_arc",
        "ARC-Easy",
        id=["1", "2", "3"],
        question=["water?", "fire?", "knot?"],
        choices=[choices] * 3,
        answerKey=["A", "B", "A"],
    )
    loaded, volume = datasets.load_dataset, stamps(folder)
    model, tokenizer = chat.load_base(models / "tiny", phase)
    found = task_score.score(model, tokenizer, phase, models)
    assert datasets.load_dataset is loaded and stamps(folder) == volume
    result = found["results"]["arc_easy"]
    assert (result["items"], result["of"]) == (2, 3) and set(result["metrics"]) == {"acc,none", "acc_norm,none"}
    assert found["data"] == {"arc_easy": [{"source": "allenai/ai2_arc"}]}


def fetch(phase: Phase, models: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Run `trainlab fetch` against the hub at `url`."""
    (models / "phase.json").write_text(json.dumps({"phase": phase.model_dump(mode="json")}), encoding="utf-8")
    path = os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "HF_ENDPOINT": url, "HF_HOME": str(models / "home")}
    command = [sys.executable, "-m", "trainlab.cli", "fetch", str(models / "phase.json"), "--models", str(models)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.rest
def test_a_task_of_the_harness_is_fetched_from_a_hub_once(
    phase_dict: dict[str, Any], models: Path, tmp_path: Path
) -> None:
    card = tmp_path / "hub" / "allenai" / "ai2_arc" / "README.md"
    card.parent.mkdir(parents=True)
    config = {"config_name": "ARC-Easy", "data_files": [{"split": part, "path": f"{part}.jsonl"} for part in PARTS]}
    card.write_text(f"---\n{json.dumps({'license': 'cc-by-sa-4.0', 'configs': [config]})}\n---\n", encoding="utf-8")
    row = {"id": "1", "question": "water?", "choices": {"text": ["boil", "drink"], "label": ["A", "B"]}}
    for part in PARTS:
        (card.parent / f"{part}.jsonl").write_text(json.dumps({**row, "answerKey": "A"}) + "\n", encoding="utf-8")
    phase = with_tasks(phase_dict, "arc_easy")
    with serving(tmp_path / "hub") as hub:
        done = fetch(phase, models, hub.url)
        assert done.returncode == 0, done.stderr
        hub.seen.clear()
        assert fetch(phase, models, hub.url).returncode == 0
        assert not [one for one in hub.seen if "ai2_arc" in one]  # it is there
    (folder,) = (models / tasks.FOLDER).glob("allenai*")
    note = files.read_json(folder / tasks.NOTE)
    assert (note["source"], note["license"]) == ("allenai/ai2_arc ARC-Easy", "cc-by-sa-4.0")
    assert note["rows"] == dict.fromkeys(PARTS, 1) and note["fetched"] and not (folder / ".cache").exists()


@pytest.mark.rest
def test_an_unreachable_hub_is_a_sentence_of_fetch(phase_dict: dict[str, Any], models: Path) -> None:
    done = fetch(with_tasks(phase_dict, "arc_easy"), models, "http://127.0.0.1:9")
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert (
        "error: phase.evaluate.tasks: the data of arc_easy (allenai/ai2_arc ARC-Easy) cannot be fetched: "
        in done.stderr
    )
    assert "or set phase.evaluate.tasks to []" in done.stderr
    assert not list((models / tasks.FOLDER).glob("allenai*"))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("gone", None, r"phase.evaluate.tasks is pvc:own/gone.yaml: no file .*own/gone.yaml in the model volume"),
        ("cut", "task: [", r"tasks is pvc:own/cut.yaml: .*cut.yaml cannot be read: "),
        ("list", "- task", r"tasks is pvc:own/list.yaml: .*list.yaml cannot be read: "),
        ("nameless", "output_type: multiple_choice", r"nameless.yaml cannot be read|has no key `task` with a name"),
        ("odd", CHOICE.replace("{{right}}", "{{wrong}}"), r"tasks: pvc:own/odd.yaml cannot be used: "),
        ("lost", CHOICE.replace("which.jsonl", "lost.jsonl"), r"tasks: pvc:own/lost.yaml cannot be used: .*lost.jsonl"),
        (
            "code",
            CHOICE.replace("which_boils", "code") + "unsafe_code: true",
            r"tasks: pvc:own/code.yaml .* code that the model wrote",
        ),
        ("again", CHOICE, r"tasks: pvc:own/again.yaml contains task which_boils, which is already included"),
    ],
)
def test_a_broken_file_is_refused_with_its_name(
    phase_dict: dict[str, Any], models: Path, name: str, text: str | None, said: str
) -> None:
    if text is not None:
        (models / "own" / f"{name}.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=said):
        tasks.load(with_tasks(phase_dict, BOTH[0], f"pvc:own/{name}.yaml"), models)


def test_a_task_that_does_not_fit_into_the_model_is_refused(phase_dict: dict[str, Any], models: Path) -> None:
    text = WRITTEN.replace("max_gen_toks: 8", "max_gen_toks: 512")
    (models / "own" / "say.yaml").write_text(text, encoding="utf-8")
    phase = with_tasks(phase_dict, BOTH[1])
    model, tokenizer = chat.load_base(models / "tiny", phase)
    with pytest.raises(UserError, match=r"say_boil generates up to 512 tokens, the model has 512 positions in all"):
        task_score.score(model, tokenizer, phase, models)


def test_what_the_model_did_not_see_is_counted(phase_dict: dict[str, Any], models: Path) -> None:
    rows = [{"question": "water " * n, "choices": ["boil it", "drink"], "right": 0} for n in (3, 600, 3)]
    files.write_text(models / "own" / "which.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    phase = with_tasks(phase_dict, BOTH[0])
    model, tokenizer = chat.load_base(models / "tiny", phase)
    assert (
        task_score.score(model, tokenizer, phase, models)["results"]["which_boils"]["cut"] == 2
    )  # one item, two choices


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ({"evaluate": {"tasks": ["arc_easy", "arc_easy"]}}, "evaluate.tasks: arc_easy is listed twice"),
        ({"evaluate": {"tasks": ["own/task.yaml"]}}, "evaluate.tasks"),
        ({"evaluate": {"few_shot": -1}}, "evaluate.few_shot"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(phase_dict: dict[str, Any], blocks: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_phase(phase_dict, **blocks)


def test_sides_with_other_items_have_no_gain(phase_dict: dict[str, Any]) -> None:
    def side(values: list[float]) -> dict[str, Any]:
        metric = {"value": 0.5, "stderr": None, "higher_is_better": True, "values": values}
        task = {"items": 2, "of": 2, "few_shot": 0, "version": 1, "cut": 0, "metrics": {"acc,none": metric}}
        return {"tasks": {"results": {"one": task}}}

    phase = with_tasks(phase_dict)
    (row,) = tasks.compare_tasks(side([0.0, 1.0]), side([1.0]), phase)
    assert row["gain"] is None and row["before"] == row["after"] == 0.5
    assert tasks.compare_tasks({}, side([1.0]), phase) == [] == tasks.compare_tasks(side([1.0]), {}, phase)
