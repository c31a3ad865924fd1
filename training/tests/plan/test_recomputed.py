"""The planner counts recomputed activations exactly where the recipe asks the Trainer for them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import VALUES
from trainlab.config import DpoPhase, SftPhase
from trainlab.config.loading import load_values
from trainlab.plan import source

TIED: dict[str, Any] = {"lora": {"rank": 0, "layers": None}, "unfreeze": {"layers": 2, "tie_word_embeddings": True}}
ON, OFF = ({"train": {"gradient_checkpointing": wish}} for wish in (True, False))


@pytest.mark.parametrize(
    ("name", "change", "recomputes"),
    [
        ("survival", {}, False),
        ("survival", ON, True),
        ("survival", TIED, True),
        ("survival", TIED | OFF, False),
        ("lyrics", ON, True),
        ("gemma", {}, False),
        ("gemma", ON, True),
        ("staged-pretrain", {}, True),
        ("staged-sft", OFF, False),
        ("staged-dpo", {}, True),
        ("staged-lora", ON, True),
    ],
)
def test_plan_and_trainer_agree(name: str, change: dict[str, Any], recomputes: bool, tmp_path: Path) -> None:
    from trainlab.engine import trainer
    from trainlab.recipes import dpo, sft

    overlay = tmp_path / "change.yaml"
    overlay.write_text(yaml.safe_dump({"phase": change}), encoding="utf-8")
    paths = [VALUES / f"{name}.yaml", overlay]
    values = load_values(paths)
    phase = values.phase
    assert source.job_of(values, paths).checkpointing is recomputes
    if isinstance(phase, SftPhase):
        asked = sft.config(phase, tmp_path, False).activation_checkpointing
    elif isinstance(phase, DpoPhase):
        asked = dpo.config(phase, tmp_path, False).activation_checkpointing
    else:
        asked = trainer.settings(phase, tmp_path, False)["activation_checkpointing"]  # type: ignore[arg-type]
    assert asked is recomputes
