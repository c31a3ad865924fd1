"""How fast is tokenization: as in `trainlab prepare`, in `datasets.map` one by one or in batches, or in one call of `tokenizers`?

PYTHONPATH=training/src python bench/tokenization.py [--texts 8000] [--rounds 5] [--json FILE]    (needs the packages of the trainer image)
Texts of some 700 characters from Python's manual and standard library sources; a byte-level BPE trained here on some
of them, the same for all sides; each text ends with EOS, and all ids must be equal. The sides alternate; a ratio is the
median over the rounds, of CPU seconds of this process with its threads, so that other programs on the machine do not
count. Exits with 1 when ours, the `tokenizers` library in batches cut as documents arrive, misses a floor of NEEDED, or ids
differ: it must beat both maps and may cost a tenth more than one call with all texts in memory, which it cannot make.
Also printed: the ratio of wall-clock seconds, where the library's threads help as well.
"""

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

import outcome
from trainlab.data import pack
from trainlab.run.manifest import cpu_model

NEEDED = {"datasets_map": 1.3, "datasets_map_batched": 1.0, "tokenizers_batch": 0.9}
VOCABULARY, LENGTH = 16_000, 400


def corpus(count: int) -> list[str]:
    """Return paragraphs of Python's manual and library, joined to at least LENGTH characters."""
    from pydoc_data.topics import topics

    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts: list[str] = []
    for text in (*topics.values(), *(path.read_text(encoding="utf-8") for path in sources)):
        part = ""
        for paragraph in text.split("\n\n"):
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
    parser = outcome.parser(__doc__)
    parser.add_argument("--texts", type=int, default=8000, help="maximum number of texts (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default %(default)s)")
    args = parser.parse_args()
    if args.smoke:
        args.texts, args.rounds = 60, 1
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_caching()
    texts = corpus(args.texts)
    with tempfile.TemporaryDirectory() as name:
        make_tokenizer(Path(name), texts)
        mine = pack.load_tokenizer(Path(name))
        theirs: Any = AutoTokenizer.from_pretrained(name)
    table = datasets.Dataset.from_dict({"text": texts})

    def mapped_rows() -> Any:
        def encode(row: dict[str, str]) -> dict[str, list[int]]:
            return {"input_ids": [*theirs(row["text"], add_special_tokens=False)["input_ids"], theirs.eos_token_id]}

        return table.map(encode, remove_columns=["text"], keep_in_memory=True)

    def batches() -> list[list[int]]:
        return [ids for i in range(0, len(texts), 64) for ids in mine.documents(texts[i : i + 64])]

    def mapped_batches() -> Any:
        def encode(rows: dict[str, list[str]]) -> dict[str, list[list[int]]]:
            ids = theirs(rows["text"], add_special_tokens=False)["input_ids"]
            return {"input_ids": [[*document, theirs.eos_token_id] for document in ids]}

        return table.map(encode, batched=True, remove_columns=["text"], keep_in_memory=True)

    def library() -> list[list[int]]:
        encodings = theirs.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
        return [[*encoding.ids, theirs.eos_token_id] for encoding in encodings]

    sides: dict[str, Callable[[], Any]] = {
        "trainlab": batches,
        "datasets_map": mapped_rows,
        "datasets_map_batched": mapped_batches,
        "tokenizers_batch": library,
    }
    outputs = {name: side() for name, side in sides.items()}  # the first round is not measured: imports and caches
    wall: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, side in sides.items():
            began, used = time.perf_counter(), time.process_time()
            side()
            wall[name].append(time.perf_counter() - began)
            cpu[name].append(time.process_time() - used)
    ids = {
        name: output if isinstance(output, list) else output.data.column("input_ids").to_pylist()
        for name, output in outputs.items()
    }
    equal = all(documents == ids["trainlab"] for documents in ids.values())

    def ratio(seconds: dict[str, list[float]]) -> dict[str, float]:
        return {
            name: round(
                median(theirs / ours for theirs, ours in zip(seconds[name], seconds["trainlab"], strict=True)), 2
            )
            for name in NEEDED
        }

    result = {
        "texts": len(texts),
        "characters_per_text": round(sum(map(len, texts)) / len(texts)),
        "tokens": sum(map(len, ids["trainlab"])),
        "cpu_seconds": {name: round(min(times), 3) for name, times in cpu.items()},
        "tokens_per_cpu_second": {
            name: round(sum(map(len, ids["trainlab"])) / min(times)) for name, times in cpu.items()
        },
        "ratio": ratio(cpu),
        "ratio_wall": ratio(wall),
        "rounds": args.rounds,
        "versions": {name: version(name) for name in ("tokenizers", "transformers", "datasets")},
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
    }
    floors = {f"times as fast as {name}": (value, NEEDED[name]) for name, value in ratio(cpu).items()}
    return outcome.end(args, result, equal=equal, at_least=floors)


if __name__ == "__main__":
    sys.exit(main())
