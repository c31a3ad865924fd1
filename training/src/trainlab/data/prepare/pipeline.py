"""The steps in order, what is kept between them, and the report; called by prepare_command.py.

DIR/work holds what a step leaves for the next (ingest.py, duplicates.py, pack_shards.py); each file is complete or
absent, so a killed run is restarted with the same command and produces the same bytes. DIR/index.json comes last.
"""

import errno
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from trainlab import files
from trainlab.data.prepare import near
from trainlab.data.prepare.blocks import FORMAT, INDEX
from trainlab.data.prepare.duplicates import Signatures, duplicates
from trainlab.data.prepare.ingest import LISTED, Shard, ingest, name, texts
from trainlab.data.prepare.input_rows import Source, content, sources
from trainlab.data.prepare.options import Options
from trainlab.data.prepare.pack_shards import Packed, dtype, pack_shard, read_packed
from trainlab.data.prepare.tokens import Tokens, load
from trainlab.errors import UserError
from trainlab.progress import Progress

EXACT = 4  # numbers per digest
PACKAGES = ("rensa", "xxhash", "pyarrow", "tokenizers", "numpy")
Flags = NDArray[np.bool_]


def prepare(given: Sequence[str], out: Path, options: Options, progress: Progress) -> dict[str, Any]:
    """Make `out` from the files and folders in `given`; return the report. A finished `out` is left unchanged.

    Raises UserError for unusable input, and for an `out` made from other input.
    """
    options.check()
    found = sources(given)
    tokens = load(options.tokenizer)
    if tokens.longest and options.block_length > tokens.longest:
        raise UserError(
            f"--block-length {options.block_length}: the model in --tokenizer {options.tokenizer} has {tokens.longest} "
            "positions (its config.json); lower it, or use a model with more"
        )
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is a file; name a folder")
    for one in given:
        if out.resolve().is_relative_to(Path(one).resolve()):
            raise UserError(
                f"--out {out}: is inside the source {one}, whose files it would change; name another folder"
            )
    out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out / ".lock", timeout=0):
            plan = _plan(found, tokens, options, progress)
            if (out / INDEX).exists():
                _same(files.read_json(out / "report.json")["plan"], plan, out)
                progress.say(f"{out} is up to date")
            else:
                _steps(found, tokens, out, options, plan, progress)
            shutil.rmtree(out / "work", ignore_errors=True)
    except Timeout:
        raise UserError(
            f"{out}: another `trainlab prepare` is running there; wait for it, or name another --out"
        ) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"{out}: the volume is full ({files.free_text(out)}); enlarge it, then run it again"
            ) from None
        raise
    report: dict[str, Any] = files.read_json(out / "report.json")
    return report


def _plan(found: Sequence[Source], tokens: Tokens, options: Options, progress: Progress) -> dict[str, Any]:
    """Return what the result depends on, including the content of the sources."""
    entries = []
    for source in found:
        progress.status(f"reading {source.path}")
        digest, size = xxhash.xxh3_128(), 0
        for data in content(source):
            digest.update(data)
            size += len(data)
        entries.append({"name": source.name, "bytes": size, "xxh3_128": digest.hexdigest()})
    return {"format": FORMAT, "sources": entries, "tokenizer": tokens.digest(), **options.identity()}


def _same(old: Any, new: dict[str, Any], out: Path) -> None:
    other = [key for key in new if old.get(key) != new[key]]
    if other:
        raise UserError(f"{out}: was made with a different {', '.join(other)}; name another --out, or remove it")


def _steps(
    found: Sequence[Source], tokens: Tokens, out: Path, options: Options, plan: dict[str, Any], progress: Progress
) -> None:
    work = out / "work"
    if (work / "plan.json").exists():
        _same(files.read_json(work / "plan.json"), plan, out)
    files.write_json(work / "plan.json", plan)
    for left in [*work.glob(".*"), *out.glob(".*.bin.*"), *out.glob(".*.json.*")]:
        left.unlink()  # from a killed run
    with progress.step("clean"):
        shards = ingest(found, options, work, progress)
    ordinals = range(len(shards))
    with progress.step("exact duplicates"):
        exact = _flags(work, "exact", ordinals, EXACT, 1, 1.0, None, progress)
    repeated = np.zeros_like(exact)
    if options.near:
        with progress.step("signatures"):
            _sign(work, shards, exact, progress)
        with progress.step("near duplicates"):
            bands = near.bands(options.near)
            repeated = _flags(work, "near", ordinals, near.WIDTH, bands, options.near, exact, progress)
    with progress.step("tokenize and pack"):
        packed = _pack(work, out, shards, exact | repeated, tokens, options, progress)
    report = {**_report(shards, int(exact.sum()), int(repeated.sum()), packed), "plan": plan}
    if not report["blocks"]:
        raise UserError(
            f"{found[0].path}{' ...' if len(found) > 1 else ''}: {report['tokens']['made']} tokens left, less than one "
            f"block of {options.block_length} (documents: {report['documents']}); provide more text, or lower "
            "--block-length"
        )
    files.write_json(out / "report.json", report)
    files.write_json(out / INDEX, _index(packed, tokens, options))


