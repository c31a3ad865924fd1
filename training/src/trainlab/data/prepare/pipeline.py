"""The steps in order, what is kept between them, and the report; called by options.py.

DIR/work holds what a step leaves for the next (ingest.py, duplicates.py, pack-N.json); each file is complete or
absent, so a killed run is restarted with the same command and produces the same bytes. DIR/index.json comes last.
pack-N.json, written after blocks-N.bin, carries over the tokens of the unfinished block.
"""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from trainlab import files
from trainlab.data.pack import Packer, Tokens, load_tokenizer
from trainlab.data.prepare import duplicates
from trainlab.data.prepare.blocks import DTYPES, FORMAT, INDEX
from trainlab.data.prepare.ingest import (
    MAX_LISTED,
    Group,
    Shard,
    Source,
    content,
    file_name,
    groups,
    ingest,
    sources_of,
)
from trainlab.data.prepare.options import Options
from trainlab.data.prepare.workers import WORTH, Workers, cores
from trainlab.errors import UserError
from trainlab.models.fetch import full, no_space
from trainlab.progress import Progress

EXACT = 4  # numbers per digest
AT_ONCE = 64  # texts that are tokenized at once, in some 150 bytes of memory per character
PACKAGES = ("rensa", "xxhash", "pyarrow", "tokenizers", "numpy")
Flags = NDArray[np.bool_]


@dataclass
class Packed:
    """Contents of pack-N.json of a shard; `rest` are the tokens of the unfinished block."""

    blocks: int = 0
    documents: int = 0
    characters: int = 0
    tokens: int = 0
    sha256: str = ""
    rest: list[int] = field(default_factory=list)


def prepare(names: Sequence[str], out: Path, options: Options, progress: Progress) -> dict[str, Any]:
    """Make `out` from the files and folders in `names`; return the report. A finished `out` is left unchanged.

    Raises UserError for unusable input, and for an `out` made from other input.
    """
    options.check()
    sources = sources_of(names)
    tokens = load_tokenizer(options.tokenizer)
    if tokens.longest and options.block_length > tokens.longest:
        raise UserError(
            f"--block-length {options.block_length}: the model in --tokenizer {options.tokenizer} has {tokens.longest} "
            "positions (its config.json); lower it, or use a model with more"
        )
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is a file; name a folder")
    for name in names:
        if out.resolve().is_relative_to(Path(name).resolve()):
            raise UserError(
                f"--out {out}: is inside the source {name}, whose files it would change; name another folder"
            )
    out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out / ".lock", timeout=0):
            plan = _plan(sources, tokens, options, progress)
            if (out / INDEX).exists():
                _refuse_other(files.read_json(out / "report.json")["plan"], plan, out)
                progress.say(f"{out} is up to date")
            else:
                _steps(sources, tokens, out, options, plan, progress)
            shutil.rmtree(out / "work", ignore_errors=True)
    except Timeout:
        raise UserError(
            f"{out}: another `trainlab prepare` is running there; wait for it, or name another --out"
        ) from None
    except OSError as error:
        if no_space(error):
            raise UserError(f"{full(out)}, then run it again") from None
        raise
    report: dict[str, Any] = files.read_json(out / "report.json")
    return report


def _plan(sources: Sequence[Source], tokens: Tokens, options: Options, progress: Progress) -> dict[str, Any]:
    """Return what the result depends on, including the content of the sources."""
    entries = []
    for source in sources:
        progress.status(f"reading {source.path}")
        digest, size = xxhash.xxh3_128(), 0
        for data in content(source):
            digest.update(data)
            size += len(data)
        entries.append({"name": source.name, "bytes": size, "xxh3_128": digest.hexdigest()})
    return {"format": FORMAT, "sources": entries, "tokenizer": tokens.digest(), **options.identity()}


def _refuse_other(old: Any, new: dict[str, Any], out: Path) -> None:
    other = [key for key in new if old.get(key) != new[key]]
    if other:
        raise UserError(f"{out}: was made with a different {', '.join(other)}; name another --out, or remove it")


def _steps(
    sources: Sequence[Source], tokens: Tokens, out: Path, options: Options, plan: dict[str, Any], progress: Progress
) -> None:
    work = out / "work"
    if (work / "plan.json").exists():
        _refuse_other(files.read_json(work / "plan.json"), plan, out)
    files.write_json(work / "plan.json", plan)
    for left in [*work.glob(".*"), *out.glob(".*.bin.*"), *out.glob(".*.json.*")]:
        left.unlink()  # from a killed run
    size = sum(source["bytes"] for source in plan["sources"])
    with Workers(cores() if size >= WORTH else 1) as workers:
        _made(sources, tokens, out, options, plan, workers, progress)


