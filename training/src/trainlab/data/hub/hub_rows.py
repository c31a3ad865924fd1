"""Rows of a hub data set as the folder that chat_rows.py reads, with a count of every outcome; used by recipes/sft/."""

import hashlib
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import SftPhase
from trainlab.config.inputs import Hub
from trainlab.data.hub import download, parts
from trainlab.data.hub.usable import Row, columns, usable
from trainlab.errors import UserError
from trainlab.models.fetch import datasets_dir

CONFIG_KEY = "phase.data.hub.config"
EVERY = 30.0  # seconds between two lines
LEFT_OUT = {
    "empty": "without a text",
    "broken": "with a broken text",
    "long": "longer than phase.model.max_length",
    "equal": "equal to another row",
}


def place(phase: SftPhase, models: Path) -> Path | None:
    """Return the folder of the phase's rows among the data sets, None if they are not from a hub.

    Its name contains a digest of all that decides which rows are in it, including the model, which measures their
    length.
    """
    hub = phase.data.hub
    if hub is None:
        return None
    decides = {
        **hub.model_dump(mode="json", exclude={"accept_license"}),
        **phase.model.model_dump(mode="json", exclude={"dtype"}),
        "system_prompt": phase.data.system_prompt,
    }
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:8]
    return download.place(datasets_dir(models), phase.data.source, digest)


def fetch(phase: SftPhase, models: Path, model_dir: Path) -> Path | None:
    """Make sure that the rows are in `models`; return their folder, None if they are not from a hub.

    Raises UserError with the remedy.
    """
    target, hub = place(phase, models), phase.data.hub
    if target is None or hub is None:
        return None
    return download.once(target, lambda folder: _fill(phase, hub, model_dir, folder))


def origin(phase: SftPhase, folder: Path) -> dict[str, Any]:
    """Return {license, rows} for the manifest, {} for rows that are not from a hub."""
    record = folder / download.RECORD
    if phase.data.hub is None or not record.is_file():
        return {}
    found = files.read_json(record)
    said = f"{found['license']} on its card; the right to train on it was claimed with phase.data.hub.accept_license"
    return {"license": said, "columns": found["columns"], "rows": found["rows"]}


def account(rows: Mapping[str, int]) -> str:
    """Return what became of the rows as a sentence without its period."""
    left = [f"{rows[name]:,} {why}" for name, why in LEFT_OUT.items() if rows[name]]
    kept = f"{rows['read']:,} read, {rows['train']:,} to train on, {rows['heldout']:,} held out"
    forms = [f"{rows['unknown_form']:,} kept without their form, which is unknown"] if rows["unknown_form"] else []
    return "; ".join([kept, *([f"left out: {', '.join(left)}"] if left else []), *forms])


def _fill(phase: SftPhase, hub: Hub, model_dir: Path, folder: Path) -> dict[str, Any]:
    """Write train/ and heldout/ into `folder`; return the data set's record."""
    source = phase.data.source
    license = download.license(source, CONFIG_KEY, folder)
    _say(f"fetching the rows of {source} (license on its card: {license})")
    rows = download.rows(source, hub.config, CONFIG_KEY, hub.split, hub.fetch_rows, folder)
    first = next(rows, None)
    if first is None:
        raise UserError(
            f"{download.KEY} is {source}: split {hub.split} has no rows; name another with phase.data.hub.split"
        )
    names = columns(hub.columns, first, source)
    from trainlab.models import chat  # imports torch, which is useless if the hub returns nothing

    tokenizer = chat.load_tokenizer(model_dir, phase)
    counts = Counter(dict.fromkeys(("read", "train", "heldout", *LEFT_OUT, "unknown_form"), 0))

    def taken() -> Iterator[Row]:
        said = time.monotonic()
        for raw in chain([first], rows):
            counts["read"] += 1
            row = usable(raw, names, phase, tokenizer, counts)
            if row is not None:
                yield row
            if time.monotonic() - said >= EVERY:
                said = time.monotonic()
                _say(f"{counts['read']:,} rows read")

    name, work = source.removeprefix("hf:").partition("@")[0].replace("/", "-"), folder / ".work"
    key = "verse" if "verse" in names else "question"
    counts.update(parts.deal(taken(), key, work, folder, name, hub.heldout_fraction))
    _say(f"{source}: {account(counts)}")
    _refuse_too_few(source, counts)
    for rest in (work, folder / ".cache"):
        shutil.rmtree(rest, ignore_errors=True)
    return {
        "source": source,
        "license": license,
        **hub.model_dump(mode="json", include={"accept_license", "config", "split", "fetch_rows", "heldout_fraction"}),
        "columns": names,
        "rows": dict(counts),
    }


def _refuse_too_few(source: str, counts: Mapping[str, int]) -> None:
    """Raise UserError if a part has fewer than two rows."""
    if not counts["train"] + counts["heldout"]:
        raise UserError(
            f"{download.KEY} is {source}: none of its rows can be used ({account(counts)}); are these the right columns "
            "(phase.data.hub.columns), and is phase.model.max_length long enough?"
        )
    if min(counts["train"], counts["heldout"]) < 2:
        raise UserError(
            f"{download.KEY} is {source}: too few rows, each part needs 2 ({account(counts)}); raise "
            "phase.data.hub.fetch_rows or heldout_fraction"
        )


def _say(text: str) -> None:
    print(f"trainlab: {text}", file=sys.stderr, flush=True)
