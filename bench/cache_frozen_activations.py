"""How much does running the frozen layers once save? Three variants of the survival recipe, same rows, epochs and seed.

PYTHONPATH=training/src python bench/cache_frozen_activations.py [--batches 3] [--epochs 4] [--json FILE]    (needs the packages of the trainer image)
`usual` is the usual recipe with TRL's defaults (head tied to the embedding, activations recomputed), `plain`
ours without the cache, `cached` ours with it. The model is SmolLM3 at 1/64 (36 layers, random weights), a batch has 8 rows
of some 350 tokens, one thread. All steps and the one pass through the frozen layers count, but not one-time work that
every variant does: reading rows, writing the model. Prints CPU seconds and ratios; exits with 1 when `cached` is less
than 4 times as fast as `usual`, or a loss differs from that of `plain` by more than 1e-5.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from trainlab.run.launch import RANK_ENVIRONMENT

if "MALLOC_MMAP_MAX_" not in os.environ:  # as `trainlab run` starts its ranks; read at process start
    os.environ.update(RANK_ENVIRONMENT, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    os.execv(sys.executable, [sys.executable, *sys.argv])

import outcome
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from trainlab.config import SftPhase
from trainlab.data.chat_rows import TrainRow
from trainlab.engine import trainer as trainers
from trainlab.engine.trainer import TrainingJob
from trainlab.models.layers import unfreeze
from trainlab.progress import Progress
from trainlab.recipes import sft
from trainlab.run.manifest import cpu_model
from transformers import PreTrainedTokenizerFast, SmolLM3Config, SmolLM3ForCausalLM, TrainerCallback

NEEDED, TOLERANCE, BATCH, WORDS, LAYERS = 4.0, 1e-5, 8, 340, 36
SIDES = {
    "usual": {"unfreeze": {"layers": 2, "tie_word_embeddings": True}},
    "plain": {"unfreeze": {"layers": 2}},
    "cached": {"unfreeze": {"layers": 2}, "train": {"cache_frozen_activations": True}},
}


class Clock(TrainerCallback):
    """Sums the CPU time of this process over the steps, so that other programs on the machine do not count."""

    def __init__(self) -> None:
        self.seconds, self._began = 0.0, 0.0

    def on_step_begin(self, *_: object, **__: object) -> None:
        """Start the clock."""
        self._began = time.process_time()

    def on_step_end(self, *_: object, **__: object) -> None:
        """Stop the clock."""
        self.seconds += time.process_time() - self._began


def language() -> PreTrainedTokenizerFast:
    """Return a tokenizer of 1,000 words, one token each."""
    words = ["<pad>", "<unk>", "<|im_end|>", "user", "assistant", *(f"w{number}" for number in range(1000))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="<|im_end|>"
    )
    fast.chat_template = (
        "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} <|im_end|> {% endfor %}"
        "{% if add_generation_prompt %}assistant {% endif %}"
    )
    return fast


def small(layers: int) -> SmolLM3ForCausalLM:
    """Return SmolLM3 at 1/64 of its size with random but fixed weights."""
    torch.manual_seed(0)
    return SmolLM3ForCausalLM(
        SmolLM3Config(
            vocab_size=16_032,
            hidden_size=256,
            intermediate_size=1376,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=1,
            tie_word_embeddings=True,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=2,
        )
    )


def words(draw: random.Random, length: int) -> str:
    """Return `length` words of the language."""
    return " ".join(f"w{draw.randrange(1000)}" for _ in range(length))


def rows(count: int, length: int) -> list[TrainRow]:
    """Return `count` rows with answers of `length` words."""
    draw = random.Random(0)
    return [
        TrainRow(id=f"row-{number}", topic="words", question=f"w{number}", answer=words(draw, length))
        for number in range(count)
    ]


def run(name: str, args: argparse.Namespace, folder: Path) -> tuple[float, list[float]]:
    """Train one variant from scratch; return its CPU seconds and the loss of each step."""
    blocks = SIDES[name]
    phase = SftPhase.model_validate(
        {
            "name": "bench",
            "recipe": "sft",
            "title": "Bench of cached activations",
            "model": {"source": "pvc:none", "dtype": "float32", "max_length": 512},
            "data": {"source": "builtin:survival", "system_prompt": ""},
            **blocks,
            "train": {
                "epochs": args.epochs,
                "batch_size": BATCH,
                "validation_fraction": 0,
                "checkpoints": 1,
                **blocks.get("train", {}),
            },
        }
    )
    job = TrainingJob(
        phase, folder / name, small(args.layers), language(), rows(args.batches * BATCH, args.words), Progress(False)
    )
    unfreeze(job.model, phase)
    trainer, clock = sft.build(job, job.rows, []), Clock()
    trainer.add_callback(clock)
    began = time.process_time()
    if phase.train.cache_frozen_activations:
        trainer.activation_cache = trainers.cache_activations(job, trainer, phase.unfreeze.layers)
    once = time.process_time() - began
    trainer.train()
    return once + clock.seconds, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def main() -> int:
    """Measure the variants, compare, print; return the exit code."""
    parser = outcome.parser(__doc__)
    parser.add_argument("--batches", type=int, default=3, help="batches per epoch (default %(default)s)")
    parser.add_argument("--epochs", type=int, default=4, help="epochs, by default those of the phase (%(default)s)")
    args = parser.parse_args()
    args.layers, args.words = (4, 20) if args.smoke else (LAYERS, WORDS)
    if args.smoke:
        args.batches, args.epochs = 1, 2
    torch.set_num_threads(1)
    seconds: dict[str, float] = {}
    losses: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        # What only the first training has to load is not counted.
        run(next(iter(SIDES)), argparse.Namespace(batches=1, epochs=1, layers=4, words=20), Path(folder) / "first")
        for name in SIDES:
            print(f"{name} ...", file=sys.stderr, flush=True)
            seconds[name], losses[name] = run(name, args, Path(folder))
    apart = max(abs(loss - other) for loss, other in zip(losses["plain"], losses["cached"], strict=True))
    ratio = {name: round(seconds[name] / seconds["cached"], 2) for name in ("usual", "plain")}
    result = {
        "steps": len(losses["cached"]),
        "cpu_seconds": {name: round(value, 1) for name, value in seconds.items()},
        "ratio": ratio,
        "largest_difference_of_a_loss": apart,
        "versions": {name: version(name) for name in ("torch", "transformers", "trl")},
        "cpu": cpu_model(),
    }
    floors = {"times as fast as the usual recipe": (ratio["usual"], NEEDED)}
    return outcome.end(args, result, equal=apart <= TOLERANCE, at_least=floors)


if __name__ == "__main__":
    sys.exit(main())
