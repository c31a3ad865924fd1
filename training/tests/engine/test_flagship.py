"""All that the 7 B stages combine, on two gloo ranks: FSDP2, recomputation, compiled layers, accumulation, curriculum, resume, FP8."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from checkout import SOURCES
from tiny import write_text
from trained import assert_same
from trainlab import files
from trainlab.run.launch import ONE_MACHINE
from transformers import LlamaConfig, LlamaForCausalLM

JOBS = (
    "plain:float32:none",  # first: accelerate keeps FSDP in the environment
    "all:float32:fsdp,recompute,compile",
    "all:float32:fsdp,recompute,compile,again",
    "eight:bfloat16:fsdp,recompute,compile,fp8",
)
RANKS = Path(__file__).parent / "flagship_ranks.py"


@pytest.mark.rest
def test_all_together_trains_as_none_of_it_and_resumes(
    tiny_model: Path, phase_dict: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(tiny_model, tmp_path / "model")
    config = files.read_json(tmp_path / "model" / "config.json")
    torch.manual_seed(0)
    untied = LlamaForCausalLM(LlamaConfig(**{**config, "tie_word_embeddings": False}))  # as the 7 B model
    untied.save_pretrained(tmp_path / "model")
    write_text(tmp_path / "text.jsonl", 200)
    (tmp_path / "phase.json").write_text(json.dumps(phase_dict), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", *ONE_MACHINE, "--nproc-per-node=2", str(RANKS)]
    env = {
        **os.environ,
        **{"PYTHONPATH": f"{SOURCES}:{RANKS.parents[1]}:{RANKS.parent}", "OMP_NUM_THREADS": "1"},
        "GLOO_SOCKET_IFNAME": "lo",
    }
    done = subprocess.run(
        [*command, str(tmp_path), *JOBS], env=env, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-6000:]
    seen = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert [seen["plain"][key] for key in ("fsdp", "recompute", "compile", "fp8")] == [0, 0, 0, 0]
    for name in ("all", "all again", "eight"):
        assert seen[name]["fsdp"] >= 3 and seen[name]["compile"] >= 2 and seen[name]["recompute"] == 2, (name, seen)
    # two lengths of the curriculum, and none of validation
    assert [seen[name]["graphs"] for name in ("plain", "all", "eight")] == [0, 2, 2]
    losses = seen["plain"]["losses"]
    assert len(losses) >= 4 and losses[-1] < losses[0]
    for name in ("all", "all again"):
        assert seen[name]["losses"] == pytest.approx(losses, abs=1e-4)
    assert 0 < seen["all again"]["resumed"] < len(losses)
    assert_same(tmp_path / "plain", tmp_path / "all", tolerance=1e-3)
    assert seen["eight"]["fp8"] == 14 and seen["eight"]["losses"] == pytest.approx(losses, rel=0.05)
