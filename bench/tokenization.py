"""How fast is tokenization: as in `trainlab prepare`, or one by one in `datasets.map`?

PYTHONPATH=training/src python bench/tokenization.py [--texts 8000] [--rounds 5] [--json FILE]    (needs the packages of the trainer image)
Texts of some 700 characters from Python's manual and standard library sources; a byte-level BPE trained here on some
of them, the same for both sides; each text ends with EOS, and all ids must be equal. The sides alternate; a ratio is the
median over the rounds, of CPU seconds of this process with its threads, so that other programs on the machine do not
count. Exits with 1 when ours, the `tokenizers` library in batches, is slower than the map, or ids differ.
Also printed: the ratio of wall-clock seconds, where the library's threads help as well.
"""

import argparse
import json
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

from trainlab.data.prepare import pack_shards, tokens
from trainlab.run.manifest import cpu_model

NEEDED, VOCABULARY, LENGTH = 1.0, 16_000, 400


def corpus(count: int) -> list[str]:
    """Return paragraphs of Python's manual and library, joined to at least LENGTH characters."""
    from pydoc_data.topics import topics

    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts: list[str] = []
    for whole in (*topics.values(), *(path.read_text(encoding="utf-8") for path in sources)):
        part = ""
        for paragraph in whole.split("\n\n"):
            part += paragraph + "\n\n"
            if len(part) >= LENGTH:
                texts.append(part)
                part = ""
    return texts[:count]


def make_tokenizer(folder: Path, texts: list[str]) -> None:
    """Train a byte-level BPE on some of the texts and save it as in a model folder."""
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
    tokenizer.train_from_iterator(texts[::4], trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained(folder)


def main() -> int:
    """Measure both sides, compare, print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=int, default=8000, help="maximum number of texts (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result here")
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

    def batches() -> list[list[int]]:
        return [ids for batch in pack_shards.cut(iter([texts])) for ids in mine.documents(batch)]

    sides: dict[str, Callable[[], Any]] = {"trainlab": batches, "datasets_map": one_by_one}
    found = {name: side() for name, side in sides.items()}  # the first round is not measured: imports and caches
    wall: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, side in sides.items():
            began, used = time.perf_counter(), time.process_time()
            side()
            wall[name].append(time.perf_counter() - began)
            cpu[name].append(time.process_time() - used)
    mapped = found["datasets_map"].data.column("input_ids").to_pylist()
    equal = found["trainlab"] == mapped

    def ratio(seconds: dict[str, list[float]]) -> float:
        pairs = zip(seconds["datasets_map"], seconds["trainlab"], strict=True)
        return round(median(theirs / ours for theirs, ours in pairs), 1)

    result = {
        "texts": len(texts),
        "characters_per_text": round(sum(map(len, texts)) / len(texts)),
        "tokens": sum(map(len, mapped)),
        "equal": equal,
        "cpu_seconds": {name: round(min(one), 3) for name, one in cpu.items()},
        "tokens_per_cpu_second": {name: round(sum(map(len, mapped)) / min(one)) for name, one in cpu.items()},
        "ratio": ratio(cpu),
        "ratio_wall": ratio(wall),
        "needed": NEEDED,
        "rounds": args.rounds,
        "versions": {name: version(name) for name in ("tokenizers", "transformers", "datasets")},
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
    }
    print(json.dumps(result, indent=2))
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if equal and ratio(cpu) >= NEEDED else 1


if __name__ == "__main__":
    sys.exit(main())
