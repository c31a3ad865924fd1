"""Stages for tests: small phases of each of them."""

from typing import Any

from tiny import make_phase
from trainlab.config import Phase

TRAIN = {"epochs": 1, "batch_size": 4, "learning_rate": 0.01, "checkpoints": 2, "validation_fraction": 0.1}
PRETRAIN = {
    "recipe": "pretrain",
    "unfreeze": {},
    "model": {"source": "init:llama-2.4M", "dtype": "float32", "max_length": 32},
    "data": {"source": "pvc:text.jsonl", "train_rows": 40},
    "gate": {"metric": "perplexity"},
    "stage": {"name": "pretrain"},
    "questions": ["the water"],
}
SFT = {
    "recipe": "sft",
    "unfreeze": {},
    "model": {"source": "parent:llama-2.4M", "dtype": "float32", "max_length": 128},
    "stage": {"name": "sft", "parent": "pretrain"},
}
LORA = {**SFT, "stage": {"name": "lora", "parent": "sft"}, "lora": {"rank": 4, "alpha": 8}}
DPO = {
    **SFT,
    "recipe": "dpo",
    "stage": {"name": "dpo", "parent": "sft", "pairs": "truncated_answers"},
    "gate": {"metric": "preference_margin"},
}


def phase_of(base: dict[str, Any], kind: dict[str, Any], **blocks: Any) -> Phase:
    return make_phase({**base, **kind}, train={**TRAIN, **blocks.pop("train", {})}, **blocks)
