"""Rows of a hub data set as the folder that chat_rows.py reads, with a count of every outcome; used by recipes/sft.py.

A row is assigned by the SHA-256 of its verse (or question): the smallest digests are held out, and both parts are
sorted by digest. So equal verses (or questions, whatever their case and punctuation) are never on both sides, a row's
place does not depend on the other rows, and the first N rows are a fair sample. The rows are in Arrow files, which
`datasets` maps: memory holds the digests, not the texts."""

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab import files
from trainlab.config import SftPhase
from trainlab.config.inputs import QUESTIONS, VERSES, Columns, Hub
from trainlab.data import hub_download as download
from trainlab.data.prepare import clean
from trainlab.data.scripts import normal
from trainlab.data.verse_forms import FORMS
from trainlab.errors import UserError
from trainlab.models.fetch import RECORD, datasets_dir, once
from trainlab.progress import INTERVAL, note

Row = dict[str, str]
# No tokenizer makes tokens this long from human text: a longer row needs no counting, which would cost memory.
MAX_CHARACTERS = 64  # per token
SORT_KEYS = ("group", "whole", "items")  # by the items too: of equal rows the same one is kept, whatever their order
CONFIG_KEY = "phase.data.hub.config"
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
    return once(target, (target / RECORD).exists, lambda folder: _fill(phase, hub, model_dir, folder))


def origin(phase: SftPhase, folder: Path) -> dict[str, Any]:
    """Return {license, rows} for the manifest, {} for rows that are not from a hub."""
    record = folder / RECORD
    if phase.data.hub is None or not record.is_file():
        return {}
    fetched = files.read_json(record)
    license = (
        f"{fetched['license']} on its card; the right to train on it was claimed with phase.data.hub.accept_license"
    )
    return {"license": license, "columns": fetched["columns"], "rows": fetched["rows"]}


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
    note(f"fetching the rows of {source} (license on its card: {license})")
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

    def usable_rows() -> Iterator[Row]:
        noted = time.monotonic()
        for raw in chain([first], rows):
            counts["read"] += 1
            row = usable(raw, names, phase, tokenizer, counts)
            if row is not None:
                yield row
            if time.monotonic() - noted >= INTERVAL:
                noted = time.monotonic()
                note(f"{counts['read']:,} rows read")

    name, work = source.removeprefix("hf:").partition("@")[0].replace("/", "-"), folder / ".work"
    key = "verse" if "verse" in names else "question"
    counts.update(split(usable_rows(), key, work, folder, name, hub.heldout_fraction))
    note(f"{source}: {account(counts)}")
    _check_size(source, counts)
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return {
        "source": source,
        "license": license,
        **hub.model_dump(mode="json", include={"accept_license", "config", "split", "fetch_rows", "heldout_fraction"}),
        "columns": names,
        "rows": dict(counts),
    }


def _check_size(source: str, counts: Mapping[str, int]) -> None:
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


def split(rows: Iterable[Row], key: str, work: Path, target: Path, name: str, heldout: float) -> Counter[str]:
    """Write TARGET/train/NAME.jsonl and TARGET/heldout/NAME.jsonl; return the numbers `train`, `heldout` and `equal`.

    `key` is what must not be on both sides, the verse or the question; `heldout` is a share; `work` holds temporary
    files.
    """
    import datasets
    from pyarrow import compute

    work.mkdir()
    lines = work / "rows.jsonl"
    with lines.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{json.dumps(_entry(row, key))}\n" for row in rows)
    counts = Counter({"train": 0, "heldout": 0, "equal": 0})
    if not lines.stat().st_size:
        return counts
    table = datasets.Dataset.from_json(str(lines), cache_dir=str(work))
    # Not table.sort: datasets 5.2 calls pyarrow 25 in a way that prints a FutureWarning.
    order = compute.sort_indices(table.data.table, sort_keys=[(name, "ascending") for name in SORT_KEYS])
    with ExitStack() as stack:
        streams = {}
        for part in ("train", "heldout"):
            (target / part).mkdir()
            path = target / part / f"{name}.jsonl"
            streams[part] = stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
        for _, (entry, *others) in groupby(table.select(order), key=itemgetter("whole")):
            counts["equal"] += len(others)
            part = "heldout" if int(entry["group"][:16], 16) < heldout * 2**64 else "train"
            row = json.loads(entry["row"])
            line = {"id": entry["whole"][:20], "group": entry["group"][:20], **row}
            print(json.dumps(line if "verse" in row else {**line, "facts": []}, ensure_ascii=False), file=streams[part])
            counts[part] += 1
    return counts


