"""Reading one values file (YAML, or the JSON of a ConfigMap) with errors that name file and line; used by loading."""

import re
import sys
from pathlib import Path
from typing import Any

import yaml

from trainlab.errors import UserError

STDIN = Path("-")
"""As a file: standard input, so that `helm get values ... -o yaml | trainlab plan -` needs no file."""


class _Loader(yaml.SafeLoader):
    """YAML as Helm reads it: 3e-4 is a number, a date stays text, a key given twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse duplicate keys, which PyYAML would let win silently."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} is given twice; keep one", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


# PyYAML follows YAML 1.1, where 3e-4 (no dot) is text; Helm's parser reads a number.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if tag != "tag:yaml.org,2002:timestamp"]
    for first, rules in _Loader.yaml_implicit_resolvers.items()
}


def named(path: Path) -> str:
    """Return what messages call a file."""
    return "standard input" if path == STDIN else str(path)


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the top-level mapping of a YAML or JSON file, of standard input for STDIN; raises UserError with file and line."""
    name = named(path)
    try:
        text = sys.stdin.buffer.read().decode("utf-8") if path == STDIN else path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{name}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{name}: is a folder; name a values file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror}") from None
    try:
        value = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{name}{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{name}: not valid YAML: {error}") from None
    if value is None:
        raise UserError(f"{name}: is empty; it needs a block `phase:`")
    if not isinstance(value, dict):
        raise UserError(f"{name}: holds a {type(value).__name__}; it must be a mapping with the block `phase:`")
    return value
