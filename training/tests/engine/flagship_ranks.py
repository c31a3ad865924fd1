"""What each rank of test_flagship.py runs: torchrun ... flagship_ranks.py FOLDER JOB..., each JOB written NAME:DTYPE:FEATURE,FEATURE...

Features: fsdp, recompute, compile (aot_eager), fp8 (torchao's arithmetic on the CPU), again (go on after the result is lost).
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState
from sharded_ranks import shard_on_cpu
from stages import PRETRAIN, phase_of
from tiny import make_job, train
from torch.distributed.fsdp import FSDPModule
from trainlab.engine import acceleration, dist, trainer
from transformers import TrainerCallback

CURRICULUM = [{"length": 16, "share": 0.5}, {"length": 32, "share": 0.5}]


class Watch(TrainerCallback):
    """Notes what the trained model is made of."""

    def __init__(self, seen: dict[str, Any]) -> None:
        self.seen = seen

    def on_train_begin(self, *_: Any, model: Any = None, **__: Any) -> None:
        """Note how many units are sharded, layers compiled, layers recomputed, matrices in FP8."""
        modules = list(model.modules())
        names = [type(module).__name__ for module in modules]
        self.seen |= {
            "fsdp": sum(isinstance(module, FSDPModule) for module in modules),
            "compile": sum(getattr(module, "_compiled_call_impl", None) is not None for module in modules),
            "recompute": sum(name.endswith("CheckpointWrapper") for name in names),  # FSDP2 adds to the name
            "fp8": names.count("Float8Linear"),
        }


def main(folder: Path, jobs: list[str]) -> None:
    """Train all of them; rank 0 writes what was seen into FOLDER/seen.json."""
    dist.start(5)
    shard_on_cpu()
    fit, content = trainer.fit, json.loads((folder / "phase.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    for one in jobs:
        name, dtype, text = one.split(":")
        features, seen = set(text.split(",")), dict[str, Any]()
        AcceleratorState._reset_state(reset_partial_state=True)
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()

        def accelerate(model: Any, *_: Any, features: set[str] = features) -> None:
            if "fp8" in features:
                acceleration.convert(model)
            if "compile" in features:
                acceleration.compile_layers(model, backend="aot_eager")

        def watched(job: Any, built: Any, seen: dict[str, Any] = seen) -> Any:
            built.add_callback(Watch(seen))
            return fit(job, built)

        vars(acceleration)["prepare"], vars(trainer)["fit"] = accelerate, watched
        if "again" in features and dist.is_main():
            shutil.rmtree(folder / name / "best_model")
        dist.barrier()
        phase: Any = phase_of(
            content,
            {**PRETRAIN, "data": {"source": "pvc:text.jsonl", "train_rows": 80}},
            train={
                **{"batch_size": 2, "gradient_accumulation": 4, "learning_rate": 3e-3},
                "gradient_checkpointing": "recompute" in features,
            },
            model={"dtype": dtype},
            stage={"fsdp": "fsdp" in features, "compile": "compile" in features, "curriculum": CURRICULUM},
            resources={"gpus_per_node": 2, "processes_per_node": 2},
        )
        summary = train(make_job(phase, folder / "model", folder / "text.jsonl", folder / name))
        losses = json.loads((folder / name / "training_history.json").read_text("utf-8")) if dist.is_main() else []
        found[f"{name}{' again' * ('again' in features)}"] = {
            **seen,
            "resumed": summary["resumed_from_step"],
            "graphs": torch._dynamo.utils.counters["stats"]["unique_graphs"],
            "losses": [entry["loss"] for entry in losses if "loss" in entry],
        }
    if dist.is_main():
        (folder / "seen.json").write_text(json.dumps(found), encoding="utf-8")
    dist.finish()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:])
