"""`trainlab ask`: ask the served models a question, show the answers side by side in the terminal; called by the CLI."""

import shutil
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest

from trainlab.serve import client
from trainlab.serve.client import Answer

NARROW = 72  # below this many columns answers are stacked


def ask(question: str, url: str, model: str | None = None) -> int:
    """Ask `model`, or every model that `url` serves, and print what they say; return 0. Raises UserError."""
    names = [model] if model else client.models(url)
    with ThreadPoolExecutor(len(names)) as threads:
        answers = list(threads.map(lambda name: client.chat(url, name, question), names))
    print(render(question, answers, shutil.get_terminal_size((100, 24)).columns))
    return 0


def render(question: str, answers: Sequence[Answer], width: int) -> str:
    """Return question and answers as text of at most `width` columns."""
    head = textwrap.fill(question, width)
    titles = [f"{a.model} ({a.tokens} tokens)" if a.tokens else a.model for a in answers]
    if len(answers) == 1 or width < NARROW:
        blocks = [f"{title}\n{_wrapped(a.text, width)}" for title, a in zip(titles, answers, strict=True)]
        return "\n\n".join([head, *blocks])
    column = (width - 3 * (len(answers) - 1)) // len(answers)
    cells = [
        [title, "-" * column, *_wrapped(a.text, column).splitlines()] for title, a in zip(titles, answers, strict=True)
    ]
    rows = zip_longest(*cells, fillvalue="")
    return "\n".join([head, "", *(" | ".join(cell.ljust(column) for cell in row).rstrip() for row in rows)])


def _wrapped(text: str, width: int) -> str:
    """Return `text` in lines of `width`; its own line breaks stay, control characters (terminal codes) do not."""
    clean = "".join(c for c in text if c == "\n" or c.isprintable())
    return "\n".join(textwrap.fill(line, width) for line in clean.splitlines()) or "(empty answer)"
