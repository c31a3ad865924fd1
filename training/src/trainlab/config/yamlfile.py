"""Reading one values file (YAML, or the JSON of a ConfigMap) with errors that name file and line; used by loading."""

import math
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from trainlab.errors import UserError

STDIN = Path("-")
"""Standard input, so that `helm get values ... -o yaml | trainlab plan -` needs no file."""


MAX_VALUES = 100_000
"""Values of one file, counting an alias each time it is used."""


class _Loader(yaml.SafeLoader):
    """YAML as Helm reads it (sigs.k8s.io/yaml): 3e-4 is a number, 1:30 and a date stay text. A duplicate key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse duplicate keys, where PyYAML silently lets the last one win."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key that is not text; use text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} is given twice; keep one", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> Any:
        """Treat a number that does not fit a float64 as text, as Go does."""
        number = super().construct_yaml_float(node)
        return node.value if math.isinf(number) and "inf" not in node.value.lower() else number


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)
# PyYAML's own rules for these are YAML 1.1's, where 3e-4 (no dot) is text, 1:30 is 90 and a date is not text.
_NUMBERS = {
    "int": r"[-+]?(0b[01_]+|0[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)",
    "float": r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if tag.rpartition(":")[2] not in ("timestamp", "value", "int", "float")]
    for first, rules in _Loader.yaml_implicit_resolvers.items()
}
for _kind, _form in _NUMBERS.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"^({_form})$"), list("-+.0123456789"))


def named(path: Path) -> str:
    """Return the name of a file in messages."""
    return "standard input" if path == STDIN else str(path)


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the top-level mapping of a YAML or JSON file, or of STDIN; raises UserError with file and line."""
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
    except (
        ValueError,
        TypeError,
        RecursionError,
    ) as error:  # from PyYAML's constructors, and for values nested too deep
        raise UserError(f"{name}: not valid YAML: {error}") from None
    if value is None:  # for Helm too, an empty file changes nothing
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{name}: holds a {type(value).__name__}; it must be a mapping with the block `phase:`")
    content: dict[str, Any] = _plain(value, name, [], [])
    return content


def _plain(value: Any, name: str, above: list[int], count: list[None]) -> Any:
    """Return a value as JSON would carry it to Helm: 4.0 is 4, keys are text. Raises UserError for an alias that contains itself."""
    count.append(None)
    if id(value) in above or len(count) > MAX_VALUES:
        why = "an alias contains itself" if id(value) in above else f"its aliases make more than {MAX_VALUES} values"
        raise UserError(f"{name}: {why}; write the values out")
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {str(key): _plain(item, name, [*above, id(value)], count) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, name, [*above, id(value)], count) for item in value]
    return value
