"""Fetches the rows of a hub data set into the model volume, once; used by table_rows.py and corpus.py. No torch."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.errors import UserError
from trainlab.models.fetch import NOT_STATED, WAY_TO_HUB, card_license, cause, full, no_space, of_network, token
from trainlab.progress import note

KEY = "phase.data.source"
SAVED_EVERY = 10.0  # seconds between two notes of how far a stream is


def place(models: Path, *parts: str | None) -> Path:
    """Return the folder of a data set in the model volume, named after what its content depends on."""
    name = "-".join(["data", *(part for part in parts if part)])
    return models / files.slug(name)


def stream(
    source: str, config: str | None, config_key: str, count: int, folder: Path, target: Path, split: str = "train"
) -> int:
    """Write the first `count` rows (0: all) of a split to `target` as JSON Lines; return their number.

    Memory holds some rows, and no copy of the set's files is kept. What was written before an interruption stays in `folder`, and the
    next call goes on after it. Raises UserError with the remedy.
    """
    import datasets

    saved = folder / ".stream.json"
    at: dict[str, Any] = files.read_json(saved) if saved.exists() else {"rows": 0, "bytes": 0, "stream": None}
    with explained(source, config_key, folder):
        rows = _load(datasets, source, config, split, streaming=True, cache_dir=str(folder / ".cache"))
        if at["stream"]:
            note(f"{source}: {at['rows']:,} rows are there, going on after them")
            rows.load_state_dict(at["stream"])
        pending = iter(rows)
    began = time.monotonic()
    with target.open("ab") as out:
        out.truncate(at["bytes"])
        while not count or at["rows"] < count:
            with explained(source, config_key, folder):
                row = next(pending, None)
            if row is None:
                break
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=str).encode() + b"\n")
            at["rows"] += 1
            if time.monotonic() - began >= SAVED_EVERY:
                began = time.monotonic()
                out.flush()
                os.fsync(out.fileno())
                at |= {"bytes": out.tell(), "stream": rows.state_dict()}
                files.write_json(saved, at)
                note(f"{source}: {at['rows']:,} rows, {files.megabytes(at['bytes'])}")
    saved.unlink(missing_ok=True)
    if not at["rows"]:
        raise UserError(f"{KEY} is {source}: its files hold no rows; check name, revision, {config_key}")
    return int(at["rows"])


def rows(source: str, config: str | None, config_key: str, split: str, count: int, folder: Path) -> Iterator[Any]:
    """Yield the first `count` rows (0: all) of a split, by column, as a stream: later files of the set are not fetched.

    Raises UserError with the remedy.
    """
    import datasets

    with explained(source, config_key, folder):
        stream = _load(datasets, source, config, split, streaming=True, cache_dir=str(folder / ".cache"))
        limited = islice(stream, count or None)
    while True:
        with explained(source, config_key, folder):  # not around the yield: errors of the caller are not the hub's
            row = next(limited, None)
        if row is None:
            return
        yield row


def license(source: str, config_key: str, folder: Path) -> str:
    """Return the license of a set as `stated` finds it; raises UserError with the remedy."""
    with explained(source, config_key, folder):
        return stated(*_parts(source), folder / ".cache")


def stated(name: str, revision: str | None, cache: Path) -> str:
    """Return the license that a set's card states; datasets' own DatasetInfo.license stays empty (5.2.0).

    A folder of that name is used as the set, as datasets does. Raises what huggingface_hub raises.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError  # EntryNotFoundError also covers an unreachable hub

    path = Path(name) / "README.md"
    if not path.parent.is_dir():
        try:
            path = Path(
                hf_hub_download(
                    name, "README.md", repo_type="dataset", revision=revision, cache_dir=cache, token=token()
                )
            )
        except RemoteEntryNotFoundError:
            return NOT_STATED
    return card_license(path)


@contextmanager
def explained(source: str, config_key: str, folder: Path) -> Iterator[None]:
    """Turn what the hub, the network and a set's files raise into a UserError about `phase.data.source`."""
    names = f"check name, revision, {config_key}"
    network = f"{names}, the token of a gated set (site.hfTokenSecret) and {WAY_TO_HUB}, or use a pvc: source"
    content = f"{names}, or correct its files in a volume and use a pvc: source"
    with fetched(f"{KEY} is {source}:", network, content, folder.parent):
        yield


@contextmanager
def fetched(what: str, network: str, content: str, volume: Path) -> Iterator[None]:
    """Turn what a fetch into `volume` raises into the UserError "`what` cannot be fetched: why; remedy", which is `network` for what
    the way to the hub or the hub does, else `content`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # classes of several libraries
        if no_space(error):
            raise full(volume) from None
        if isinstance(error, StopIteration):  # datasets, of an empty file
            raise UserError(f"{what} its files hold no rows; {content}") from None
        remedy = network if of_network(error) else content
        raise UserError(f"{what} cannot be fetched: {cause(error)}; {remedy}") from None


def _load(datasets: Any, source: str, config: str | None, split: str, **more: Any) -> Any:
    name, revision = _parts(source)
    return datasets.load_dataset(name, config, revision=revision, split=split, token=token(), **more)


def _parts(source: str) -> tuple[str, str]:
    name, __, revision = source.removeprefix("hf:").partition("@")
    return name, revision
