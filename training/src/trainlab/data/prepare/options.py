"""`trainlab prepare`: its options, checked, and one line of result; the steps are in pipeline.py."""

import argparse
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from trainlab.data.prepare import clean
from trainlab.errors import UserError
from trainlab.progress import Progress


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
        own = {**asdict(self), "without": sorted(self.without)}
        return {key: value for key, value in own.items() if key not in ("tokenizer", "skip_bad")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `trainlab prepare`."""
    parser.epilog = (
        "Example: trainlab prepare corpus/ --out blocks --tokenizer models/NAME. report.json in --out counts what was "
        "dropped and why. A stopped run resumes when the same command is run again."
    )
    what = ".jsonl, .json, .csv, .txt, .parquet, a folder of them, or pydoc:topics"
    parser.add_argument("source", nargs="+", help=what)
    for option, kind, metavar, text in (
        ("out", Path, "DIR", "folder of blocks, index and report"),
        ("tokenizer", Path, "DIR", "model folder with the tokenizer; its EOS ends each document"),
        ("column", str, "NAME", "column with the text [text, or the only text column]"),
        ("document-start", str, "REGEX", "lines of a .txt that start a document; ^$: empty ones"),
        ("block-length", int, "N", "tokens per block, at most the positions of the model"),
        ("min-chars", int, "N", "drop documents with fewer characters"),
        ("skip-bad", int, "N", "skip and count at most this many unusable rows; one more is an error"),
        ("shard-chars", int, "N", "characters per shard: the most that is lost when killed"),
        (
            *("near", float, "J"),
            "drop a document whose word 5-grams are this similar to an earlier one (Jaccard); 0: only equal ones",
        ),
    ):
        default = getattr(Options, option.replace("-", "_"), None)
        shown = " (default %(default)s)" if default is not None else ""
        parser.add_argument(
            f"--{option}",
            type=kind,
            required=option in ("out", "tokenizer"),
            default=default,
            metavar=metavar,
            help=text + shown,
        )
    rules = f"turn off this rule: {', '.join(clean.RULES)}; may be repeated"
    parser.add_argument("--without", action="append", default=[], metavar="RULE", help=rules)


def from_args(args: argparse.Namespace) -> int:
    """Prepare as the parsed arguments say and print a summary."""
    from trainlab.data.prepare.pipeline import prepare

    values = {field.name: getattr(args, field.name) for field in fields(Options)}
    with Progress(speaks=True) as progress:
        report = prepare(args.source, args.out, Options(**{**values, "without": tuple(args.without)}), progress)
    documents, tokens = report["documents"], report["tokens"]
    dropped = ", ".join(f"{name} {count}" for name, count in documents["dropped"].items()) or "none"
    print(
        f"{args.out}: {documents['kept']} of {documents['read']} documents kept (bad {documents['bad']}; dropped: "
        f"{dropped}; duplicates: exact {documents['exact_duplicates']}, near {documents['near_duplicates']}), "
        f"{tokens['made']} tokens, {report['blocks']} blocks, {tokens['remainder']} tokens over"
    )
    return 0
