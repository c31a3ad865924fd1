"""Recipe cpt on a random model: its loss is the plain one, ties survive, and resuming and ranks change nothing."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest
import tiny
import torch
from safetensors.torch import load_file
from tiny import make_phase, write_text
from trained import assert_same, weights
from trainlab import files
from trainlab.data import corpus, pack
from trainlab.engine import dist
from trainlab.engine.trainer import TrainingJob
from trainlab.errors import UserError
from trainlab.models import chat
from trainlab.recipes import cpt
from trainlab.run import results
from trainlab.serve import inference_engine
from transformers import AutoModelForCausalLM, AutoTokenizer
from workplace import environment

Make = Callable[..., TrainingJob]
TRAIN = {"epochs": 1, "batch_size": 4, "learning_rate": 0.01, "checkpoints": 2, "validation_fraction": 0.1}
BASE = {
    "recipe": "cpt",
    "unfreeze": {},
    "model": {"source": "pvc:tiny", "dtype": "float32", "max_length": 32},
    "data": {"source": "pvc:text.jsonl", "train_rows": 40},
    "gate": {"metric": "perplexity"},
    "questions": ["the water"],
}


def phase_of(phase_dict: dict[str, Any], **blocks: Any) -> Any:
    train = {**TRAIN, **blocks.pop("train", {})}
    return make_phase({**phase_dict, **BASE}, train=train, **blocks)


@pytest.fixture
def make_job(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> Make:
    """Return a function that makes a job in tmp_path/<name> with changed blocks of the phase."""
    path = write_text(tmp_path / "text.jsonl")

    def make(name: str = "run", **blocks: Any) -> TrainingJob:
        return tiny.make_job(phase_of(phase_dict, **blocks), tiny_model, path, tmp_path / name)

    return make


def test_the_fused_loss_is_the_plain_loss_in_value_and_gradient(tiny_model: Path) -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 250, (3, 40))
    plain, fused = (AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32) for _ in range(2))
    expected = plain(input_ids=ids, labels=ids).loss
    expected.backward()
    calls: list[int] = []
    fused.lm_head.register_forward_hook(lambda *_: calls.append(1))
    out = cpt.fuse(cpt.fuse(fused))(input_ids=ids, labels=ids, fused_lm_head=True)
    out.loss.backward()
    assert not calls and "logits" not in out  # nobody made the logits of a block
    assert float(out.loss) == pytest.approx(float(expected), abs=1e-6)
    for (name, parameter), (_, other) in zip(plain.named_parameters(), fused.named_parameters(), strict=True):
        assert parameter.grad is not None and torch.allclose(parameter.grad, other.grad, atol=1e-6), name


def test_the_score_is_the_plain_loss_of_each_block(make_job: Make) -> None:
    job = make_job()
    part = job.rows.heldout
    scores = cpt.score(job.model, job.tokenizer, job.phase, part)
    for item, block in zip(scores["items"], part.blocks, strict=True):
        ids = torch.tensor([block])
        with torch.no_grad():
            assert item["loss"] == pytest.approx(float(job.model(input_ids=ids, labels=ids).loss), abs=1e-5)
    assert scores["perplexity"] == pytest.approx(2.718281828 ** scores["loss"], rel=1e-6)
    assert scores["tokens"] == 31 * len(part) and scores["rows"] == len(part)


def test_perplexity_falls_all_weights_train_and_the_tie_survives(make_job: Make, tiny_model: Path) -> None:
    job = make_job()
    before = cpt.score(job.model, job.tokenizer, job.phase, job.rows.heldout)
    summary = cpt.fit(job)
    model, _ = chat.load_tuned(job.run_dir, job.phase)
    after = cpt.score(model, job.tokenizer, job.phase, job.rows.heldout)
    decision = cpt.decide(before, after, job.phase)
    assert decision["promoted"] and decision["verdict"] == "better", decision["reasons"]
    assert after["perplexity"] < before["perplexity"] / 2
    assert model.config.tie_word_embeddings and model.lm_head.weight is model.model.embed_tokens.weight
    old, new = load_file(tiny_model / "model.safetensors"), weights(job.run_dir)
    assert old.keys() == new.keys() and "lm_head.weight" not in new
    assert all(not torch.equal(tensor, old[name]) for name, tensor in new.items())
    # 40 blocks in batches of 4, once; validated and saved at half and end
    assert (summary["rows"], summary["steps"], summary["effective_batch"]) == (40, 10, 4)
    assert summary["tokens"] == 40 * 32 and summary["parameters"]["share"] == 1 and summary["last_loss"] > 0
    history = files.read_json(job.run_dir / "training_history.json")
    assert [h["step"] for h in history if "loss" in h] == list(range(1, 11))
    assert [h["step"] for h in history if "eval_loss" in h] == [5, 10]
    assert list((job.run_dir / "tensorboard").iterdir())


def test_only_the_last_layers_train_where_the_phase_says_so(make_job: Make, tiny_model: Path) -> None:
    job = make_job(text={"train_all": False}, unfreeze={"layers": 1, "lm_head": False})
    summary = cpt.fit(job)
    old, new = load_file(tiny_model / "model.safetensors"), weights(job.run_dir)
    changed = {name for name, tensor in new.items() if not torch.equal(tensor, old[name])}
    assert changed == {name for name in new if ".layers.1." in name} and old.keys() == new.keys()
    assert summary["parameters"]["trainable"] == sum(new[name].numel() for name in changed)


def test_resumed_is_uninterrupted(make_job: Make, tmp_path: Path) -> None:
    cpt.fit(make_job("whole"))
    cpt.fit(make_job("broken"))
    shutil.rmtree(tmp_path / "broken" / "best_model")
    summary = cpt.fit(make_job("broken"))
    assert summary["resumed_from_step"] == 5 and summary["steps"] == 10
    assert_same(tmp_path / "whole", tmp_path / "broken")
    losses = [
        [h["loss"] for h in files.read_json(tmp_path / name / "training_history.json") if "loss" in h]
        for name in ("whole", "broken")
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_a_tokenizer_that_grew_gets_the_same_rows_everywhere(tiny_model: Path, phase_dict: dict[str, Any]) -> None:
    phase = phase_of(phase_dict)
    model, tokenizer = chat.load_base(tiny_model, phase)
    ids = torch.tensor([tokenizer("the water boils")["input_ids"]])
    with torch.no_grad():
        known = model(ids).logits
    old = model.get_input_embeddings().weight.detach().clone()
    tokenizer.add_tokens(["<new>", "<newer>"])
    for seed in (1, 2):  # ranks draw from different random states
        torch.manual_seed(seed)
        model, _ = chat.load_base(tiny_model, phase)
        chat.prepare(model, tokenizer, phase)
        embedding = model.get_input_embeddings().weight
        assert len(embedding) == len(tokenizer) == len(old) + 2 and model.lm_head.weight is embedding
        assert torch.allclose(embedding[-2:], old.mean(dim=0).expand(2, -1), atol=1e-6)
        with torch.no_grad():
            assert torch.allclose(model(ids).logits[..., : len(old)], known, atol=1e-5)


def test_a_tokenizer_without_eos_and_too_long_blocks_are_refused(tiny_model: Path, phase_dict: dict[str, Any]) -> None:
    model, _ = chat.load_base(tiny_model, phase_of(phase_dict))
    long = phase_of(phase_dict, model={"max_length": 1024})
    with pytest.raises(UserError, match=r"phase.model.max_length is 1024: the model has 512 positions; lower it"):
        cpt.prepare(model, long)
    bare = AutoTokenizer.from_pretrained(tiny_model, eos_token=None)
    bare.eos_token = None
    with pytest.raises(UserError, match="its tokenizer has no EOS; use a model that has one"):
        chat.prepare(model, bare, phase_of(phase_dict))
    text = [corpus.Document("a", "text")]
    with pytest.raises(UserError, match=r"phase.model.source: its tokenizer: has no EOS to end a document"):
        pack.pack_corpus(bare, corpus.Corpus(text, [], text, 0, 0), 8, None, None)


def test_a_base_model_without_chat_template_is_served_texts(
    tiny_model: Path, phase_dict: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(tiny_model, tmp_path / "tiny")
    (tmp_path / "tiny" / "chat_template.jinja").unlink(missing_ok=True)
    phase = phase_of(phase_dict)
    model, tokenizer = chat.load_base(tmp_path / "tiny", phase)
    assert not tokenizer.chat_template
    served = inference_engine.Engine(phase, {"tuned": inference_engine.Hosted(model, tokenizer)})
    expected = tokenizer("the water", add_special_tokens=False)["input_ids"]
    assert served.chat_ids("tuned", [{"role": "user", "content": "the water"}]) == expected
    assert served.text_ids("tuned", "the water") == expected == chat.prompt_ids(tokenizer, phase, "the water")


def scores(*losses: float) -> dict[str, Any]:
    return {"items": [{"id": f"block-{i}", "loss": loss} for i, loss in enumerate(losses)]}


def test_the_gate_flips_at_its_threshold_and_can_say_no_difference_and_worse(phase_dict: dict[str, Any]) -> None:
    before = scores(*(3.0, 3.5, 4.0) * 2)
    for needed, promoted in ((0.4999, True), (0.5, False)):
        phase = phase_of(phase_dict, gate={"min_gain": needed})
        decision = cpt.decide(before, scores(*(2.5, 3.0, 3.5) * 2), phase)  # each exactly 0.5 better
        assert decision["promoted"] is promoted and decision["verdict"] == "better"
        assert decision["perplexity"]["factor"] == pytest.approx(1.6487, abs=1e-4)
    phase = phase_of(phase_dict)
    assert cpt.decide(before, before, phase)["verdict"] == "no difference"
    worse = cpt.decide(before, scores(*(3.1, 3.6, 4.1) * 2), phase)
    assert worse["verdict"] == "worse" and not worse["promoted"]
    broken = cpt.decide(before, scores(float("nan"), *[1.0] * 5), phase)
    assert not broken["promoted"] and "not a finite number" in broken["reasons"][0]


def test_blocks_of_one_document_are_one_piece_of_evidence(phase_dict: dict[str, Any]) -> None:
    def blocks(documents: int, loss: float) -> dict[str, Any]:
        return {"items": [{"id": f"b{i}", "group": f"d{i % documents}", "loss": loss} for i in range(60)]}

    for documents, verdict in ((5, "too few to tell"), (6, "better")):
        gate = cpt.decide(blocks(documents, 3.0), blocks(documents, 2.0), phase_of(phase_dict))
        assert gate["verdict"] == verdict and gate["promoted"] is (documents == 6)
        assert f"over 60 held-out blocks of {documents} documents" in gate["reasons"][0]
    few = cpt.decide(blocks(5, 3.0), blocks(5, 2.0), phase_of(phase_dict))
    assert few["reasons"][0].endswith("; raise phase.text.heldout_fraction, or add documents.")


def test_one_rank_alone_has_nothing_to_measure() -> None:
    found = dist.check_collectives()
    assert (found["world_size"], found["sum"], found["bandwidth_mb_s"]) == (1, 1, None)
    assert dist.collectives_sentence(found).startswith("ranks: 1, alone on ") and dist.world_size() == 1


def test_pods_are_not_nodes() -> None:
    found = {**dist.check_collectives(), "world_size": 4, "hosts": ["a-0", "a-1"], "nodes": ["n1"], "backend": "gloo"}
    measured = {"megabytes": 16, "seconds": 0.1, "bandwidth_mb_s": 160.0}
    assert dist.collectives_sentence({**found, **measured}).startswith("ranks: 4 in 2 pods on 1 node (n1) by gloo: ")
    alone = dist.collectives_sentence({**found, **measured, "nodes": []})
    assert alone.startswith("ranks: 4 on 2 hosts (a-0, a-1) by gloo: ")


def nameless() -> list[str]:
    """Return what runs a command on a machine whose name nobody knows; nothing where this one forbids namespaces."""
    before = ["unshare", "--map-root-user", "--uts", "sh", "-c", 'hostname nowhere.invalid && exec "$@"', "sh"]
    try:
        return before if subprocess.run([*before, "true"], check=False, capture_output=True).returncode == 0 else []
    except FileNotFoundError:
        return []


@pytest.mark.rest
def test_two_ranks_make_one_run_that_equals_one_rank_with_accumulation(
    tiny_model: Path, phase_dict: dict[str, Any], tmp_path: Path
) -> None:
    models = tmp_path / "models"
    shutil.copytree(tiny_model, models / "tiny")
    write_text(models / "text.jsonl")
    env = environment()
    for name, accumulation, processes in (("two", 1, "2"), ("one", 2, "1")):
        phase = phase_of(phase_dict, train={"batch_size": 2, "gradient_accumulation": accumulation})
        (tmp_path / "phase.json").write_text(json.dumps({"phase": phase.model_dump(mode="json")}))
        folders = ["--models", str(models), "--out", str(tmp_path), "--run", name, "--processes", processes]
        arguments = ["run", str(tmp_path / "phase.json"), *folders]
        if name == "one":
            text = forked.ended([forked.Run(arguments, env)])
        else:
            command = [*nameless(), sys.executable, "-m", "trainlab.cli", *arguments]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            text = done.stdout
            assert done.returncode == 0, text + done.stderr
        assert f"trainlab: ranks: {processes}" in text and "duplicate documents left out" in text
    assert_same(tmp_path / "two", tmp_path / "one", tolerance=1e-4)
    both = [files.read_json(tmp_path / name / "eval_after.json") for name in ("two", "one")]
    assert [i["loss"] for i in both[0]["items"]] == pytest.approx([i["loss"] for i in both[1]["items"]], abs=1e-3)
    proof = files.read_json(tmp_path / "two" / "manifest.json")["ranks"]
    assert (proof["world_size"], proof["sum"], proof["expected"], proof["backend"]) == (2, 3, 3, "gloo")
    assert proof["bandwidth_mb_s"] > 0 and proof["megabytes"] == 16
    assert results.finished(tmp_path / "two") and results.gate_again(tmp_path / "two")["metric"] == "perplexity"
    page = (tmp_path / "two" / "report.html").read_text()
    assert "PROMOTED" in page and "Perplexity on unseen text" in page and "The same beginnings continued" in page
    assert results.evaluate_again(tmp_path / "one", models, None) == 0
    again = files.read_json(tmp_path / "one" / "eval_after.json")
    assert [i["loss"] for i in again["items"]] == pytest.approx([i["loss"] for i in both[1]["items"]], abs=1e-5)
