"""How fast do texts become tokens: as `trainlab prepare` does it, or one by one in `datasets.map`?

python bench/tokenise.py [--texts 20000] [--rounds 3] [--json FILE]    (needs the packages of the trainer image)
The same byte-level BPE, trained here on the same synthetic texts of some 60 words, for both sides; each text ends with
EOS, and the ids must be equal. Ours uses all cores, so times are wall-clock seconds, the least of so many rounds in turn;
CPU seconds are shown beside. Ours must be 3 times as fast, else, or when ids differ, it exits with 1.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "training" / "src"))
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

from trainlab.manifest import cpu_model
from trainlab.prepare import pack, tokens

NEEDED, VOCABULARY = 3.0, 8000


def corpus(count: int) -> list[str]:
    """Return texts of made-up words whose frequencies fall as in a language (Zipf)."""
    draw = random.Random(0)
    letters = "etaoinshrdlucmfwyp"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 10))) for _ in range(20_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    return [" ".join(draw.choices(words, weights, k=draw.randint(30, 90))) for _ in range(count)]


def make_tokenizer(folder: Path, texts: list[str]) -> None:
    """Train a byte-level BPE on some of the texts and save it as a model folder has it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts[:2000], trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained(folder)


def main() -> int:
    """Measure both sides, compare, print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=20_000, help="texts (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="the fastest of so many counts (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here as well")
    args = parser.parse_args()
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_caching()
    texts = corpus(args.texts)
    with tempfile.TemporaryDirectory() as name:
        make_tokenizer(Path(name), texts)
        mine = tokens.load(Path(name))
        theirs: Any = AutoTokenizer.from_pretrained(name)
    table = datasets.Dataset.from_dict({"text": texts})

    def one_by_one() -> Any:
        def encode(row: dict[str, str]) -> dict[str, list[int]]:
            return {"input_ids": [*theirs(row["text"], add_special_tokens=False)["input_ids"], theirs.eos_token_id]}

        return table.map(encode, remove_columns=["text"], keep_in_memory=True)

    def ours() -> list[list[int]]:
        return [ids for batch in pack.cut(iter([texts])) for ids in mine.documents(batch)]

    sides: dict[str, Callable[[], Any]] = {"trainlab": ours, "datasets_map": one_by_one}
    wall, cpu = dict.fromkeys(sides, float("inf")), dict.fromkeys(sides, float("inf"))
    found: dict[str, Any] = {}
    for _ in range(args.rounds):
        for side, call in sides.items():
            began, used = time.perf_counter(), time.process_time()
            found[side] = call()
            wall[side] = min(wall[side], time.perf_counter() - began)
            cpu[side] = min(cpu[side], time.process_time() - used)
    equal = found["trainlab"] == found["datasets_map"].data.column("input_ids").to_pylist()
    count = sum(map(len, found["trainlab"]))
    ratio = wall["datasets_map"] / wall["trainlab"]
    result = {
        "texts": args.texts,
        "tokens": count,
        "tokens_per_second": {side: round(count / value) for side, value in wall.items()},
        "cpu_seconds": {side: round(value, 2) for side, value in cpu.items()},
        "ratio": round(ratio, 1),
        "ratio_cpu": round(cpu["datasets_map"] / cpu["trainlab"], 1),
        "needed": NEEDED,
        "equal": equal,
        "versions": {package: version(package) for package in ("tokenizers", "transformers", "datasets")},
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
    }
    print(json.dumps(result, indent=2))
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if equal and ratio >= NEEDED else 1


if __name__ == "__main__":
    sys.exit(main())
