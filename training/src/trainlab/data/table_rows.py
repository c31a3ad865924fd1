"""Rows of a table, of a hub or of one's own files, as the folder that chat_rows.py reads, with a count of every outcome; used by
recipes/sft.py.

A row is assigned by the SHA-256 of its verse (or question): the smallest digests are held out, and both parts are
sorted by digest. So equal verses (or questions, whatever their case and punctuation) are never on both sides, a row's
place does not depend on the other rows, and the first N rows are a fair sample. The rows are in Arrow files, which
`datasets` maps: memory holds the digests, not the texts."""

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab import files
from trainlab.config import SftPhase
from trainlab.config.inputs import QUESTIONS, VERSES, Table
from trainlab.data import hub_download as download
from trainlab.data import object_store, row_files, table_files
from trainlab.data.answer_forms import label_line
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
CONFIG_KEY = "phase.data.table.config"
LEFT_OUT = {
    "empty": "without a text",
    "broken": "with a broken text",
    "long": "longer than phase.model.max_length",
    "equal": "equal to another row",
}


def place(phase: SftPhase, models: Path) -> Path | None:
    """Return the folder of the phase's rows among the data sets, None if they are not from a table.

    Its name contains a digest of all that decides which rows are in it, including the model, which measures their
    length.
    """
    table = phase.data.table
    if table is None:
        return None
    decides = {
        **table.model_dump(mode="json", exclude={"accept_license"}),
        **phase.model.model_dump(mode="json", exclude={"dtype"}),
        "system_prompt": phase.data.system_prompt,
        **({"label_line": True} if phase.data.label_line else {}),  # without it the folders of before keep their names
    }
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:8]
    return download.place(datasets_dir(models), phase.data.source, digest)


def of_validation(phase: SftPhase) -> SftPhase | None:
    """Return the phase that reads the table of data.validation, none of whose rows is held out; None without one."""
    data, table = phase.data, phase.data.table
    if data.validation is None or table is None:
        return None
    split = "validation" if data.validation.startswith("hf:") else table.split
    validating = table.model_copy(update={"heldout_fraction": 0.0, "split": split})
    source = data.model_copy(update={"source": data.validation, "table": validating})
    return phase.model_copy(update={"data": source})


def fetch(phase: SftPhase, models: Path, model_dir: Path) -> Path | None:
    """Make sure that the rows are in `models`; return their folder, None if they are not from a table.

    Files that changed since are read again. Raises UserError with the remedy.
    """
    target, table = place(phase, models), phase.data.table
    if target is None or table is None:
        return None
    if phase.data.source.startswith("hf:"):
        return once(target, (target / RECORD).exists, lambda folder: _from_hub(phase, table, model_dir, folder))
    if phase.data.source.startswith("s3:"):
        path = object_store.fetch(phase.data.source, datasets_dir(models), table_files.TABLES)
    else:
        path = row_files.here(phase.data.source, models)
    if not path.exists():
        raise UserError(
            f"{download.KEY} is {phase.data.source}: nothing at {path}; put it there first, or correct the source"
        )
    paths = table_files.listed(path, table_files.TABLES)
    digests = {each.name: files.sha256(each) for each in paths}

    def is_filled() -> bool:
        return (target / RECORD).exists() and files.read_json(target / RECORD)["files"] == digests

    def fill(folder: Path) -> dict[str, Any]:
        return {"files": digests, **_from_files(phase, table, paths, model_dir, folder)}

    return once(target, is_filled, fill)


def origin(phase: SftPhase, folder: Path) -> dict[str, Any]:
    """Return {license of a hub data set, columns, rows} for the manifest, {} for rows that are not from a table."""
    record = folder / RECORD
    if phase.data.table is None or not record.is_file():
        return {}
    fetched = files.read_json(record)
    read = {name: fetched[name] for name in ("columns", "rows")}
    if "license" not in fetched:
        return read
    license = (
        f"{fetched['license']} on its card; the right to train on it was claimed with phase.data.table.accept_license"
    )
    return {"license": license, **read}


def account(rows: Mapping[str, int]) -> str:
    """Return what became of the rows as a sentence without its period."""
    left = [f"{rows[name]:,} {why}" for name, why in LEFT_OUT.items() if rows[name]]
    kept = f"{rows['read']:,} read, {rows['train']:,} to train on, {rows['heldout']:,} held out"
    forms = [f"{rows['unknown_form']:,} kept without their form, which is unknown"] if rows["unknown_form"] else []
    return "; ".join([kept, *([f"left out: {', '.join(left)}"] if left else []), *forms])