def _made(
    sources: Sequence[Source],
    tokens: Tokens,
    out: Path,
    options: Options,
    plan: dict[str, Any],
    workers: Workers,
    progress: Progress,
) -> None:
    work = out / "work"
    with progress.step("clean"):
        shards = ingest(sources, options, work, workers, progress)
    with progress.step("exact duplicates"):
        exact = _repeats(work, "exact", len(shards), (EXACT, 1, 1.0), None, progress)
    repeated = np.zeros_like(exact)
    if options.near:
        with progress.step("signatures"):
            _sign(work, shards, exact, workers, progress)
        with progress.step("near duplicates"):
            search = (duplicates.WIDTH, duplicates.min_bands(options.near), options.near)
            repeated = _repeats(work, "near", len(shards), search, exact, progress)
    with progress.step("tokenize and pack"):
        packed = _pack(work, out, shards, ~(exact | repeated), tokens, options, workers, progress)
    report = {**_report(shards, int(exact.sum()), int(repeated.sum()), packed), "plan": plan}
    if not report["blocks"]:
        raise UserError(
            f"{sources[0].path}{' ...' if len(sources) > 1 else ''}: {report['tokens']['made']} tokens left, less than "
            f"one block of {options.block_length} (documents: {report['documents']}); provide more text, or lower "
            "--block-length"
        )
    files.write_json(out / "report.json", report)
    files.write_json(out / INDEX, _index(packed, tokens, options))


def _repeats(
    work: Path, what: str, shards: int, search: tuple[int, int, float], skip: Flags | None, progress: Progress
) -> Flags:
    """Return which documents repeat an earlier one, from the file that lists them or newly computed.

    `search` is the width of a signature, the number of its bands, and the threshold.
    """
    path = work / f"{what}-repeats.bin"
    if not path.exists():
        width, bands, threshold = search
        signatures = duplicates.Signatures([file_name(work, what, n, "bin") for n in range(shards)], width)

        def say(text: str) -> None:
            progress.status(f"{what} duplicates: {text}")

        with files.atomic_write(path) as stream:
            stream.write(duplicates.duplicates(signatures, bands, threshold, skip, say=say).tobytes())
    return np.frombuffer(path.read_bytes(), dtype=np.bool_)


def _sign(work: Path, shards: Sequence[Shard], skip: Flags, workers: Workers, progress: Progress) -> None:
    """Write near-N.bin, the MinHash signature of each document; those in `skip` get zeros and are not compared."""
    for ordinal, parts in enumerate(_parts(work, shards, ~skip)):
        path = file_name(work, "near", ordinal, "bin")
        if path.exists():
            continue
        with files.atomic_write(path) as stream:
            for _, rows in workers.map(_signatures, parts):
                progress.status(f"signatures: shard {ordinal + 1} of {len(shards)}")
                stream.write(rows.tobytes())


def _signatures(part: tuple[Group, Flags]) -> NDArray[np.uint32]:
    return duplicates.signatures((part[0].texts(), part[1]))


@dataclass(frozen=True)
class Tokenized:
    """The tokens of a group's texts, in the dtype of the blocks, and how many texts and characters they are."""

    ids: NDArray[Any]
    documents: int
    characters: int


def _tokens(part: tuple[Group, Flags], tokenizer: Path, begin: list[int], eos: int, kind: np.dtype[Any]) -> Tokenized:
    """Return the tokens of a group's texts that have the flag, each with BOS if there is one, and EOS."""
    texts = [text for text, keep in zip(part[0].texts(), part[1], strict=True) if keep]
    read = Tokens(_backend(tokenizer), begin, eos, 0, None)
    ids = [np.empty(0, kind)]
    for first in range(0, len(texts), AT_ONCE):
        ids.append(np.fromiter(chain.from_iterable(read.documents(texts[first : first + AT_ONCE])), kind))
    return Tokenized(np.concatenate(ids), len(texts), sum(map(len, texts)))


@lru_cache(1)
def _backend(path: Path) -> Any:
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(path))
    backend.encode_special_tokens = True  # no file keeps it
    return backend


