"""`trainlab prepare`: options, one line of result. The CLI calls `add_arguments` and `from_args`."""

import argparse
from dataclasses import fields
from pathlib import Path

from trainlab.data.prepare.clean import RULES
from trainlab.data.prepare.options import Options
from trainlab.progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `trainlab prepare`."""
    parser.epilog = (
        "Example: trainlab prepare corpus/ --out blocks --tokenizer models/NAME. report.json in --out counts what was "
        "dropped and why. A stopped run resumes when the same command is run again."
    )
    parser.add_argument(
        "source", nargs="+", help=".jsonl, .json, .csv, .txt, .parquet, a folder of them, or pydoc:topics"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of blocks, index and report")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        required=True,
        metavar="DIR",
        help="model folder with the tokenizer; its EOS ends each document",
    )
    parser.add_argument("--column", metavar="NAME", help="column with the text [text, or the only text column]")
    parser.add_argument(
        "--document-start", metavar="REGEX", help="lines of a .txt that start a document; ^$: empty ones"
    )
    for option, text in (
        ("block-length", "tokens per block, at most the positions of the model"),
        ("min-chars", "drop documents with fewer characters"),
        ("skip-bad", "skip and count at most this many unusable rows; one more is an error"),
        ("shard-chars", "characters per shard: the most that is lost when killed"),
    ):
        default = getattr(Options, option.replace("-", "_"))
        parser.add_argument(f"--{option}", type=int, default=default, metavar="N", help=f"{text} (default %(default)s)")
    parser.add_argument(
        "--near",
        type=float,
        default=Options.near,
        metavar="J",
        help="drop a document whose word 5-grams are this similar to an earlier one (Jaccard); 0: only equal ones "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="RULE",
        help=f"turn off this rule: {', '.join(RULES)}; may be repeated",
    )


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
