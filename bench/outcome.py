"""How every bench ends: its result as JSON, its floors, and the exit code that says whether it held them."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every bench has."""
    made = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the result here")
    made.add_argument(
        "--smoke",
        action="store_true",
        help="tiny sizes: what must be equal is checked, floors are not (seconds in all)",
    )
    return made


def end(
    args: argparse.Namespace,
    result: dict[str, Any],
    *,
    equal: bool,
    at_least: Mapping[str, tuple[float, float]] | None = None,
    at_most: Mapping[str, tuple[float, float]] | None = None,
) -> int:
    """Print and write `result`; return 0 if both sides gave the same and each (measured, bound) is kept, else 1.

    Times of tiny inputs say nothing, so a smoke has no floors.
    """
    floors = [
        {"what": what, "measured": round(measured, 2), "bound": f"{sign} {bound:g}", "held": held}
        for sign, bounds in ((">=", at_least), ("<=", at_most))
        for what, (measured, bound) in (bounds or {}).items()
        for held in [measured >= bound if sign == ">=" else measured <= bound]
    ]
    result |= {"equal": equal, "floors": [] if args.smoke else floors}
    text = json.dumps(result, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n", encoding="utf-8")
    return 0 if equal and all(floor["held"] for floor in result["floors"]) else 1
