"""From values files and environment to checked `Values`; every mistake becomes one sentence with file, key and remedy.

Called by the CLI (`check`, `run`, `fetch`, `serve`) and by nothing that needs torch.
"""

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainlab.config import NOT_TRAINING, Phase, Values, preset
from trainlab.config.messages import sentences
from trainlab.config.rules import OVERRIDES
from trainlab.config.yamlfile import named, read_mapping
from trainlab.errors import UserError

Path_ = tuple[str, ...]
PHASE_FILE = "phase.json"
"""As the chart gives a phase to its pods, and a run keeps it: without the site."""


class ConfigErrors(UserError):
    """Several mistakes in values files; `problems` holds one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


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
