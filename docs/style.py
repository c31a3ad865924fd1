"""Checks README, docs/ and the names in our Python code against docs/reference/style.md; `make lint` calls it.

Prints each finding as FILE:LINE: sentence; exits with 1 if there is any.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FOLDERS = ("start", "present", "operate", "learn/lessons")
"""Pages to act by."""
EXPLAINED = ("learn", "reference")
"""Their words are checked and their sentences not; evidence is a record, and neither is."""
EXCEPT = ("style.md", "compatibility.md", "cli.md", "sizing.md", "troubleshooting.md")
"""The table of the words themselves; generated."""
MAX_WORDS = 32
"""Words of a sentence."""
ENDS = r"(?=[.,;:)!?]|$| (?:that|of|with|without|is|in|and|or|from|which|who|to|for|than)\b)"
WORDS = {
    r"\bbeside\b": "say `next to`, `at the same time` or `in addition to` instead of `beside`",
    r"\b[Tt]old\b": "say `reported`, `said` or `printed` instead of `told`",
    r"\b(?:is|are|was|were|be|been|already|not) there\b(?! (?:a|an|any|no|another)\b)": "say `exists` or `is present` instead of `is there`",
    r"\b(?:another|this|that|an? \w+|the \w+|each|every|no|own|its|their|your|our) one\b"
    + ENDS: "name the thing instead of `one`",
    r"\b(?:is|are) none\b": "say `does not exist` or `no ...` instead of `is none`",
    r"\bwhat (?:is|was|were|are) found\b": "say `the findings` instead of `what is found`",
    r"\b(?:somebody|someone) else's\b": "say whose it is instead of `somebody else's`",
    r"\bstruck\b": "say `hit by a fault` or `failed` instead of `struck`",
    r"\bin the place of\b": "say `instead of`",
    r"\bwaited out\b": "say `waits until`",
    r"\bwithout a way out\b": "say `disconnected` or `air-gapped`",
    r"\b(?:works? every time|always works?|never fails?|guaranteed?)\b": "say what was measured, with its number",
    r"\b[Ll]ook first\b$": "say `preflight`",
}
"""Words that take two readings, each with a plain one."""
SEARCHED = (
    *(
        "air-gapped",
        "attendee",
        "browser",
        "disconnected",
        "GPU",
        "Helm",
        "image",
        "kubeconfig",
        "kubectl",
        "Kueue",
        "laptop",
    ),
    *(
        "macOS",
        "NetworkPolicy",
        "operators",
        "permissions",
        "phone",
        "preflight",
        "proxy",
        "quota",
        "reboot",
        "registry",
    ),
    *("remove", "rights", "rollback", "ssh", "storage", "upgrade", "volumes"),
)
"""What people search for: each is in a heading."""
CODE = ("plugins", "cluster", "training/src", "bench", "docs")
"""Folders whose names are checked; tests have names of their own."""
NAMES = {
    "beside": "what it is, e.g. children, others",
    "found": "what was found, e.g. items, path, match, findings",
    "given": "what it is, e.g. argument, override, options, value",
    "one": "the item, e.g. pod, row, document, item",
    "said": "what it is, e.g. output, reasons, message",
    "there": "what exists, e.g. existing, current, present",
    "thing": "the kind of item, e.g. resource, manifest, data",
    "things": "the kind of items, e.g. resources, candidates",
    "told": "what was said, e.g. reason, text, states",
    "whole": "what it is the whole of, e.g. digest, text, complete",
}
"""Words of which no name in CODE consists or has a part, each with what the name is to say."""


def pages(*folders: str) -> list[Path]:
    """Return the pages of these folders."""
    paths = (page for folder in folders for page in sorted((DOCS / folder).glob("*.md")))
    return [page for page in paths if page.name not in EXCEPT]


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each paragraph, list item, table cell and heading; no blocks of code, quotes of code or targets."""
    fenced, start, lines = False, 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        begins = fence or fenced or not line.strip() or re.match(r"\s*([-*] |[0-9]+\. |\||#|<)", line)
        if begins and lines:
            yield start, " ".join(lines)
            lines = []
        if fence:
            fenced = not fenced
        elif not fenced and line.startswith("|"):
            yield from ((number, cell) for cell in map(plain, re.split(r"(?<!\\)\|", line)) if cell)
        elif not fenced and line.strip() and not line.startswith("<"):
            start = start if lines else number
            lines.append(plain(line))


def plain(line: str) -> str:
    """Return a line with links as their text, code as one word, and without marks."""
    line = re.sub(r"\]\([^)]*\)", "", re.sub(r"`[^`]*`", "Code", line)).replace("[", "")
    return re.sub(r"^\s*(?:#+|[-*]|[0-9]+\.) |\*\*", "", line).strip()


def sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph; a colon or semicolon ends none."""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z\"(*])", text)


def findings(text: str, lengths: bool = True) -> Iterator[tuple[int, str]]:
    """Yield (line, what is wrong and what to do) for the text of a page; `lengths`: of its sentences, too."""
    for line, paragraph in paragraphs(text):
        for pattern, remedy in WORDS.items():
            if match := re.search(pattern, paragraph):
                yield line, f"`{match[0]}`: {remedy}"
        for sentence in sentences(paragraph) if lengths else ():
            if (count := len(re.findall(r"\w\S*", sentence))) > MAX_WORDS:
                yield line, f"a sentence of {count} words, more than {MAX_WORDS}: make two: {sentence[:60]} ..."


def empty_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name and remedy) for each variable, argument, attribute, function and class of Python code named by a word of NAMES."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword | ast.alias) or isinstance(getattr(node, "ctx", None), ast.Load):
            continue  # a use of the name, which may be another package's
        name = next(
            (value for key in ("name", "arg", "id", "attr") if isinstance(value := getattr(node, key, None), str)), ""
        )
        for word in name.split("_"):
            if word in NAMES:
                yield node.lineno, f"`{name}`: name {NAMES[word]}"


def not_in_headings(texts: list[str]) -> list[str]:
    """Return the words of SEARCHED that are in no heading of these pages."""
    headings = "\n".join(line for text in texts for line in text.splitlines() if line.startswith("#")).lower()
    return [word for word in SEARCHED if word.lower() not in headings]


def main() -> int:
    """Print what is wrong; return the exit code."""
    acted = [ROOT / "README.md", *pages(*FOLDERS)]
    texts = {page: page.read_text(encoding="utf-8") for page in [*acted, *pages(*EXPLAINED)]}
    wrong = [
        f"{page.relative_to(ROOT)}:{line}: {what}"
        for page, text in texts.items()
        for line, what in findings(text, page in acted)
    ]
    programs = [path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))]
    wrong += [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in programs
        for line, what in empty_names(path.read_text(encoding="utf-8"))
    ]
    wrong += [f"docs: no heading has {word!r}: people search for it" for word in not_in_headings(list(texts.values()))]
    print("\n".join(wrong) or f"style: {len(texts)} pages, {len(programs)} programs, nothing to change")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
