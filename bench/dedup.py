"""How fast are near duplicates found: `trainlab prepare` (rensa, sorted bands on disk) or datasketch's MinHash and LSH?

PYTHONPATH=training/src python bench/dedup.py [--documents 20000] [--json FILE]    (needs the packages of the trainer image, and datasketch)
Synthetic texts of 100 words, one in ten repeats another with one word changed. All variants get the same 5-grams, 128
numbers, 16 bands and threshold, and must find the same documents within 1 % (the hash functions differ). Times are
CPU seconds of this process, threads included, so that other programs on the machine do not count; the minimum over
interleaved rounds. Exits with 1 when ours is less than 15 times as fast as datasketch, or the documents differ. Also
measured: datasketch as it was before 2.0 (scheme legacy), and rensa's own in-memory index, which takes 2 kB per document.
"""

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import outcome
from trainlab.data.prepare import duplicates as near
from trainlab.data.prepare.duplicates import Signatures, duplicates
from trainlab.run.manifest import cpu_model

NEEDED, TOLERANCE, THRESHOLD, BATCH = 15.0, 0.01, 0.8, 1024


def corpus(count: int) -> tuple[list[list[str]], set[int]]:
    """Return the n-grams of `count` texts, and which texts repeat an earlier one."""
    draw = random.Random(0)
    vocabulary = [f"w{i}" for i in range(5000)]
    texts: list[list[str]] = []
    repeats = set()
    for index in range(count):
        if index % 10 == 9:
            words = list(texts[draw.randrange(index - index % 10, index)])
            words[draw.randrange(len(words))] = "changed"
            repeats.add(index)
        else:
            words = draw.choices(vocabulary, k=100)
        texts.append(words)
    return [near.grams(" ".join(words)) for words in texts], repeats


def ours(grams: list[list[str]]) -> set[int]:
    """Find them as `trainlab prepare` does, files included."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "signatures.bin"
        with path.open("wb") as stream:
            for first in range(0, len(grams), BATCH):
                stream.write(near.minhashes(grams[first : first + BATCH]).tobytes())
        repeats = duplicates(Signatures([path], near.WIDTH), near.min_bands(THRESHOLD), THRESHOLD)
    return set(repeats.nonzero()[0].tolist())


def by_datasketch(grams: list[list[str]], scheme: str = "affine32") -> set[int]:
    """Find them with datasketch: sketches in bulk, index with the same bands, candidates compared in full."""
    from datasketch import MinHash, MinHashLSH

    bands = near.min_bands(THRESHOLD)
    index = MinHashLSH(num_perm=near.WIDTH, params=(bands, near.WIDTH // bands))
    kept = {}
    repeats = set()
    for first in range(0, len(grams), BATCH):
        batch = [[gram.encode() for gram in document] for document in grams[first : first + BATCH]]
        for number, sketch in enumerate(MinHash.bulk(batch, num_perm=near.WIDTH, scheme=scheme), start=first):
            if any(kept[other].jaccard(sketch) >= THRESHOLD for other in index.query(sketch)):
                repeats.add(number)
            else:
                index.insert(number, sketch)
                kept[number] = sketch
    return repeats


def by_rensa(grams: list[list[str]]) -> set[int]:
    """Find them with rensa's own in-memory index."""
    from rensa import RMinHashDeduplicator

    index = RMinHashDeduplicator(
        threshold=THRESHOLD, num_perm=near.WIDTH, use_lsh=True, num_bands=near.min_bands(THRESHOLD), seed=near.SEED
    )
    added = index.add_pairs([(str(number), gram) for number, gram in enumerate(grams)])
    return {number for number, new in enumerate(added) if not new}


def main() -> int:
    """Measure all variants, compare, print; return the exit code."""
    parser = outcome.parser(__doc__)
    parser.add_argument("--documents", type=int, default=20_000, help="number of texts (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the fastest counts (default %(default)s)")
    args = parser.parse_args()
    if args.smoke:
        args.documents, args.rounds = 1000, 1
    grams, planted = corpus(args.documents)
    sides: dict[str, Callable[[list[list[str]]], set[int]]] = {
        "trainlab": ours,
        "datasketch": by_datasketch,
        "datasketch_legacy": lambda grams: by_datasketch(grams, "legacy"),
        "rensa_index": by_rensa,
    }
    if args.smoke:  # datasketch is nothing that trainlab needs, so it is not in its environment
        sides = {name: side for name, side in sides.items() if not name.startswith("datasketch")}
    reference = "rensa_index" if args.smoke else "datasketch"
    for side in sides.values():
        side(grams[:200])  # imports and first calls are not measured
    seconds: dict[str, float] = dict.fromkeys(sides, float("inf"))
    repeats: dict[str, set[int]] = {}
    for _ in range(args.rounds):
        for name, side in sides.items():
            began = time.process_time()
            repeats[name] = side(grams)
            seconds[name] = min(seconds[name], time.process_time() - began)
    apart = {name: len(repeats[name] ^ repeats[reference]) / len(repeats[reference]) for name in sides}
    ratios = {name: round(value / seconds["trainlab"], 1) for name, value in seconds.items() if name != "trainlab"}
    result = {
        "documents": args.documents,
        "planted": len(planted),
        "found": {name: len(numbers) for name, numbers in repeats.items()},
        "found_and_planted": {name: len(numbers & planted) for name, numbers in repeats.items()},
        f"apart_from_{reference}": {name: round(value, 4) for name, value in apart.items()},
        "tolerance": TOLERANCE,
        "cpu_seconds": {name: round(value, 2) for name, value in seconds.items()},
        "documents_per_second": {name: round(args.documents / value) for name, value in seconds.items()},
        "ratio": ratios,
        "versions": {
            name: version(name) for name in ("rensa", "numpy", *(["datasketch"] if "datasketch" in sides else []))
        },
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
    }
    floors = {"times as fast as datasketch": (ratios[reference], NEEDED)}
    return outcome.end(args, result, equal=max(apart.values()) <= TOLERANCE, at_least=floors)


if __name__ == "__main__":
    sys.exit(main())
