"""`trainlab watch`: the progress of a run as one updating line, from its directory or its port."""

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from trainlab.errors import UserError
from trainlab.run.tracker import FILE

WIDTH, PATIENCE = 24, 5  # characters of the bar; consecutive failed reads before giving up
Page = dict[str, Any]


def watch(source: str, every: float, once: bool, as_json: bool) -> int:
    """Show the progress of `source`, a run directory or a URL, until the run ends; return 0.

    UserError: nothing is there at the first read, or the run disappeared before its end.
    """
    last: Page = look(source)
    misses = 0
    while True:
        show(last, as_json)
        if once or last["progressPercentage"] == 100:
            break
        time.sleep(every)
        try:
            last, misses = look(source), 0
        except UserError:
            misses += 1
            if misses == PATIENCE:
                sys.stderr.write("\n")
                if last["totalSteps"] and last["currentStep"] == last["totalSteps"]:
                    break  # the pod ended between two reads, after its last step
                raise
    if sys.stdout.isatty():
        print()
    return 0


def look(source: str) -> Page:
    """Return the page of a run directory or URL. UserError: not there, or not a progress page."""
    try:
        if source.startswith(("http://", "https://")):
            with urllib.request.urlopen(f"{source.rstrip('/')}/metrics", timeout=5) as answer:
                page = json.load(answer)
        else:
            page = json.loads((Path(source) / FILE).read_text(encoding="utf-8"))
        if "progressPercentage" not in page:
            raise ValueError("no progressPercentage in it")
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise UserError(
            f"{source}: no progress there: {reason}; name the directory of a started run, or the address of "
            "its first pod: kubectl port-forward POD 28080, then trainlab watch http://localhost:28080"
        ) from None
    return dict(page)


def show(page: Page, as_json: bool) -> None:
    """Print the page: as JSON lines, as a bar on a terminal, else as a line each time."""
    if as_json:
        print(json.dumps(page), flush=True)
    elif sys.stdout.isatty():
        print(f"\r\033[K{line(page)}", end="", flush=True)
    else:
        print(line(page), flush=True)


def line(page: Page) -> str:
    """Return one line: bar, percentage, then the current activity with its numbers.

    >>> line({"progressPercentage": 50, "activity": "step 5/10 loss 2.000 eta 9 s", "evalMetrics": {"loss": 2.5}})
    '[############............]  50 %  step 5/10 loss 2.000 eta 9 s, validation loss 2.500'
    """
    done = page["progressPercentage"] * WIDTH // 100
    extra = "".join(f", validation {name} {value:.3f}" for name, value in (page.get("evalMetrics") or {}).items())
    bar = "#" * done + "." * (WIDTH - done)
    return f"[{bar}] {page['progressPercentage']:3d} %  {page.get('activity', '')}{extra}"
