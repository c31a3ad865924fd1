"""Which phases bench/one_gpu.py runs, with which changes: what a hub would give comes from this machine, and several GPUs are one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ONE = {"nodes": 1, "gpus_per_node": 1}
TEXT = "pvc:code"  # the folder that drawn_weights.write_code fills
READ: dict[str, Any] = {
    "data": {"source": TEXT, "train_rows": None, "heldout_rows": 64},
    "text": {"prepare": None, "column": "text"},
}
NO_TASKS: dict[str, Any] = {"tasks": [], "task_limit": None}
FEW_TOKENS = {"max_new_tokens": 32, "generate_rows": 16}
SHORT = {"max_new_tokens": 8, "generate_rows": 16}  # what random weights answer is not looked at
Change = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One phase: its values files, what is changed, the kind of model (of transformers) whose weights are drawn, seconds it may take."""

    files: tuple[str, ...]
    change: Change
    drawn: str | None = None
    limit: float = 240


def staged(name: str, evaluate: Mapping[str, Any] | None = None, **change: Any) -> Case:
    """Return a stage at the scale for one GPU, with the text that is here."""
    files = (f"staged-{name}.yaml", f"demo/staged-{name}.yaml")
    return Case(files, {"evaluate": {**NO_TASKS, **(evaluate or {})}, **change})


CASES: dict[str, Case] = {
    "quick": Case(("quick.yaml",), {"resources": ONE}),
    "survival-small": Case(
        ("survival.yaml", "local/survival.yaml"),
        {"resources": ONE, "model": {"dtype": "bfloat16"}, "train": {"batch_size": 8}},
    ),
    "resnet": Case(
        ("resnet.yaml",),
        {"data": {"source": "builtin:digits"}, "vision": {"flip": False, "crop_padding": 1, "compile": True}},
    ),
    "staged-pretrain": staged(
        "pretrain",
        **READ,
        stage={"tokenizer": "trained", "max_perplexity": 100_000},
        train={"epochs": 2, "validation_fraction": 0.01, "checkpoints": 2},
        gate={"min_gain": 1.0},
    ),
    "staged-sft": staged("sft", FEW_TOKENS),
    "staged-dpo": staged("dpo", FEW_TOKENS),
    "staged-lora": staged("lora", FEW_TOKENS),
    "lyrics": Case(("lyrics.yaml",), {"resources": ONE, "evaluate": SHORT}, "phi3"),
    "survival": Case(("survival.yaml",), {"resources": ONE, "evaluate": SHORT, "train": {"epochs": 2}}, "smollm3"),
    "gemma": Case(
        ("gemma.yaml",),
        {
            "resources": ONE,
            "data": {**READ["data"], "train_rows": 1280},
            "text": {"column": "text", "hub_config": None, "document_start": None},
            "train": {"epochs": 1, "checkpoints": 1},
            "evaluate": {"max_new_tokens": 8},
        },
        "llama",
    ),
}


def smoke(case: Case) -> tuple[tuple[str, ...], Change]:
    """Return files and one more change for a smoke: on the CPU, a few steps, the staged model in its local size."""
    some = {"epochs": 1, "checkpoints": 1, "batch_size": 4, "gradient_accumulation": 1}
    change: dict[str, Any] = {"resources": {"nodes": 1, "gpus_per_node": 0}, "train": some}
    if "staged" in case.files[0]:
        change |= {"stage": {"compile": False}, "resources": {"gpus_per_node": 0, "processes_per_node": 1}}
        return tuple(file.replace("demo/", "local/") for file in case.files), change
    few = {"refused_rows": 8} if "survival.yaml" in case.files else {}
    change |= {"data": {"train_rows": 64, "heldout_rows": 8, **few}}
    if "generate_rows" in case.change.get("evaluate", {}):
        change |= {"evaluate": {"generate_rows": 4}}
    if "text" in case.change:
        change |= {"model": {"max_length": 128}}
    if "vision" in case.change:
        change |= {"vision": {"compile": False, "image_size": 8}}
    return case.files, change