def _flags(
    work: Path,
    what: str,
    ordinals: Sequence[int],
    width: int,
    bands: int,
    threshold: float,
    skip: Flags | None,
    progress: Progress,
) -> Flags:
    """Return which documents repeat an earlier one, from the file that lists them or newly computed."""
    path = work / f"{what}-repeats.bin"
    if not path.exists():
        signatures = Signatures([name(work, what, ordinal, "bin") for ordinal in ordinals], width)

        def say(text: str) -> None:
            progress.status(f"{what} duplicates: {text}")

        with files.whole_file(path) as stream:
            stream.write(duplicates(signatures, bands, threshold, skip, say=say).tobytes())
    return np.frombuffer(path.read_bytes(), dtype=np.bool_)


def _sign(work: Path, shards: Sequence[Shard], skip: Flags, progress: Progress) -> None:
    """Write near-N.bin, the MinHash signature of each document; those in `skip` get zeros and are not compared."""
    for ordinal, kept in _each(shards, ~skip):
        path = name(work, "near", ordinal, "bin")
        if path.exists():
            continue
        with files.whole_file(path) as stream:
            done = 0
            for group in texts(work, ordinal):
                progress.status(f"signatures: shard {ordinal + 1} of {len(shards)}, {done} documents")
                here = kept[done : done + len(group)]
                rows = np.zeros((len(group), near.WIDTH), dtype="<u4")
                rows[here] = near.signatures([near.grams(text) for text, keep in zip(group, here, strict=True) if keep])
                stream.write(rows.tobytes())
                done += len(group)


def _pack(
    work: Path, out: Path, shards: Sequence[Shard], drop: Flags, tokens: Tokens, options: Options, progress: Progress
) -> list[Packed]:
    packed = [Packed()]
    for ordinal, kept in _each(shards, ~drop):
        progress.status(f"pack: shard {ordinal + 1} of {len(shards)}, {sum(one.tokens for one in packed)} tokens")
        one = read_packed(work, ordinal)
        if one is None:
            batches = _kept(work, ordinal, kept)
            one = pack_shard(batches, tokens, options.block_length, packed[-1], out, work, ordinal)
        packed.append(one)
    return packed[1:]


def _each(shards: Sequence[Shard], flags: Flags) -> Iterator[tuple[int, Flags]]:
    """Yield each shard's ordinal with the flags of its documents."""
    first = 0
    for ordinal, shard in enumerate(shards):
        yield ordinal, flags[first : first + shard.documents]
        first += shard.documents


def _kept(work: Path, ordinal: int, kept: Flags) -> Iterator[list[str]]:
    done = 0
    for group in texts(work, ordinal):
        yield [text for text, keep in zip(group, kept[done:], strict=False) if keep]
        done += len(group)


def _report(shards: Sequence[Shard], exact: int, repeated: int, packed: Sequence[Packed]) -> dict[str, Any]:
    counts: Counter[str] = sum((shard.counts for shard in shards), Counter())
    dropped = {key.removeprefix("dropped."): n for key, n in sorted(counts.items()) if key.startswith("dropped.")}
    made = sum(one.tokens for one in packed)
    rest = len(packed[-1].rest)
    return {
        "documents": {
            "read": counts["read"],
            "bad": counts["bad"],
            "dropped": dropped,
            "exact_duplicates": exact,
            "near_duplicates": repeated,
            "kept": sum(one.documents for one in packed),
        },
        "characters": {"read": counts["characters_read"], "kept": sum(one.characters for one in packed)},
        "tokens": {"made": made, "packed": made - rest, "remainder": rest},
        "blocks": sum(one.blocks for one in packed),
        "bad_rows": [sentence for shard in shards for sentence in shard.bad][:LISTED],
        "versions": {package: version(package) for package in PACKAGES},
    }


def _index(packed: Sequence[Packed], tokens: Tokens, options: Options) -> dict[str, Any]:
    blocks = sum(one.blocks for one in packed)
    return {
        "dtype": dtype(tokens.size),
        "block_length": options.block_length,
        "blocks": blocks,
        "tokens": blocks * options.block_length,
        "vocab_size": tokens.size,
        "eos": tokens.eos,
        "shards": [
            {
                "file": f"blocks-{ordinal:05d}.bin",
                "blocks": one.blocks,
                "sha256": one.sha256,
                "starts": f"starts-{ordinal:05d}.bin",
                "documents": one.starts,
                "starts_sha256": one.starts_sha256,
            }
            for ordinal, one in enumerate(packed)
            if one.blocks
        ],
        "documents": sum(one.starts for one in packed),
    }
