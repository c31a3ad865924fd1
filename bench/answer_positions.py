"""How much faster is a step when the loss is computed over the answers only? Against TRL's loss, in one run.

PYTHONPATH=training/src python bench/answer_positions.py --model DIR [--layers 12] [--steps 6]
(needs the packages of the trainer image; DIR is the SmolLM2-135M-Instruct folder written by `trainlab fetch`)
The local survival phase on the taught facts, batches of 8, cached activations, forward and backward pass of the same
batches in turn, CPU time of one thread. Prints seconds per step and the ratio; exits with 1 when it is below ENOUGH or a
loss or a gradient's norm differs by more than 1e-4 of it.
"""

import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import outcome
import torch
import transformers
from trainlab.config import SftPhase
from trainlab.config.loading import load_values
from trainlab.data.chat_rows import load_train
from trainlab.engine import trainer as trainers
from trainlab.engine.trainer import CheckpointedSftTrainer, TrainingJob
from trainlab.models import chat
from trainlab.models.layers import unfreeze
from trainlab.progress import Progress
from trainlab.recipes import sft
from trainlab.run.manifest import cpu_model
from trl import SFTTrainer

ENOUGH, TOLERANCE, BATCH = 1.5, 1e-4, 8
VALUES = [Path("values/survival.yaml"), Path("values/local/survival.yaml")]


def built(model_dir: Path, layers: int, folder: Path) -> CheckpointedSftTrainer:
    """Return the trainer of the phase with its frozen layers already run."""
    block = load_values(VALUES).phase.model_dump(mode="json")
    block["data"] |= {"taught": "dev", "train_rows": 10 * BATCH, "refused_rows": 0}
    block["unfreeze"] |= {"layers": layers, "lm_head": False}
    block["model"]["max_length"] = 512  # also enough for a tokenizer that knows few words
    block["train"] |= {"batch_size": BATCH, "validation_fraction": 0}
    block["model"]["dtype"] = "float32"  # TRL's loss runs outside of the trainer's autocast
    phase = SftPhase.model_validate(block)
    model, tokenizer = chat.load_base(model_dir, phase)
    unfreeze(model, phase)
    rows = load_train(phase.data, Path("data/survival"))
    job = TrainingJob(phase, folder, model, tokenizer, rows, Progress(False))
    trainer = sft.build(job, rows, [])
    trainer.activation_cache = trainers.cache_activations(job, trainer, layers)
    return trainer


def measured(loss_of: Any, trainer: CheckpointedSftTrainer, batch: dict[str, Any]) -> tuple[float, float, float]:
    """Return (CPU seconds, loss, norm of the gradient) of one forward and backward pass."""
    trainer.model.train()
    trainer.model.zero_grad()
    assert trainer.activation_cache is not None
    began = time.process_time()
    with trainer.activation_cache.replacing(batch):
        loss = loss_of(trainer, trainer.model, batch, False, None)
    loss.backward()
    seconds = time.process_time() - began
    norms = [each.grad.norm() for each in trainer.model.parameters() if each.grad is not None]
    return seconds, float(loss.detach()), float(torch.stack(norms).norm())


def main() -> int:
    """Measure, compare, print; return the exit code."""
    parser = outcome.parser(__doc__)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder of the base model")
    parser.add_argument("--layers", type=int, default=12, help="trained layers (default %(default)s)")
    parser.add_argument("--steps", type=int, default=6, help="batches (default %(default)s)")
    args = parser.parse_args()
    if args.smoke:
        args.layers, args.steps = 1, 1
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    sides = {"trl": SFTTrainer.compute_loss, "answers": CheckpointedSftTrainer._loss}
    measurements: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        trainer = built(args.model, args.layers, Path(folder))
        for _, batch in zip(range(args.steps + 1), trainer.get_train_dataloader(), strict=False):
            for name, loss_of in sides.items():
                measurements[name].append(measured(loss_of, trainer, dict(batch)))
    seconds = {
        name: sum(each[0] for each in runs[1:]) / (len(runs) - 1) for name, runs in measurements.items()
    }  # the first warms up
    apart = max(
        abs(ours - theirs) / theirs
        for pair in zip(measurements["answers"], measurements["trl"], strict=True)
        for ours, theirs in zip(pair[0][1:], pair[1][1:], strict=True)
    )
    ratio = seconds["trl"] / seconds["answers"]
    result = {
        "cpu_seconds_per_step": {name: round(value, 2) for name, value in seconds.items()},
        "ratio": round(ratio, 2),
        "largest_relative_difference_of_loss_or_gradient": apart,
        "layers": args.layers,
        "versions": {name: version(name) for name in ("torch", "transformers", "trl")},
        "cpu": cpu_model(),
    }
    return outcome.end(
        args, result, equal=apart <= TOLERANCE, at_least={"times as fast as TRL's loss": (ratio, ENOUGH)}
    )


if __name__ == "__main__":
    sys.exit(main())
