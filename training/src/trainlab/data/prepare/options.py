"""The options of `trainlab prepare`, checked; used by every step."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlab.data.prepare import clean
from trainlab.errors import UserError


@dataclass(frozen=True)
class Options:
    """Settings of one preparation; lengths in tokens or characters, `near` a Jaccard similarity (0 turns it off)."""

    tokenizer: Path
    column: str | None = None
    document_start: str | None = None
    block_length: int = 1024
    min_chars: int = 50
    without: tuple[str, ...] = ()
    near: float = 0.8
    skip_bad: int = 0
    shard_chars: int = 1 << 26

    def check(self) -> None:
        """Raise UserError that names the option, its value and the allowed values."""
        for name, least in (("block_length", 2), ("min_chars", 1), ("skip_bad", 0), ("shard_chars", 1)):
            if getattr(self, name) < least:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be {least} or more")
        if self.near and not 0.3 <= self.near <= 1:
            raise UserError(f"--near {self.near}: must be 0 (off) or from 0.3 to 1; 0.8 is usual")
        for name in self.without:
            if name not in clean.RULES:
                raise UserError(f"--without {name}: no such rule; the rules are {', '.join(clean.RULES)}")
        try:
            re.compile(self.document_start or "")
        except re.error as error:
            raise UserError(f"--document-start {self.document_start!r}: not a regular expression ({error})") from None

    def identity(self) -> dict[str, Any]:
        """Return what the result depends on; without `skip_bad`, so that a stopped run can resume with another one."""
        return {
            "column": self.column,
            "document_start": self.document_start,
            "block_length": self.block_length,
            "min_chars": self.min_chars,
            "without": sorted(self.without),
            "near": self.near,
            "shard_chars": self.shard_chars,
        }
