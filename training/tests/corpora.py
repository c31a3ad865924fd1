"""Small texts with planted duplicates, a tokenizer without a model, and children that are killed; for the tests of `trainlab prepare`."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from checkout import SOURCES
from trainlab.data.prepare.options import Options
from trainlab.data.prepare.pipeline import prepare
from trainlab.progress import Progress

SYLLABLES = ["ka", "lo", "mi", "ten", "ru", "sol", "ve", "dan", "pir", "o", "esh", "um"]


def text(seed: int, words: int = 100) -> str:
    """Return lines of random words; two seeds share no 5-gram in practice."""
    draw = random.Random(seed)
    made = ["".join(draw.choices(SYLLABLES, k=draw.randint(2, 4))) for _ in range(words)]
    return "\n".join(" ".join(made[i : i + 10]) for i in range(0, words, 10))


def nearly(whole: str) -> str:
    """Return a text with one word changed in the middle: 5 of about 96 grams."""
    words = whole.split(" ")
    words[len(words) // 2] = "changed"
    return " ".join(words)


def write_rows(path: Path, texts: list[str]) -> Path:
    """Write texts as JSON Lines."""
    path.write_text("".join(json.dumps({"n": i, "text": one}) + "\n" for i, one in enumerate(texts)), encoding="utf-8")
    return path


def make_tokenizer(folder: Path, eos: str | None = "<|endoftext|>", bos: bool = False) -> Path:
    """Write a byte-level BPE of some 300 tokens to `folder`; with `bos` it puts <|begin|> before a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|begin|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text(seed) for seed in range(20)], trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", 1)]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos, bos_token="<|begin|>" if bos else None)
    fast.save_pretrained(folder)
    return folder


def child(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own that finds the package."""
    path = os.pathsep.join([str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code, *args], env=env, capture_output=True, text=True, check=False)


def made(source: Path | str, out: Path, options: Options) -> dict[str, Any]:
    """Prepare one file or folder without a line of progress; return the report."""
    return prepare([str(source)], out, options, Progress(speaks=False))
