"""The sharded stage on one GPU: rank 0 of 8 by torch's fake process group, and a real group of one that saves and resumes.

Parts of gpu_list.py. In the fake group nothing is sent: all-gather and reduce-scatter copy this rank's part on its device (FakeProcessGroup
of torch 2.13). So memory and compute are those of one of eight GPUs, without the wait for the others, and all values are garbage. Everything
between is trainlab's own trainer, accelerate's FSDP2, its recomputation, compiled layers and torchao's FP8.
"""

import json
import os
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as td
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from trainlab import files
from trainlab.config.loading import load_values
from trainlab.data.pack import Blocks, Packed
from trainlab.engine import acceleration, checkpoints, dist
from trainlab.engine import trainer as trainers
from trainlab.engine.trainer import CheckpointedTrainer, TrainingJob
from trainlab.models import chat
from trainlab.models.architectures import TABLE
from trainlab.plan import volumes
from trainlab.progress import Progress
from trainlab.recipes import cpt, pretrain
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, TrainerCallback

WORLD, PEAK = 8, 989.4e12  # FLOP/s of an H100 or H200 in bfloat16, dense, by the data sheet
SETTINGS: dict[str, dict[str, Any]] = {
    "2x16": {"batch": 2, "recompute": False, "fp8": False},
    "8x4-recomputed": {"batch": 8, "recompute": True, "fp8": False},
    "2x16-fp8": {"batch": 2, "recompute": False, "fp8": True},
}
"""Batch of values/staged-pretrain.yaml, proposed and as it is. Memory and speed need two micro-batches a step, not all of them."""
ACCUMULATE = 2
NONE = Packed([], [], 0, 0, 0, 0)


class Clock(TrainerCallback):
    """Says memory after sharding, and seconds and memory of each step."""

    def __init__(self, say: Any, tokens: int, flop: float) -> None:
        self.say, self.tokens, self.flop, self.began = say, tokens, flop, 0.0
        self.times: list[float] = []
        self.losses: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Say the memory that the sharding took."""
        self.say(what="sharded", allocated_gib=gib(), held_gib=gib(peak=False))
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the clock."""
        self.began = now()

    def on_step_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Say what the step took."""
        self.times.append(now() - self.began)
        rate = self.tokens / self.times[-1]
        self.say(
            what="step",
            step=state.global_step,
            seconds=round(self.times[-1], 3),
            tokens_per_second=round(rate),
            mfu=round(self.flop * rate / PEAK, 3),
            allocated_gib=gib(),
        )

    def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
        """Keep the losses."""
        if logs and "loss" in logs:
            self.losses.append(logs["loss"])


def now() -> float:
    """Return the time once the GPU has done its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic()


