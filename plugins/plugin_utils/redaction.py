"""Removes secrets from what is written down for others: by the name of a key, and by form. When in doubt, it removes."""

from __future__ import annotations

import re
from typing import Any

REMOVED = "REMOVED"
NAMES = r"token|passw|pwd|secret|auth|dockerc|credential|cookie|(?:api|access|private)[_-]?key"
KEY = re.compile(rf"{NAMES}|_KEY$", re.IGNORECASE)
PEM = r"-----{}[A-Z0-9 ]+-----"
WHOLE = (
    # a log may begin or end within a block
    re.compile(rf"\A(?:(?!{PEM.format('BEGIN ')}).)*?{PEM.format('END ')}", re.DOTALL),
    re.compile(rf"{PEM.format('BEGIN ')}.*?(?:{PEM.format('END ')}|\Z)", re.DOTALL),
    re.compile(r"LS0tLS1CRUdJTi[\w+/=-]*"),  # the same in base64
    re.compile(r"\beyJ[\w+/=-]{8,}(?:\.[\w=-]+)*"),  # a JWT, and JSON in base64: a pull secret
    re.compile(r"\bsha256~[\w-]+"),  # OpenShift's own tokens
    # of model hubs, NVIDIA, GitHub, GitLab, Slack and AWS
    re.compile(r"\b(?:hf_|nvapi-|gh[oprsu]_|github_pat_|glpat-|xox[a-z]-)[\w-]{8,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"),
)
IN_PLACE = (
    re.compile(r"(?P<before>\w://)[^/\s\"']+(?P<after>@)"),  # the user of a URL
    re.compile(
        # numbers of tokens are what training reports
        r"(?<![\w.-])(?!\w*tokens[\"']?\s*[=:]\s*[\d.]+\b)"
        rf"(?P<before>(?:[\w.-]*(?:{NAMES})[\w.-]*|\w+_KEY)\\?[\"']?\s*[=:]\s*)"
        r"(?:\\\"(?:(?!\\\").)*|\"[^\"]*|'[^']*|(?:(?:Bearer|Basic)\s+)?[^\s\"'\\]+)(?P<after>)",
        re.IGNORECASE,
    ),
    re.compile(rf"(?P<before>--[\w-]*(?:{NAMES})[\w-]*\s+)[^\s-]\S*(?P<after>)", re.IGNORECASE),
    re.compile(r"(?P<before>\b(?:Bearer|Basic)\s+)[\w.~+/=-]{8,}(?P<after>)"),
)


def clean_text(text: str) -> str:
    """Return the text without anything that has the form of a secret."""
    for form in WHOLE:
        text = form.sub(REMOVED, text)
    for form in IN_PLACE:
        text = form.sub(rf"\g<before>{REMOVED}\g<after>", text)
    return text


def clean(thing: Any) -> Any:
    """Return data of the API without secrets; what is below a key that names one goes as a whole."""
    if isinstance(thing, dict):
        secret = "value" in thing and KEY.search(str(thing.get("name", "")))  # an environment variable
        return {
            key: REMOVED if _told(value) and (KEY.search(str(key)) or (secret and key == "value")) else clean(value)
            for key, value in thing.items()
        }
    if isinstance(thing, list):
        return [clean(one) for one in thing]
    return clean_text(thing) if isinstance(thing, str) else thing


def _told(value: Any) -> bool:
    """Tell whether a value may be a secret: an empty one and a switch are none."""
    return not isinstance(value, bool) and bool(value)
