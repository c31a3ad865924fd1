"""Rows dealt out to a part that trains and one that is held out, in bounded memory; used by rows.py.

A row goes by the SHA-256 of its verse (or question): the smallest digests are held out, and both parts stand in the order
of the digests. So equal verses are never on both sides, a row's place does not depend on the other rows, and the first N
rows are a fair draw. Rows wait in 256 files by the first byte of the digest, and memory holds one of these.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from trainlab.hub.usable import Row

BUCKETS = 256


class Parts:
    """Takes rows while it is open; `deal` then writes the parts."""

    def __init__(self, folder: Path, key: str) -> None:
        """`key` is what may not be on both sides: the verse, or the question."""
        self._folder, self._key = folder, key
        self._files = ExitStack()
        folder.mkdir()
        names = [folder / f"{i:02x}" for i in range(BUCKETS)]
        self._streams = [self._files.enter_context(name.open("w", encoding="utf-8")) for name in names]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.close()

    def add(self, row: Row) -> None:
        """Take a row; its `form` says nothing about where it belongs."""
        group = _digest(row[self._key])
        whole = _digest(*(text for key, text in row.items() if key != "form"))
        print(json.dumps([group, whole, row], ensure_ascii=False), file=self._streams[int(group[:2], 16)])

    def deal(self, target: Path, name: str, heldout: float, counts: Counter[str]) -> None:
        """Write TARGET/train/NAME.jsonl and TARGET/heldout/NAME.jsonl; `heldout` is a share, `counts` learns the numbers."""
        with ExitStack() as stack:
            streams = {}
            for part in ("train", "heldout"):
                (target / part).mkdir()
                path = target / part / f"{name}.jsonl"
                streams[part] = stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
            for group, whole, row in self._unique(counts):
                part = "heldout" if int(group[:16], 16) < heldout * 2**64 else "train"
                line = {"id": whole[:20], "group": group[:20], **row, **({} if "verse" in row else {"facts": []})}
                print(json.dumps(line, ensure_ascii=False), file=streams[part])
                counts[part] += 1

    def _unique(self, counts: Counter[str]) -> Iterator[tuple[str, str, Row]]:
        for bucket in range(BUCKETS):
            last = ""
            path = self._folder / f"{bucket:02x}"
            # By the row too: of equal ones the same stays, whatever their order was.
            with path.open(encoding="utf-8") as stream:
                found = sorted(
                    map(json.loads, stream), key=lambda entry: (entry[0], entry[1], sorted(entry[2].items()))
                )
            path.unlink()
            for group, whole, row in found:
                if whole == last:
                    counts["equal"] += 1
                else:
                    yield group, whole, row
                last = whole


def _digest(*texts: str) -> str:
    """Return the digest of texts as hex, the same for those that differ in case or blanks only."""
    regular = "\0".join(" ".join(text.split()).casefold() for text in texts)
    return hashlib.sha256(regular.encode()).hexdigest()
