"""What each rank of test_sharding.py runs: training jobs one after the other, sharded by FSDP2 over gloo, or whole.

torchrun ... sharded_ranks.py FOLDER JOB...: each JOB, written NAME:KIND:DTYPE:fsdp or NAME:KIND:DTYPE:whole (kind: sft, lora, dpo), trains
FOLDER/model on FOLDER/data into FOLDER/NAME. The name `again` goes on where the run `broken` lost its end. FOLDER/seen.json
gets what only a rank can see: {name: {"summary", "ranks"}}.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from stages import DPO, LORA, SFT, phase_of
from tiny import make_job
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.fsdp import FSDPModule
from trainlab.engine import acceleration, checkpoints, dist, trainer
from trainlab.engine.trainer import CheckpointedSftTrainer
from trainlab.recipes import dpo, sft
from transformers import TrainerCallback
from trl import SFTTrainer


def shard_on_cpu() -> None:
    """Let CPU ranks shard and compute the loss as GPU ranks do: our own checks and the branch of accelerate that leaves out CPUs."""
    vars(acceleration)["several_gpus"] = lambda: True
    CheckpointedSftTrainer._loss = SFTTrainer.compute_loss  # type: ignore[method-assign]
    original = AcceleratorState.__init__

    def initialize(self: Any, *args: Any, fsdp_plugin: Any = None, **named: Any) -> None:
        original(self, *args, fsdp_plugin=fsdp_plugin, **named)
        if fsdp_plugin is not None:  # as accelerate does, "elif self.distributed_type in [DistributedType.MULTI_GPU"
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = initialize  # type: ignore[method-assign]


class Watch(TrainerCallback):
    """Notes the dtypes of loss, log-probabilities and reduced gradients, and the share of the weights on this rank."""

    def __init__(self, seen: dict[str, Any]) -> None:
        self.seen = seen

    def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Note whether the checkpoint of the step before is complete."""
        before = Path(args.output_dir) / f"checkpoint-{state.global_step - 1}"
        if before.exists():
            self.seen["complete"] = (before / checkpoints.MARKER).exists()

    def on_train_begin(self, *_: Any, model: Any = None, **__: Any) -> None:
        """Note the share, and watch what each forward pass returns."""
        parameters = list(model.parameters())
        own = sum(
            (parameter.to_local() if hasattr(parameter, "to_local") else parameter).numel() for parameter in parameters
        )
        self.seen["share"] = own / sum(parameter.numel() for parameter in parameters)
        policies = {module._get_fsdp_state()._mp_policy for module in model.modules() if isinstance(module, FSDPModule)}
        self.seen["reduced"] = " ".join(str(policy.reduce_dtype) for policy in policies)
        model.register_forward_hook(self.note)

    def note(self, _module: Any, _args: Any, output: Any) -> None:
        """Note one output; a library's own hooks ran before."""
        self.seen.update(loss=str(output.loss.dtype), log_probs=str(output.log_probs.dtype))


def job_of(folder: Path, name: str, recipe: str, dtype: str, fsdp: bool) -> Any:
    """Return the job as each rank of a pod with two GPUs makes it."""
    base = json.loads((folder / "phase.json").read_text(encoding="utf-8"))
    phase: Any = phase_of(
        base,
        {"sft": SFT, "dpo": DPO, "lora": LORA}[recipe],
        train={"batch_size": 2, "learning_rate": 3e-3},
        model={"dtype": dtype},
        stage={"fsdp": fsdp},
        resources={"gpus_per_node": 2, "processes_per_node": 2},
    )
    return make_job(phase, folder / "model", folder / "data", folder / name)


def main(folder: Path, jobs: list[str]) -> None:
    """Train all of them; rank 0 writes what was seen."""
    dist.start(5)
    shard_on_cpu()
    write = FileSystemWriter.write_data
    FileSystemWriter.write_data = lambda *given: (time.sleep(2), write(*given))[1]  # type: ignore[method-assign]
    fit, found = trainer.fit, {}
    for one in jobs:
        name, recipe, dtype, kind = one.split(":")
        AcceleratorState._reset_state(reset_partial_state=True)
        seen: dict[str, Any] = {}
        if name == "again":
            name = "broken"
            if dist.is_main():
                shutil.rmtree(folder / name / "best_model")
            dist.barrier()

        def watched(job: Any, built: Any, seen: dict[str, Any] = seen) -> Any:
            built.add_callback(Watch(seen))
            return fit(job, built)

        vars(trainer)["fit"] = watched
        job = job_of(folder, name, recipe, dtype, kind == "fsdp")
        summary = (dpo if recipe == "dpo" else sft).fit(job)
        found[one.split(":")[0]] = {"summary": summary, "ranks": dist.gather(seen)}
    if dist.is_main():
        (folder / "seen.json").write_text(json.dumps(found), encoding="utf-8")
    dist.finish()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:])