def gib(peak: bool = True) -> float | None:
    """Return GiB that PyTorch's allocator gave out, at most or now; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    return round((torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()) / 2**30, 2)


def always_shard() -> None:
    """Let one rank, a CPU or an unknown backend shard: our own check and the branches of accelerate that leave them out."""
    vars(acceleration)["several_gpus"] = lambda: True
    original = AcceleratorState.__init__

    def initialize(self: Any, *args: Any, fsdp_plugin: Any = None, **named: Any) -> None:
        original(self, *args, fsdp_plugin=fsdp_plugin, **named)
        if fsdp_plugin is not None:
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = initialize  # type: ignore[method-assign]


def environment(world: int) -> None:
    """Set what torchrun would."""
    ranks = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": 29555}
    os.environ.update({**{key: str(value) for key, value in ranks.items()}, "MASTER_ADDR": "127.0.0.1"})


def phase_of(work: Path, overlays: Sequence[str], change: Mapping[str, Any]) -> Any:
    """Return phase staged-pretrain with a change, without a text of its own."""
    work.mkdir(parents=True, exist_ok=True)
    block = {"data": {"source": "pvc:none"}, "text": {"prepare": None}, "evaluate": {"tasks": [], "task_limit": None}}
    change = {key: {**block.pop(key, {}), **value} for key, value in change.items()} | block
    (work / "change.yaml").write_text(json.dumps({"phase": change}), encoding="utf-8")
    names = ["staged-pretrain.yaml", *overlays]
    return load_values([*(Path("values") / name for name in names), work / "change.yaml"]).phase


def rank_of_eight(setting: str, work: Path, smoke: bool, say: Any) -> bool:
    """Train three steps of the 7.39 B stage as rank 0 of 8 does; say memory, seconds, tokens a second and MFU (6 N)."""
    from torch.testing._internal.distributed import fake_pg  # noqa: F401  # older releases of torch register "fake" there

    how, length, steps = SETTINGS[setting], 64 if smoke else 2048, 3
    environment(WORLD)
    td.init_process_group("fake", rank=0, world_size=WORLD, store=td.HashStore())  # which each step asks (stopping.py)
    always_shard()
    alone_of_many()
    # The phase says what is measured; prepare() would also probe FP8, and refuse compiled layers without a GPU.
    vars(acceleration)["prepare"] = lambda model, *_: prepare(model, how["fp8"], smoke)
    rows = how["batch"] * ACCUMULATE * WORLD * steps
    phase = phase_of(
        work,
        [],
        {
            "model": {"max_length": length},
            "data": {"source": "pvc:none", "train_rows": rows},
            "stage": {"curriculum": [{"length": length, "share": 1.0}]},
            "train": {
                "gradient_checkpointing": how["recompute"],
                "batch_size": how["batch"],
                "gradient_accumulation": ACCUMULATE,
                "validation_fraction": 0,
                "checkpoints": 1,
            },
        },
    )
    arch = TABLE["llama-2.4M" if smoke else "llama-7.39B"]
    torch.manual_seed(0)
    with torch.device("cpu" if smoke else "cuda"):
        model: Any = AutoModelForCausalLM.from_config(LlamaConfig(**arch.config), dtype=torch.bfloat16)
    ids = torch.randint(arch.vocab, (rows, length)).tolist()
    parts = Blocks(Packed(ids, [""] * rows, 1, 0, 0, rows), NONE, NONE)
    tokens = how["batch"] * ACCUMULATE * length
    clock = Clock(say, tokens, 6.0 * (arch.parameters - arch.head))
    watch(clock, save=False)
    vars(trainers)["save_model"] = lambda *_: None
    pretrain.fit(TrainingJob(phase, work, model, tokenizer(work / "tokenizer"), parts, Progress(False)))
    steady = statistics.median(clock.times[1:])
    say(
        what="rank 0 of 8",
        setting=setting,
        batch=how["batch"],
        micro_batches=ACCUMULATE,
        recomputed=how["recompute"],
        fp8=how["fp8"],
        length=length,
        first_step_seconds=round(clock.times[0], 2),
        step_seconds=round(steady, 3),
        tokens_per_second_per_gpu=round(tokens / steady),
        mfu=round(clock.flop * tokens / steady / PEAK, 3),
        allocated_gib=gib(),
        reserved_gib=round(torch.cuda.max_memory_reserved() / 2**30, 2) if torch.cuda.is_available() else None,
    )
    return True


def prepare(model: Any, fp8: bool, smoke: bool) -> None:
    """Do what acceleration.prepare does once it has decided."""
    if fp8:
        acceleration.convert(model)
    acceleration.compile_layers(model, backend="aot_eager" if smoke else "inductor")


def alone_of_many() -> None:
    """Answer for the ranks that do not exist what rank 0 says."""
    import accelerate

    vars(dist).update(gather=lambda value: [value] * WORLD, barrier=lambda: None)
    accelerate.Accelerator.gather = lambda self, tensor: tensor  # type: ignore[method-assign]
    accelerate.Accelerator.gather_for_metrics = lambda self, tensor, **_: tensor  # type: ignore[method-assign]
    accelerate.Accelerator.wait_for_everyone = lambda self: None  # type: ignore[method-assign]
    td.broadcast_object_list = lambda *_, **__: None


BUILD = cpt.build
SAVE = CheckpointedTrainer._save_checkpoint


def watch(clock: Clock, save: bool) -> None:
    """Add the clock to the next trainer, and say the seconds and bytes of each checkpoint, or write none."""

    def built(*args: Any) -> Any:
        trainer = BUILD(*args)
        trainer.add_callback(clock)
        return trainer

    def saved(self: Any, *args: Any) -> None:
        if not save:
            return
        began = now()
        SAVE(self, *args)
        blocked = now() - began  # the shards are written beside the training
        self.written()
        folder = checkpoints.listed(Path(str(self.args.output_dir)))[-1]
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        clock.say(
            what="checkpoint",
            name=folder.name,
            blocked_seconds=round(blocked, 2),
            seconds=round(now() - began, 2),
            mb=round(size / 1e6, 1),
        )

    vars(cpt)["build"] = built
    CheckpointedTrainer._save_checkpoint = saved  # type: ignore[method-assign]


def tokenizer(folder: Path) -> Any:
    """Return a tokenizer of two tokens, from its folder: the blocks are random."""
    from tokenizers import Tokenizer, models
    from transformers import AutoTokenizer

    made = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token="<pad>").save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def saved_and_resumed(work: Path, smoke: bool, say: Any) -> bool:
    """Train the demo's 139 M stage whole, sharded, and sharded again from its first checkpoint; return whether all are alike.

    Sharded is with recomputation, compiled layers, accumulation and a curriculum, over NCCL (gloo in a smoke). The losses of whole and sharded
    may be 0.02 nats apart, those of sharded and resumed 0.01, and the saved weights 5 % of the way they went: sums of a GPU have no fixed order.
    """
    shutil.rmtree(work, ignore_errors=True)
    environment(1)
    dist.start(5)
    always_shard()
    vars(volumes)["SHARE"] = 0  # the checkpoint of the third step is due, however short the training is
    vars(acceleration)["prepare"] = lambda model, phase, *_: prepare(model, False, smoke) if phase.stage.fsdp else None
    length, batch, steps = (64, 2, 6) if smoke else (1024, 8, 6)
    arch = TABLE["llama-2.4M" if smoke else "llama-139M"]
    if smoke:
        arch = replace(arch, vocab=512)
    torch.manual_seed(0)
    base = work / "base"
    AutoModelForCausalLM.from_config(LlamaConfig(**arch.config), dtype=torch.bfloat16).save_pretrained(base)
    tokenizer(base)
    rows = batch * 2 * steps
    ids = (torch.arange(rows)[:, None] * 7 + torch.arange(length)[None]).remainder(arch.vocab).tolist()
    parts = Blocks(Packed(ids, [""] * rows, 1, 0, 0, rows), NONE, NONE)
    losses: dict[str, list[float]] = {}
    for name, fsdp in (("whole", False), ("sharded", True), ("resumed", True)):
        AcceleratorState._reset_state(reset_partial_state=True)
        run_dir = work / ("whole" if name == "whole" else "sharded")
        if name == "resumed":
            shutil.move(
                run_dir / "best_model", work / "first"
            )  # its only checkpoint is of the third step: none is written at the last
        phase = phase_of(
            work,
            ["demo/staged-pretrain.yaml"],
            {
                "model": {"max_length": length},
                "data": {"source": "pvc:none", "train_rows": rows},
                "stage": {
                    "fsdp": fsdp,
                    "compile": fsdp,
                    "curriculum": [{"length": length // 2, "share": 0.5}, {"length": length, "share": 0.5}],
                },
                "train": {
                    "gradient_checkpointing": fsdp,
                    "batch_size": batch,
                    "gradient_accumulation": 2,
                    "validation_fraction": 0,
                    "checkpoints": 2,
                    "keep_checkpoints": 2,
                },
                "resources": {"gpus_per_node": 2, "processes_per_node": 2},  # fewer cannot be asked to shard
            },
        )
        model, tokens = chat.load_base(base, phase)
        cpt.prepare(model, phase)
        clock = Clock(lambda run=name, **fields: say(run=run, **fields), 2 * batch * length, 6.0 * arch.parameters)
        watch(clock, save=fsdp)
        began = now()
        summary = pretrain.fit(TrainingJob(phase, run_dir, model, tokens, parts, Progress(False)))
        losses[name] = [
            entry["loss"] for entry in files.read_json(run_dir / "training_history.json") if "loss" in entry
        ]
        say(
            run=name,
            what="trained",
            backend=td.get_backend(),
            seconds=round(now() - began, 2),
            steps=summary["steps"],
            resumed_from_step=summary["resumed_from_step"],
            losses=[round(loss, 5) for loss in losses[name]],
        )
        del model
    apart = {
        "whole and sharded": furthest(losses["whole"], losses["sharded"]),
        "sharded and resumed": furthest(losses["sharded"], losses["resumed"]),
        "weights": weights_apart(base, work / "first", work / "sharded" / "best_model"),
    }
    equal = apart["whole and sharded"] < 0.02 and apart["sharded and resumed"] < 0.01 and apart["weights"] < 0.05
    equal = equal and summary["resumed_from_step"] == steps // 2  # else nothing was resumed
    say(what="saved and resumed", apart=apart, equal=equal)
    return equal


def furthest(first: list[float], second: list[float]) -> float:
    """Return the largest difference; infinite where one list is shorter."""
    return max(abs(a - b) for a, b in zip(first, second, strict=True)) if len(first) == len(second) else float("inf")


def weights_apart(base: Path, left: Path, right: Path) -> float:
    """Return how far two results are apart, as a share of the way from `base` to the first."""
    from safetensors.torch import load_file

    start, first, second = (load_file(folder / "model.safetensors") for folder in (base, left, right))
    way = sum(float((first[name].float() - tensor.float()).norm() ** 2) for name, tensor in start.items())
    apart = sum(float((first[name].float() - second[name].float()).norm() ** 2) for name in start)
    return (apart / way) ** 0.5
