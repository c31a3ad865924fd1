"""Rows split into a training and a held-out part; used by hub_rows.py.

A row is assigned by the SHA-256 of its verse (or question): the smallest digests are held out, and both parts are
sorted by digest. So equal verses (or questions, whatever their case and punctuation) are never on both sides, a row's
place does not depend on the other rows, and the first N rows are a fair sample. The rows are in Arrow files, which
`datasets` maps: memory holds the digests, not the texts.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from trainlab.data.hub.usable import Row
from trainlab.data.scripts import normal

SORTED_BY = ("group", "whole", "items")  # by the items too: of equal rows the same one is kept, whatever their order


def deal(rows: Iterable[Row], key: str, work: Path, target: Path, name: str, heldout: float) -> Counter[str]:
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
    order = compute.sort_indices(table.data.table, sort_keys=[(name, "ascending") for name in SORTED_BY])
    with ExitStack() as stack:
        streams = {}
        for part in ("train", "heldout"):
            (target / part).mkdir()
            path = target / part / f"{name}.jsonl"
            streams[part] = stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
        for found in _unique(table.select(order), counts):
            part = "heldout" if int(found["group"][:16], 16) < heldout * 2**64 else "train"
            row = json.loads(found["row"])
            line = {"id": found["whole"][:20], "group": found["group"][:20], **row}
            print(json.dumps(line if "verse" in row else {**line, "facts": []}, ensure_ascii=False), file=streams[part])
            counts[part] += 1
    return counts


def _entry(row: Row, key: str) -> dict[str, str]:
    """Return a row's digests; its `form` does not decide where it belongs."""
    whole = _digest(*(text for name, text in row.items() if name != "form"))
    items = json.dumps(sorted(row.items()))
    group = normal(row[key]) if key == "question" else row[key]
    return {"group": _digest(group), "whole": whole, "items": items, "row": json.dumps(row)}


def _unique(entries: Iterable[dict[str, Any]], counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield the first of each group of equal entries."""
    for _, same in groupby(entries, key=itemgetter("whole")):
        first, *others = same
        counts["equal"] += len(others)
        yield first


def _digest(*texts: str) -> str:
    """Return the digest of texts as hex, the same for texts that differ only in case or spacing."""
    regular = "\0".join(" ".join(text.split()).casefold() for text in texts)
    return hashlib.sha256(regular.encode()).hexdigest()
