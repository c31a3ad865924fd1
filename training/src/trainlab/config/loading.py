"""From values files and environment to checked `Values`; every mistake becomes one sentence with file, key and remedy.

YAML is read as Helm reads it, so that a file means the same in a pod and here. Nothing here needs torch.
"""

import argparse
import functools
import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from trainlab.config import NOT_TRAINING, Phase, Values, preset
from trainlab.config.messages import sentences
from trainlab.config.rules import OVERRIDES
from trainlab.errors import UserError

Path_ = tuple[str, ...]
PHASE_FILE = "phase.json"
"""As the chart gives a phase to its pods, and a run keeps it: without the site."""
STDIN = Path("-")
"""Standard input, so that `helm get values ... -o yaml | trainlab plan -` needs no file."""
MAX_VALUES = 100_000
"""Values of one file, counting an alias each time it is used."""


class ConfigErrors(UserError):
    """Several mistakes in values files; `problems` holds one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


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


def load_values(paths: Sequence[Path], env: Mapping[str, str] | None = None) -> Values:
    """Merge `paths` (later wins, lists are replaced, null means the default), apply `env`, check everything.

    The files that `preset:` stands for come first, whichever file names it. Raises ConfigErrors with all mistakes at once;
    each names the file (or variable) that set the key.
    """
    layers = [(named(path), read_mapping(path)) for path in paths]
    layers += [(f"environment variable {name}", _nested(key, value)) for name, key, value in _overrides(env or {})]
    merged, origin = _merged(layers)
    default = named(paths[0])
    if wrong := preset.mistake(merged.get("preset")):
        at = tuple(wrong.partition(":")[0].partition(" ")[0].split("."))
        raise ConfigErrors([f"{origin.get(at, default)}: {wrong}"])
    if below := preset.chosen(merged.get("preset")):
        merged, origin = _merged([*((str(path), read_mapping(path)) for path in below), *layers])

    merged.pop("global", None)  # Helm adds it to every chart's values
    # of a site that the chart has judged there is nothing in it
    context = {"elsewhere": "site."} if paths[0].name == PHASE_FILE and "site" not in merged else None
    try:
        return Values.model_validate_json(json.dumps(merged, default=str), strict=True, context=context, by_name=False)
    except ValidationError as error:
        raise ConfigErrors(_problems(error, origin, default)) from None


def of_command(args: argparse.Namespace) -> Values:
    """Return the values of a command line with FILE and -f; raises UserError for standard input, which a rank cannot read again."""
    paths = [args.file, *args.overlay]
    if STDIN in paths:
        raise UserError("FILE is -: only check and plan read standard input; save it to a file and pass that")
    return load_values(paths, os.environ)


def trained(phase: Phase) -> dict[str, Any]:
    """Return what of a phase trains and scores, nested as in JSON, without nulls: a run's identity."""
    content = phase.model_dump(mode="json", exclude_none=True)
    for key in NOT_TRAINING:
        *blocks, last = key.split(".")
        functools.reduce(dict.__getitem__, blocks, content).pop(last, None)
    return content


def leaves(block: Mapping[str, Any], above: str = "phase") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of all leaves; lists and empty sections are leaves."""
    for name, value in block.items():
        key = f"{above}.{name}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, key)
        else:
            yield key, value


def phase_hash(phase: Phase) -> str:
    """Return 8 hex digits that change with anything in the resolved phase that affects training.

    The digest of RFC 8785's canonical JSON, as Go's encoding/json (`toRawJson` in charts/trainjob) writes it.
    """
    import rfc8785

    content = rfc8785.dumps(trained(phase))
    for separator in ("\u2028", "\u2029"):  # the only characters that Go escapes and the RFC does not
        content = content.replace(separator.encode(), f"\\u{ord(separator):x}".encode())
    return hashlib.sha256(content).hexdigest()[:8]


def run_name(phase: Phase, env: Mapping[str, str]) -> str:
    """Return the name of the run: what the chart set in TRAINLAB_RUN, else phase name and hash.

    Raises UserError for a fixed name and a variable of OVERRIDES: two different runs would have that name.
    """
    fixed = env.get("TRAINLAB_RUN")
    if not fixed:
        return f"{phase.name}-{phase_hash(phase)}"
    for name, key in OVERRIDES.items():
        if env.get(name):
            raise UserError(
                f"environment variable {name}: would change what run {fixed} trains, not its name (TRAINLAB_RUN); "
                f"remove it, and set {key}"
            )
    return fixed


def used_overrides(env: Mapping[str, str], data_dir: Path, out: Path) -> dict[str, str]:
    """Return the override variables that took effect, for the manifest of a run in `out` on the data in `data_dir`."""
    folders = {"DATA_DIR": data_dir, "OUTPUT_DIR": out}
    return {name: env[name] for name in OVERRIDES if env.get(name)} | {
        name: env[name] for name, folder in folders.items() if env.get(name) and Path(env[name]) == folder
    }


def _overrides(env: Mapping[str, str]) -> list[tuple[str, Path_, Any]]:
    """Return (variable, key, value) of each override; text that is not a number stays text, and is then refused."""
    overrides: list[tuple[str, Path_, Any]] = []
    for name, key in OVERRIDES.items():
        if text := env.get(name, ""):
            try:
                value = json.loads(text)
            except ValueError:
                value = text
            overrides.append((name, tuple(key.split(".")), value))
    return overrides


def _nested(key: Path_, value: Any) -> dict[str, Any]:
    for part in reversed(key):
        value = {part: value}
    return dict(value)


def _merged(layers: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[dict[str, Any], dict[Path_, str]]:
    """Return the merge of (name, content) of files, and which of them set each key."""
    merged: dict[str, Any] = {}
    origin: dict[Path_, str] = {}
    for name, content in layers:
        _merge(merged, content, name, (), origin)
    return merged, origin


def _merge(base: dict[str, Any], over: Mapping[str, Any], name: str, at: Path_, origin: dict[Path_, str]) -> None:
    """Merge `over` into `base` and note in `origin` which file set what; null removes a key, as in Helm."""
    for key, value in over.items():
        here = (*at, str(key))
        origin[here] = name
        if value is None:
            base.pop(key, None)
        elif isinstance(value, Mapping):
            if not isinstance(base.get(key), dict):
                base[key] = {}
            _merge(base[key], value, name, here, origin)
        else:
            base[key] = value


def _problems(error: ValidationError, origin: Mapping[Path_, str], default: str) -> list[str]:
    """Return one sentence for each mistake that pydantic found, with the file that set the key."""
    problems: list[str] = []
    for item in error.errors():
        for key, text in sentences(item):
            above = (
                key[:length] for length in range(len(key), 0, -1)
            )  # a missing key has no origin: the block around it has
            problems.append(f"{next((origin[at] for at in above if at in origin), default)}: {text}")
    return problems


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


class _Loader(yaml.SafeLoader):
    """YAML as Helm reads it (sigs.k8s.io/yaml): 3e-4 is a number, 1:30 and a date stay text. A duplicate key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse duplicate keys, where PyYAML silently lets the last one win."""
        seen: set[str] = set()
        for key, __ in node.value:
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