def _entry(row: Row, key: str) -> dict[str, str]:
    """Return a row's digests; its `form` does not decide where it belongs."""
    whole = _digest(*(text for name, text in row.items() if name != "form"))
    items = json.dumps(sorted(row.items()))
    group = normal(row[key]) if key == "question" else row[key]
    return {"group": _digest(group), "whole": whole, "items": items, "row": json.dumps(row)}


def _digest(*texts: str) -> str:
    """Return the digest of texts as hex, the same for texts that differ only in case or spacing."""
    regular = "\0".join(" ".join(text.split()).casefold() for text in texts)
    return hashlib.sha256(regular.encode()).hexdigest()


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def columns(given: Columns, there: Mapping[str, Any], source: str) -> Row:
    """Return {key of a row: column of the set}; raises UserError with the existing columns.

    The pair is the one that `given` names, else the one whose column names the set has.
    """
    named = {key: column for key, column in given.model_dump().items() if column is not None}
    listed = ", ".join(map(repr, there))
    pair = next((pair for pair in (VERSES, QUESTIONS) if set(pair) & set(named)), None)
    if pair is None:
        verses_only = "form" in named
        pair = next((p for p in (VERSES, QUESTIONS)[: 1 if verses_only else 2] if set(p) <= set(there)), None)
    if pair is None:
        raise UserError(
            f"{download.KEY} is {source}: no columns instruction and verse, or question and answer; it has {listed}: name them "
            "with phase.data.hub.columns, e.g. {instruction: ..., verse: ...}"
        )
    columns = {key: named.get(key, key) for key in pair}
    if "form" in named:
        columns["form"] = named["form"]
    for key, column in columns.items():
        if column not in there:
            raise UserError(
                f"{download.KEY} is {source}: column {column!r} is missing; it has {listed}: correct phase.data.hub.columns.{key}"
            )
    return columns


def usable(
    raw: Mapping[str, Any], names: Row, phase: SftPhase, tokenizer: "PreTrainedTokenizerBase", counts: Counter[str]
) -> Row | None:
    """Return the normalized texts of a row by key, None for an unusable one, whose reason is counted in `counts`."""
    texts = {key: raw.get(column) for key, column in names.items() if key != "form"}
    why = next((fault for fault in map(_fault, texts.values()) if fault), None)
    if why is None:
        row = {key: clean.normalize(str(text)).strip() for key, text in texts.items()}
        asked, answer = row.values()
        if not (asked and answer):  # they had only control characters
            why = "empty"
        elif not _fits(asked, answer, phase, tokenizer):
            why = "long"
    if why:
        counts[why] += 1
        return None
    form = raw.get(names["form"]) if "form" in names else None
    if form in FORMS:
        row["form"] = str(form)
    elif form not in (None, ""):
        counts["unknown_form"] += 1
    return row


def _fits(asked: str, answer: str, phase: SftPhase, tokenizer: "PreTrainedTokenizerBase") -> bool:
    """True for what chat.encode accepts."""
    from trainlab.models import chat

    longest = phase.model.max_length
    if len(asked) + len(answer) > MAX_CHARACTERS * longest:
        return False
    return (
        len(chat.prompt_ids(tokenizer, phase, asked)) + len(chat.answer_ids(tokenizer, phase, asked, answer)) <= longest
    )


def _fault(text: Any) -> str | None:
    """Return why a value cannot be trained on."""
    if text is None:
        return "empty"
    if not isinstance(text, str):
        return "broken"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can encode
        return "broken"
    if not text.strip():
        return "empty"
    return "broken" if clean.RULES["broken"](text) else None
