"""What the planner counts for a checkpoint and for the run volume, against checkpoints that were written here, on CPU.

Planned is never less than written, and at most 1 % and 1.2 MB more: the tokenizer and the log are upper bounds.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pictures
import pytest
import torch
from slow import but_the_first
from tiny import make_phase, write_data
from trainlab.config import Values
from trainlab.data import chat_rows
from trainlab.engine import checkpoints
from trainlab.engine.stopping import Stop
from trainlab.engine.trainer import CheckpointedSftTrainer, TrainingJob
from trainlab.models import architectures, chat
from trainlab.plan import devices, estimate, source, volumes
from trainlab.progress import Progress
from trainlab.recipes import image_training, sft
from transformers import LlamaConfig, LlamaForCausalLM

SPARE = 1.2e6
TRAIN = {"epochs": 2, "batch_size": 4, "checkpoints": 5, "keep_checkpoints": 2, "validation_fraction": 0.2}
KINDS: dict[str, dict[str, Any]] = {
    "last layer, float32": {
        "model": {"source": "pvc:m", "dtype": "float32"},
        "unfreeze": {"layers": 1, "lm_head": False},
    },
    "last layers and an untied head, bfloat16": {
        "model": {"source": "pvc:m", "dtype": "bfloat16"},
        "unfreeze": {"layers": 2},
    },
    "adapters": {"model": {"source": "pvc:m", "dtype": "bfloat16"}, "lora": {"rank": 256, "alpha": 16}},
}


def written(folder: Path) -> int:
    """Return the bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 12 million parameters, enough for the weights to be most of a checkpoint."""
    folder = tmp_path_factory.mktemp("models") / "m"
    shutil.copytree(tiny_model, folder)
    config = LlamaConfig(
        vocab_size=json.loads((tiny_model / "config.json").read_text("utf-8"))["vocab_size"],
        hidden_size=512, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
        tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", but_the_first(list(KINDS)))
def test_checkpoints_and_run_volume(
    kind: str, model: Path, phase_dict: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = make_phase(phase_dict, **KINDS[kind], train=TRAIN)
    arch = architectures.from_config("m", json.loads((model / "config.json").read_text("utf-8")))
    job = replace(source.job_of(Values(phase=phase), []), arch=arch)
    expected = volumes.checkpoint(job, arch)

    sizes: list[float] = []
    fullest: list[tuple[int, int]] = []
    rotate = checkpoints.rotate

    def watched(folder: Path, keep: int) -> None:
        found = checkpoints.listed(folder)
        sizes.append(written(found[-1]))
        fullest.append((len(found), written(tmp_path / "run")))
        rotate(folder, keep)

    judge = CheckpointedSftTrainer.evaluation_loop

    def worse(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = judge(self, *args, **kwargs)
        output.metrics["eval_loss"] = float(self.state.global_step)
        return output

    monkeypatch.setattr(volumes, "SHARE", 0)  # also where they take longer than the training
    monkeypatch.setattr(checkpoints, "rotate", watched)
    # The first step stays the best one: later checkpoints hold its weights too.
    monkeypatch.setattr(CheckpointedSftTrainer, "evaluation_loop", worse)
    base, tokenizer = chat.load_base(model, phase)
    rows = chat_rows.load_train(phase.data, write_data(tmp_path / "data"))
    sft.fit(TrainingJob(phase, tmp_path / "run", base, tokenizer, rows, Progress(False)))

    assert len(sizes) >= 3
    for size in sizes[1:]:
        assert size <= expected <= 1.01 * size + SPARE, (kind, size, expected)
    (need,) = [need for need in volumes.needs(job, arch, len(sizes)) if need.name == "runs"]
    count, most = max(fullest)
    most = max(most, written(tmp_path / "run"))
    assert count == 3, fullest  # two kept, one being written
    assert most <= need.bytes <= 1.01 * most + 4 * SPARE + volumes.RUN_BYTES, (kind, most, need)


def test_checkpoints_of_an_image_classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phase = pictures.make_phase(train={"checkpoints": 4, "keep_checkpoints": 1})
    fullest: list[int] = []
    rotate = checkpoints.rotate

    def watched(folder: Path, keep: int) -> None:
        fullest.append(written(tmp_path / "run"))
        rotate(folder, keep)

    monkeypatch.setattr(checkpoints, "rotate", watched)
    images = pictures.make_images(phase)
    image_training.fit(phase, tmp_path / "run", images, Progress(False), Stop())
    job = source.job_of(Values(phase=phase), [])
    plan = estimate.estimate_images(phase, job, devices.cpu(1, 1e9), 1.0)
    (need,) = [need for need in plan.volumes if need.name == "runs"]
    assert need.bytes - volumes.RUN_BYTES == pytest.approx(max(fullest), rel=0.02) and max(fullest) < need.bytes