def _from_hub(phase: SftPhase, table: Table, model_dir: Path, folder: Path) -> dict[str, Any]:
    """Write train/ and heldout/ of a hub data set into `folder`; return the data set's record."""
    source = phase.data.source
    license = download.license(source, CONFIG_KEY, folder)
    note(f"fetching the rows of {source} (license on its card: {license})")
    rows = download.rows(source, table.config, CONFIG_KEY, table.split, table.fetch_rows, folder)
    first = next(rows, None)
    if first is None:
        raise UserError(
            f"{download.KEY} is {source}: split {table.split} has no rows; name another with phase.data.table.split"
        )
    names = columns(table, first, source)
    record = _fill(phase, table, model_dir, folder, ((row, names) for row in chain([first], rows)))
    only = {"accept_license", "config", "split", "fetch_rows", "heldout_fraction"}
    return {"license": license, **table.model_dump(mode="json", include=only), "columns": names, **record}


def _from_files(phase: SftPhase, table: Table, paths: Sequence[Path], model_dir: Path, folder: Path) -> dict[str, Any]:
    """The same for tables in files: what is no text, or too large for one, raises UserError with file, row and column."""
    named: dict[str, Row] = {}

    def rows() -> Iterator[tuple[Mapping[str, Any], Row]]:
        for path in paths:
            for number, row in table_files.records(path):
                names = named.setdefault(path.name, {}) or columns(table, row, f"{phase.data.source}: {path.name}")
                named[path.name] = names
                for key, column in names.items():
                    if row.get(column) is not None:  # an empty cell is counted
                        _check_cell(table_files.at(path, number), row, column, f"phase.data.table.columns.{key}")
                yield row, names

    record = _fill(phase, table, model_dir, folder, islice(rows(), table.fetch_rows or None))
    return {"columns": next(iter(named.values()), {}), **record}


def _check_cell(at: str, row: Mapping[str, Any], column: str, key: str) -> None:
    try:
        text = table_files.cell(dict(row), column, key)
    except ValueError as error:
        raise UserError(f"{at}: {error}") from None
    if len(text) > table_files.MAX_CHARACTERS:
        raise UserError(
            f"{at}: column {column!r} has {len(text)} characters, the limit is {table_files.MAX_CHARACTERS}; {table_files.CUT}"
        )


def _fill(
    phase: SftPhase, table: Table, model_dir: Path, folder: Path, rows: Iterable[tuple[Mapping[str, Any], Row]]
) -> dict[str, Any]:
    """Write train/ and heldout/ into `folder`, from pairs of a row and its columns; return {source, rows} of the record."""
    from trainlab.models import chat  # imports torch, which is useless if the hub returns nothing

    source = phase.data.source
    tokenizer = chat.load_tokenizer(model_dir, phase)
    counts = Counter(dict.fromkeys(("read", "train", "heldout", *LEFT_OUT, "unknown_form"), 0))

    def usable_rows() -> Iterator[Row]:
        noted = time.monotonic()
        for raw, names in rows:
            counts["read"] += 1
            row = usable(raw, names, phase, tokenizer, counts)
            if row is not None:
                yield row
            if time.monotonic() - noted >= INTERVAL:
                noted = time.monotonic()
                note(f"{counts['read']:,} rows read")

    counts.update(split(usable_rows(), folder / ".work", folder, _file_name(phase), table))
    note(f"{source}: {account(counts)}")
    _check_size(source, counts, ("train", "heldout") if table.heldout_fraction else ("train",))
    shutil.rmtree(folder / ".work", ignore_errors=True)
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return {"source": source, "rows": dict(counts)}


def _check_size(source: str, counts: Mapping[str, int], parts: Sequence[str]) -> None:
    """Raise UserError if one of the parts has fewer than two rows."""
    if not counts["train"] + counts["heldout"]:
        raise UserError(
            f"{download.KEY} is {source}: none of its rows can be used ({account(counts)}); are these the right columns "
            "(phase.data.table.columns), and is phase.model.max_length long enough?"
        )
    if min(counts[part] for part in parts) < 2:
        raise UserError(
            f"{download.KEY} is {source}: too few rows, each part needs 2 ({account(counts)}); raise "
            "phase.data.table.fetch_rows or heldout_fraction"
        )