def _pack(
    work: Path,
    out: Path,
    shards: Sequence[Shard],
    kept: Flags,
    tokens: Tokens,
    options: Options,
    workers: Workers,
    progress: Progress,
) -> list[Packed]:
    """Write blocks-N.bin and pack-N.json of each shard; return what they hold."""
    packed, path = [Packed()], work / f"{tokens.digest()}.json"
    with files.atomic_write(path) as stream:
        stream.write(tokens.backend.to_str().encode())
    kind = np.dtype(dtype(tokens.size)).newbyteorder("<")
    tokenize = partial(_tokens, tokenizer=path, begin=tokens.begin, eos=tokens.eos, kind=kind)
    for ordinal, parts in enumerate(_parts(work, shards, kept)):
        progress.status(f"pack: shard {ordinal + 1} of {len(shards)}, {sum(shard.tokens for shard in packed)} tokens")
        marker = file_name(work, "pack", ordinal, "json")
        if not marker.exists():
            packer, shard = Packer(options.block_length, packed[-1].rest, kind), Packed()
            ends = -packed[-1].rest.count(tokens.eos)
            path = file_name(out, "blocks", ordinal, "bin")
            with files.atomic_write(path) as stream:
                for _, made in workers.map(tokenize, parts):
                    blocks = packer.add([made.ids])
                    stream.write(blocks.tobytes())
                    ends += int(np.count_nonzero(blocks == tokens.eos))
                    shard.blocks += len(blocks)
                    shard.documents += made.documents
                    shard.characters += made.characters
                    shard.tokens += len(made.ids)
            shard.sha256, shard.rest = files.sha256(path), packer.rest.tolist()
            if ends + shard.rest.count(tokens.eos) != shard.documents:
                raise UserError(f"--tokenizer {options.tokenizer}: its EOS stands inside texts, too; use another model")
            files.write_json(marker, asdict(shard))
        packed.append(Packed(**files.read_json(marker)))
    return packed[1:]


def dtype(size: int) -> str:
    """Return the smallest dtype that holds the ids below `size`."""
    return DTYPES[size > 1 << 16]


def _parts(work: Path, shards: Sequence[Shard], flags: Flags) -> Iterator[Iterator[tuple[None, tuple[Group, Flags]]]]:
    """Yield for each shard its groups of texts, each with the flags of its documents, without a note for `Workers.map`."""

    def parts(ordinal: int, first: int) -> Iterator[tuple[None, tuple[Group, Flags]]]:
        for group in groups(work, ordinal, shards[ordinal]):
            yield None, (group, flags[first : first + group.documents])
            first += group.documents

    first = 0
    for ordinal, shard in enumerate(shards):
        yield parts(ordinal, first)
        first += shard.documents


def _report(shards: Sequence[Shard], exact: int, repeated: int, packed: Sequence[Packed]) -> dict[str, Any]:
    counts: Counter[str] = sum((shard.counts for shard in shards), Counter())
    dropped = {key.removeprefix("dropped."): n for key, n in sorted(counts.items()) if key.startswith("dropped.")}
    made = sum(shard.tokens for shard in packed)
    rest = len(packed[-1].rest)
    return {
        "documents": {
            "read": counts["read"],
            "bad": counts["bad"],
            "dropped": dropped,
            "exact_duplicates": exact,
            "near_duplicates": repeated,
            "kept": sum(shard.documents for shard in packed),
        },
        "characters": {"read": counts["characters_read"], "kept": sum(shard.characters for shard in packed)},
        "tokens": {"made": made, "packed": made - rest, "remainder": rest},
        "blocks": sum(shard.blocks for shard in packed),
        "bad_rows": [sentence for shard in shards for sentence in shard.bad][:MAX_LISTED],
        "versions": {package: version(package) for package in PACKAGES},
    }


def _index(packed: Sequence[Packed], tokens: Tokens, options: Options) -> dict[str, Any]:
    blocks = sum(shard.blocks for shard in packed)
    return {
        "dtype": dtype(tokens.size),
        "block_length": options.block_length,
        "blocks": blocks,
        "tokens": blocks * options.block_length,
        "vocab_size": tokens.size,
        "eos": tokens.eos,
        "shards": [
            {"file": f"blocks-{ordinal:05d}.bin", "blocks": shard.blocks, "sha256": shard.sha256}
            for ordinal, shard in enumerate(packed)
            if shard.blocks
        ],
    }
