"""Validation rows of their own: what they replace, what of them is left out, what is refused before training."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from stages import DPO, PRETRAIN, phase_of
from tiny import make_phase, write_data, write_taught, write_text
from trainlab import files
from trainlab.data import chat_rows, corpus, row_files, table_rows
from trainlab.engine import trainer
from trainlab.engine.stopping import Stop, StopCallback
from trainlab.engine.trainer import TrainingJob
from trainlab.errors import UserError
from trainlab.models import chat, compute
from trainlab.plan import source
from trainlab.progress import Progress
from trainlab.recipes import cpt, dpo, language, pretrain, sft
from trainlab.recipes.base import Run
from trainlab.run import identity, manifest
from transformers import TrainerControl, TrainerState, TrainingArguments

TRAIN = {"epochs": 1, "batch_size": 4, "learning_rate": 0.01, "checkpoints": 2, "validation_fraction": 0.2}
OWN = [
    {"id": "v1", "question": "Own one?", "phrasings": ["Own 1?"], "answer": "It is one."},
    {"id": "v2", "question": "FIRE NO 3", "answer": "A phrasing that is trained on."},
    {"id": "v3", "question": "is water 1 safe?", "answer": "A question that is held out."},
]


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


@pytest.fixture
def run(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> Run:
    """A run of sft that validates on OWN."""
    write_rows(tmp_path / "mine" / "val", OWN)
    phase = make_phase(phase_dict, train=TRAIN, data={"validation": "pvc:mine/val"})
    progress = Progress(True)
    return Run(phase, tmp_path / "run", tiny_model, write_data(tmp_path / "data"), tmp_path, progress)


def test_own_rows_choose_the_best_and_no_row_is_set_aside(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sft.preflight(run.phase, run.model_dir, run.data_dir, run.models)
    sft.train(run)
    said = capsys.readouterr().out
    assert (
        "validation: 2 of pvc:mine/val; 2 left out, as they are also trained on or held out, the first "
        f"{tmp_path}/mine/val/own.jsonl:2" in said
    )
    summary = files.read_json(run.run_dir / "training_summary.json")
    assert (summary["rows"], summary["validation_rows"], summary["steps"]) == (24, 2, 6)  # all twelve questions
    assert summary["validation_loss"] > 0 and run.phase.set_aside == 0


def test_a_training_that_was_complete_is_scored_and_not_trained_again(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was lost while it was scored: hours of training, whose newest checkpoint may be half of it."""
    sft.preflight(run.phase, run.model_dir, run.data_dir, run.models)
    sft.train(run)
    tuned = files.folder_sha256(run.run_dir / "best_model")
    (run.run_dir / "eval_after.json").unlink(missing_ok=True)
    monkeypatch.setattr(sft, "fit", lambda _: pytest.fail("trains"))
    sft.train(run)
    assert "the training was complete at an earlier start" in capsys.readouterr().out
    assert files.folder_sha256(run.run_dir / "best_model") == tuned
    (run.run_dir / "training_summary.json").unlink()
    with pytest.raises(pytest.fail.Exception, match="trains"):
        sft.train(run)


