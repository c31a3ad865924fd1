"""Compiled layers: one graph for each length that a phase declares, with the losses of rows that are not padded; counted by torch itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from stages import DPO, LORA, PRETRAIN, SFT, phase_of
from tiny import make_job, train, write_data, write_text
from torch._dynamo.testing import CompileCounter
from trainlab import files
from trainlab.engine import acceleration, compiled

CURRICULUM = [{"length": 8, "share": 0.5}, {"length": 32, "share": 0.5}]
PACKED = {"packing": True, "batch_size": 1}


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileCounter]:
    """Let phases compile without a GPU, by a backend that counts graphs and runs them as they are."""
    counted = CompileCounter()

    def prepare(model: Any, phase: Any, *_: Any) -> None:
        if phase.stage.compile:
            acceleration.compile_layers(model, backend=counted)

    monkeypatch.setattr(acceleration, "prepare", prepare)
    torch._dynamo.reset()
    yield counted
    torch._dynamo.reset()


class Seen(dict[bool, set[int]]):
    """Tokens of the batches that a model read, in training or not."""

    def __init__(self, model: Any) -> None:
        super().__init__({True: set(), False: set()})
        model.register_forward_pre_hook(self.note, with_kwargs=True)

    def note(self, model: Any, _: Any, inputs: dict[str, Any]) -> None:
        """Count the batch."""
        self[model.training].add(inputs["input_ids"].numel())


def both(
    phase_dict: Any, kind: Any, base: Path, rows: Path, folder: Path, **blocks: Any
) -> list[tuple[list[float], dict[str, Any], Seen]]:
    """Train as it is and compiled; return of each the losses of all steps and validations, the summary, and the batches."""
    results = []
    for name, compile_layers in (("plain", False), ("compiled", True)):
        stage = {**kind["stage"], **blocks.get("stage", {}), "compile": compile_layers}
        gpu = {"gpus_per_node": 1, "processes_per_node": 1}  # without which compiling is refused
        phase = phase_of(phase_dict, kind, **{**blocks, "stage": stage, "resources": gpu})
        job = make_job(phase, base, rows, folder / name)
        seen, summary = Seen(job.model), train(job)
        history = files.read_json(folder / name / "training_history.json")
        losses = [one[key] for one in history for key in ("loss", "eval_loss") if key in one]
        results.append((losses, summary, seen))
    return results


@pytest.mark.parametrize(
    ("kind", "block", "graphs"),
    [
        pytest.param(SFT, PACKED, 1, id="packed"),
        pytest.param(
            SFT, {**PACKED, "gradient_checkpointing": True}, 1, id="packed, recomputed", marks=pytest.mark.rest
        ),
        pytest.param(SFT, {**PACKED, "batch_size": 2}, 1, id="packed, two rows a batch", marks=pytest.mark.rest),
        # two, as what the first layer reads needs no gradient
        pytest.param(LORA, PACKED, 2, id="packed, adapters", marks=pytest.mark.rest),
        pytest.param(SFT, {"batch_size": 3}, 1, id="single rows", marks=pytest.mark.rest),
        pytest.param(DPO, {"batch_size": 4}, 1, id="pairs", marks=pytest.mark.rest),
    ],
)
def test_rows_of_many_lengths_are_one_graph_with_the_same_losses(
    kind: Any, block: Any, graphs: int, phase_dict: Any, tmp_path: Path, tiny_model: Path, counter: CompileCounter
) -> None:
    changed = {"train": {**block, "validation_fraction": 0.2}, "model": {"max_length": 96}}
    data = write_data(tmp_path / "data")
    plain, fixed = both(phase_dict, kind, tiny_model, data, tmp_path, **changed)
    assert len(plain[0]) >= 5 and fixed[0] == pytest.approx(plain[0], abs=1e-4)
    assert fixed[1]["tokens"] == plain[1]["tokens"] > 0  # without padding
    assert counter.frame_count == graphs
    trained, validated = fixed[2][True], fixed[2][False]
    whole = 96 * block["batch_size"] * (2 if kind is DPO else 1)
    assert max(trained) == whole and min(validated) < whole, "validation is not padded"
    assert trained == {whole} or not block.get("packing"), "packed batches are whole, single rows may lack some"


@pytest.mark.rest
def test_without_padding_each_length_is_a_graph(
    phase_dict: Any, tmp_path: Path, tiny_model: Path, counter: CompileCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "padded_length", lambda _: None)
    monkeypatch.setattr(compiled, "batch_tokens", lambda _: None)
    data = write_data(tmp_path / "data")
    both(phase_dict, SFT, tiny_model, data, tmp_path, train={"batch_size": 3, "validation_fraction": 0.2})
    assert counter.frame_count >= 4


def test_a_curriculum_is_a_graph_for_each_length(
    phase_dict: Any, tmp_path: Path, tiny_model: Path, counter: CompileCounter
) -> None:
    """Ten steps of four blocks, the last of them of three, and two validations of whole blocks."""
    text = write_text(tmp_path / "text.jsonl")
    changed: Any = {"data": {"source": "pvc:text.jsonl", "train_rows": 39}, "stage": {"curriculum": CURRICULUM}}
    plain, fixed = both(phase_dict, PRETRAIN, tiny_model, text, tmp_path, **changed)
    assert plain[1]["steps"] == 10 and len(plain[0]) == 12
    assert fixed[0] == pytest.approx(plain[0], abs=1e-4)
    assert counter.frame_count == len(CURRICULUM)