def split(rows: Iterable[Row], work: Path, target: Path, name: str, table: Table) -> Counter[str]:
    """Write TARGET/train/NAME.jsonl and TARGET/heldout/NAME.jsonl; return the numbers `train`, `heldout` and `equal`.

    What must not be on both sides is the verse, or the question as the column has it. `work` holds temporary files.
    """
    import datasets
    from pyarrow import compute

    work.mkdir()
    lines = work / "rows.jsonl"
    with lines.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{json.dumps(_entry(row, table.question_template))}\n" for row in rows)
    counts = Counter({"train": 0, "heldout": 0, "equal": 0})
    if not lines.stat().st_size:
        return counts
    arrow = datasets.Dataset.from_json(str(lines), cache_dir=str(work))
    # Not table.sort: datasets 5.2 calls pyarrow 25 in a way that prints a FutureWarning.
    order = compute.sort_indices(arrow.data.table, sort_keys=[(name, "ascending") for name in SORT_KEYS])
    with ExitStack() as stack:
        streams = {}
        for part in ("train", "heldout"):
            (target / part).mkdir()
            path = target / part / f"{name}.jsonl"
            streams[part] = stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
        for __, (entry, *others) in groupby(arrow.select(order), key=itemgetter("whole")):
            counts["equal"] += len(others)
            part = "heldout" if int(entry["group"][:16], 16) < table.heldout_fraction * 2**64 else "train"
            row = json.loads(entry["row"])
            line = {"id": entry["whole"][:20], "group": entry["group"][:20], **row}
            print(json.dumps(line if "verse" in row else {**line, "facts": []}, ensure_ascii=False), file=streams[part])
            counts[part] += 1
    return counts


def _entry(row: Row, template: str | None) -> dict[str, str]:
    """Return a row's digests; its `form` and `topic` do not decide where it belongs."""
    group = normal(row["question"]) if "question" in row else row["verse"]
    row = worded(row, template)
    text_digest = _digest(*(text for name, text in row.items() if name not in ("form", "topic")))
    items = json.dumps(sorted(row.items()))
    return {"group": _digest(group), "whole": text_digest, "items": items, "row": json.dumps(row)}


def worded(row: Row, template: str | None) -> Row:
    """Return the row with its question as the model gets it."""
    return {**row, "question": template.format(**row)} if template and "question" in row else row


def _digest(*texts: str) -> str:
    """Return the digest of texts as hex, the same for texts that differ only in case or spacing."""
    regular = "\0".join(" ".join(text.split()).casefold() for text in texts)
    return hashlib.sha256(regular.encode()).hexdigest()


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def columns(table: Table, present: Mapping[str, Any], source: str) -> Row:
    """Return {key of a row: column of the set}; raises UserError with the existing columns.

    The pair is the one that `table` names, else the one whose column names the set has. There is a topic if it is named, or needed for
    the question.
    """
    named = {key: column for key, column in table.columns.model_dump().items() if column is not None}
    listed = ", ".join(map(repr, present))
    pair = next((pair for pair in (VERSES, QUESTIONS) if set(pair) & set(named)), None)
    if pair is None:
        verses_only = "form" in named
        pair = next((p for p in (VERSES, QUESTIONS)[: 1 if verses_only else 2] if set(p) <= set(present)), None)
    if pair is None:
        raise UserError(
            f"{download.KEY} is {source}: no columns instruction and verse, or question and answer; it has {listed}: name them "
            "with phase.data.table.columns, e.g. {instruction: ..., verse: ...}"
        )
    columns = {key: named.get(key, key) for key in pair}
    if "form" in named:
        columns["form"] = named["form"]
    if "topic" in named or "{topic}" in (table.question_template or ""):
        columns["topic"] = named.get("topic", "topic")
    for key, column in columns.items():
        if column not in present:
            raise UserError(
                f"{download.KEY} is {source}: column {column!r} is missing; it has {listed}: correct phase.data.table.columns.{key}"
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
        table = phase.data.table
        asked, answer = list(worded(row, table.question_template if table else None).values())[:2]
        if not all(row.values()):  # they had only control characters
            why = "empty"
        elif not _fits(asked, _labelled(answer, row.get("topic", _file_name(phase)), phase), phase, tokenizer):
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


def _file_name(phase: SftPhase) -> str:
    """Return the name, without its ending, of the files of a table's rows: the topic of rows that have none."""
    return phase.data.source.partition(":")[2].partition("@")[0].replace("/", "-")


def _labelled(answer: str, topic: str, phase: SftPhase) -> str:
    """Return an answer with the line that it will start with (chat_rows)."""
    return f"{label_line(topic, False)}\n{answer}" if phase.data.label_line else answer


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