def test_a_pod_that_is_told_to_end_while_the_result_is_saved_saves_it_first(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the last step no checkpoint follows: the result, smaller than one, is what the next start needs."""
    heard: list[bool] = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append((run.run_dir / "training_summary.json").exists()))
    real = trainer.save_model

    def told(*given: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        real(*given)

    monkeypatch.setattr(trainer, "save_model", told)
    try:
        sft.preflight(run.phase, run.model_dir, run.data_dir, run.models)
        sft.train(run)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [True], "after the summary, by which the training is complete"


def test_a_pod_that_is_told_to_end_in_the_last_step_keeps_no_checkpoint_of_it() -> None:
    stop, control = Stop(), TrainerControl()
    stop._asked = True
    callback, state = StopCallback(stop), TrainerState(global_step=6, max_steps=6)
    callback.on_step_end(TrainingArguments("x", use_cpu=True), state, control)
    assert not control.should_save
    state.global_step = 5
    callback.on_step_end(TrainingArguments("x", use_cpu=True), state, control)
    assert control.should_save


def test_a_run_that_comes_back_on_another_kind_of_node_computes_as_it_began(run: Run) -> None:
    """Else the scores before and after would be of two precisions."""
    auto = {"dtype": "auto"}
    phase = run.phase.model_copy(update={"model": run.phase.model.model_copy(update=auto)})
    here = compute.dtype(phase)
    other = next(name for name, dtype in compute.DTYPES.items() if dtype != here)
    assert manifest.dtype(run.run_dir) is None
    files.write_json(run.run_dir / "manifest.json", {"dtype": other})
    try:
        compute.keep(manifest.dtype(run.run_dir))
        assert compute.dtype(phase) == compute.DTYPES[other]
    finally:
        compute.keep(None)
    assert compute.dtype(phase) == here


@pytest.mark.parametrize(
    ("key", "keys"),
    [("phase.unfreeze.layers", {"unfreeze": {"layers": 5}}), ("phase.lora.layers", {"lora": {"rank": 2, "layers": 5}})],
)
def test_more_layers_than_the_model_has_are_refused_before_the_base_is_scored(
    phase_dict: dict[str, Any], tiny_model: Path, key: str, keys: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match=f"{key} is 5: the model has 2 layers; set it to at most that"):
        language.check_model(make_phase(phase_dict, train=TRAIN, **keys), tiny_model)


def test_processors_of_different_abilities_are_refused_where_they_choose(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = iter([[torch.bfloat16, torch.float32]])
    monkeypatch.setattr(manifest.dist, "gather", lambda mine: next(kinds))
    with pytest.raises(UserError, match=r"phase.model.dtype is .*some would compute in bfloat16 and some in float32"):
        manifest.begin(run, {"model": {}, "data": {}}, {"world_size": 2})


def test_one_id_of_questions_of_two_kinds_is_refused_before_training(
    tmp_path: Path, phase_dict: dict[str, Any]
) -> None:
    """Scores are kept by id: of the two one would take the other's answer."""
    data = write_data(tmp_path / "data")
    write_taught(data)
    phase = make_phase(phase_dict, data={"taught": "test"})
    asked = chat_rows.load_heldout(phase.data, data)
    taught = next(row["id"] for row in asked if row["kind"] != "never_taught")
    file = next((data / "heldout").glob("*.jsonl"))
    first = json.loads(file.read_text(encoding="utf-8").splitlines()[0])
    write_rows(data / "heldout", [{**first, "id": taught}])
    with pytest.raises(UserError, match=f"id {taught} is of questions of two kinds"):
        chat_rows.load_heldout(phase.data.model_copy(update={"heldout_rows": 99}), data)


def test_what_a_taught_fact_is_asked_in_is_left_out(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    data = write_taught(write_data(tmp_path / "data"))
    phase = make_phase(phase_dict, data={"validation": "pvc:val", "taught": "dev"}, gate={"metric": "taught_recall"})
    asked = {"id": "v4", "question": "second test: which wood burns slowly?", "answer": "Oak."}
    rows, left_out = chat_rows.load_validation(phase.data, data, write_rows(tmp_path / "val", [OWN[0], asked]))
    assert [row["question"] for row in rows] == ["Own one?", "Own 1?"] and len(left_out) == 1


def test_verses_may_share_their_instruction(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    verses = [{"id": f"s{n}", "instruction": "Sing.", "verse": f"The boat {n}\nis out"} for n in range(4)]
    for part, some in (("train", verses[:2]), ("heldout", verses[2:3])):
        write_rows(tmp_path / "data" / part, some)
    phase = make_phase(phase_dict, data={"validation": "pvc:val"})
    rows, left_out = chat_rows.load_validation(phase.data, tmp_path / "data", write_rows(tmp_path / "val", verses[1:]))
    assert [row["answer"] for row in rows] == ["The boat 3\nis out"] and len(left_out) == 2


def test_missing_broken_and_equal_rows_are_refused_before_training(run: Run, tmp_path: Path) -> None:
    def refused(text: str) -> None:
        with pytest.raises(UserError, match=text):
            sft.preflight(run.phase, run.model_dir, run.data_dir, run.models)

    write_rows(tmp_path / "mine" / "val", OWN[1:])
    refused(r"mine/val: each of the 2 rows is also trained on or held out, so none can validate; name others")
    write_rows(tmp_path / "mine" / "val", [{"id": "v1", "question": "No answer?"}])
    refused(r"own.jsonl:1: key answer is missing")
    write_rows(tmp_path / "mine" / "val", [{**OWN[0], "answer": "word " * 900}])
    refused(r"row v1: \d+ tokens, phase.model.max_length is")
    shutil.rmtree(tmp_path / "mine")
    refused(r"^phase.data.validation is pvc:mine/val: no folder .*mine/val; put it there first")


def test_other_validation_rows_are_another_run(run: Run, tmp_path: Path) -> None:
    record = sft.origin(run.phase, run.model_dir, run.data_dir, run.models)
    assert record["data"]["validation"]["source"] == "pvc:mine/val"
    files.write_json(tmp_path / "run" / "manifest.json", {**record, "world_size": 1})
    identity.refuse_other_inputs(tmp_path / "run", record)
    write_rows(tmp_path / "mine" / "val", OWN[:1])
    with pytest.raises(UserError, match="this run started with different data"):
        identity.refuse_other_inputs(tmp_path / "run", sft.origin(run.phase, run.model_dir, run.data_dir, run.models))


def test_pairs(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> None:
    data = write_data(tmp_path / "data")
    write_rows(tmp_path / "val", OWN)
    phase = phase_of(phase_dict, DPO, data={"validation": "pvc:val"})
    rows, left_out = dpo.read_validation(phase, data, tmp_path)
    assert [row["rejected"] for row in rows] == ["It"] * 2 and len(left_out) == 2
    given = phase_of(phase_dict, DPO, data={"validation": "pvc:val"}, stage={"pairs": "given"})
    with pytest.raises(UserError, match=r"own.jsonl:1: key chosen is missing"):
        dpo.read_validation(given, data, tmp_path)
    assert "validation" in dpo.origin(phase, tiny_model, data, tmp_path)["data"]


def test_a_table_of_ones_own(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> None:
    for name, count in (("rows", 40), ("val", 5)):
        rows = [{"Ask": f"{name} {n}?", "Say": f"It is {n}."} for n in range(count)]
        rows += [{"Ask": "ROWS 3?", "Say": "It is known."}]
        write_rows(tmp_path / name, rows)
    table = {"columns": {"question": "Ask", "answer": "Say"}, "heldout_fraction": 0.3}
    given = {"source": "pvc:rows", "validation": "pvc:val", "table": table}
    phase = make_phase(phase_dict, data=given, model={"max_length": 256})
    rows = table_rows.fetch(phase, tmp_path, tiny_model)
    with pytest.raises(UserError, match=r"^phase.data.validation is pvc:val: no folder .*run `trainlab fetch`"):
        sft.preflight(phase, tiny_model, rows, tmp_path)
    own = table_rows.of_validation(phase)
    with row_files.naming_validation():
        folder = table_rows.fetch(own, tmp_path, tiny_model)
    assert folder != rows and files.read_json(folder / "source.json")["rows"]["heldout"] == 0
    run = Run(phase, tmp_path / "run", tiny_model, rows, tmp_path)
    assert sorted(row["question"] for row in language.own_validation(run, sft.read_validation)) == [
        f"val {n}?" for n in range(5)
    ]
    broken = make_phase(phase_dict, data={**given, "validation": "pvc:none"}, model={"max_length": 256})
    with (
        pytest.raises(UserError, match=r"^phase.data.validation is pvc:none: nothing at"),
        row_files.naming_validation(),
    ):
        table_rows.fetch(table_rows.of_validation(broken), tmp_path, tiny_model)


def test_the_validation_split_of_a_hub(
    tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, count in (("train", 60), ("validation", 7)):
        rows = [{"question": f"{name} {n}?", "answer": f"It is {n}."} for n in range(count)]
        path = write_rows(tmp_path / "own" / "set", rows) / "own.jsonl"
        path.rename(path.with_name(f"{name}.jsonl"))
    hub = "hf:own/set@" + "0" * 40
    given = {"source": hub, "validation": hub, "table": {"accept_license": True, "heldout_fraction": 0.3}}
    phase = make_phase(phase_dict, data=given, model={"max_length": 256})
    rows = table_rows.fetch(phase, tmp_path / "models", tiny_model)
    table_rows.fetch(table_rows.of_validation(phase), tmp_path / "models", tiny_model)
    run = Run(phase, tmp_path / "run", tiny_model, rows, tmp_path / "models")
    assert sorted(row["question"] for row in language.own_validation(run, sft.read_validation)) == [
        f"validation {n}?" for n in range(7)
    ]


CPT = {
    "recipe": "cpt",
    "unfreeze": {},
    "model": {"source": "pvc:tiny", "dtype": "float32", "max_length": 32},
    "data": {"source": "pvc:text.jsonl", "validation": "pvc:val.jsonl"},
    "gate": {"metric": "perplexity"},
}


def write_own_text(folder: Path) -> Path:
    """Write a text with a document that is in write_text's as well."""
    text = write_text(folder / "text.jsonl")
    lines = text.read_text("utf-8").splitlines()[:1]
    lines += [json.dumps({"id": n, "body": f"own words {n} " * 40}) for n in range(4)]
    (folder / "val.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return text


def test_running_text(
    tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    text, phase = write_own_text(tmp_path), make_phase({**phase_dict, **CPT}, train=TRAIN)
    cpt.preflight(phase, tiny_model, text, tmp_path)
    parts = corpus.load(phase, text, tmp_path / "val.jsonl")
    plain = corpus.load(make_phase({**phase_dict, **CPT, "data": {"source": "pvc:text.jsonl"}}, train=TRAIN), text)
    assert len(parts.validation) == 4 and parts.overlap == 1 and parts.heldout == plain.heldout
    assert len(parts.train) + len(parts.heldout) == 60
    model, tokenizer = chat.load_base(tiny_model, phase)
    run = Run(phase, tmp_path / "run", tiny_model, text, tmp_path, Progress(True))
    blocks = cpt.read_blocks(run, tokenizer)
    assert "and 1 of pvc:val.jsonl that pvc:text.jsonl has as well" in capsys.readouterr().out
    summary = cpt.fit(TrainingJob(phase, run.run_dir, model, tokenizer, blocks, Progress(False)))
    assert summary["validation_rows"] == len(blocks.validation) > 0 and summary["validation_loss"] > 0
    (tmp_path / "val.jsonl").unlink()
    with pytest.raises(UserError, match=r"^phase.data.validation is pvc:val.jsonl: nothing at .*; put it there first"):
        cpt.preflight(phase, tiny_model, text, tmp_path)
    shutil.copy(text, tmp_path / "val.jsonl")
    with pytest.raises(UserError, match=r"^phase.data.validation is pvc:val.jsonl: all of it is in phase.data.source"):
        cpt.preflight(phase, tiny_model, text, tmp_path)


def test_text_of_a_hub_is_its_validation_split(
    tmp_path: Path, phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, count in (("train", 20), ("validation", 5)):
        write_text(tmp_path / "own" / "set" / f"{name}.jsonl", count)
    hub = "hf:own/set@" + "0" * 40
    data = {"source": hub, "validation": hub}
    phase = make_phase({**phase_dict, **CPT, "data": data}, train=TRAIN, text={"column": "body"})
    with pytest.raises(UserError, match=r"^phase.data.validation is .*; run `trainlab fetch`"):
        corpus.validation_place(phase, tmp_path / "models")
    corpus.fetch(phase, tmp_path / "models")
    place = corpus.validation_place(phase, tmp_path / "models")
    assert len(corpus.read_validation(phase, place)) == 5
    assert len(corpus.read_validation(phase, corpus.place(phase, tmp_path / "models", None))) == 20


def test_pretraining_sets_nothing_aside_for_its_tokenizer_either(
    tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]
) -> None:
    text = write_own_text(tmp_path)
    phase = phase_of(phase_dict, PRETRAIN, data={"source": "pvc:text.jsonl", "validation": "pvc:val.jsonl"})
    assert len(corpus.load(phase, text).train) == len(corpus.load(phase, text, tmp_path / "val.jsonl").train)
    assert "validation" in pretrain.origin(phase, tiny_model, text, tmp_path)["data"]
    assert source._data_bytes(phase) is None


def test_prepared_blocks_with_own_text(
    tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny").symlink_to(tiny_model)
    (tmp_path / "raw").mkdir()
    write_own_text(tmp_path).rename(tmp_path / "raw" / "text.jsonl")
    data = {"source": "pvc:blocks", "validation": "pvc:val.jsonl", "train_rows": None}
    text = {"prepare": {"source": "pvc:raw", "min_chars": 1, "near": 0}}
    phase = phase_of(phase_dict, PRETRAIN, data=data, text=text, stage={"tokenizer": "pvc:tiny"})
    model_dir = pretrain.fetch(phase, tmp_path, None)
    pretrain.preflight(phase, model_dir, tmp_path / "blocks", tmp_path)
    run = Run(phase, tmp_path / "run", model_dir, tmp_path / "blocks", tmp_path, Progress(True))
    blocks = pretrain.read_blocks(run, chat.load_tokenizer(model_dir, phase))
    assert len(blocks.validation) > 0 and blocks.validation.documents == 5
    assert "pvc:val.jsonl is not compared with prepared blocks" in capsys.readouterr().out
    (tmp_path / "val.jsonl").unlink()
    with pytest.raises(UserError, match=r"nothing at .*val.jsonl; put it there first"):
        pretrain.preflight(phase, model_dir, tmp_path / "blocks", tmp_path)
