"""Data without Ansible's own types, and as YAML of which every reader makes the same: one place for the plugins and the roles."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

SAFE = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""What some reader of YAML takes for something else than text."""


class _Dumper(yaml.SafeDumper):
    """Quotes all text but plain words: PyYAML leaves 1e3 and 0o17 bare, which are numbers to Helm."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    bare = SAFE.fullmatch(value) and value.lower() not in WORDS
    block = "\n" in value and value.isascii()
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if bare else "|" if block else '"')


_Dumper.add_representer(str, _text)


def plain(value: Any) -> Any:
    """Return the same data as plain Python types, decrypted: YAML and JSON writers refuse Ansible's own, or write ciphertext."""
    return json.loads(json.dumps(value, default=str))


def to_yaml(value: Any) -> str:
    """Return the data as YAML in block style, keys in their order, without a line feed at its end."""
    return yaml.dump(plain(value), Dumper=_Dumper, sort_keys=False, width=10**6, allow_unicode=True).rstrip("\n")
