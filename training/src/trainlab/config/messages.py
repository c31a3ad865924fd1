"""One sentence per pydantic validation error: key, value, what it must be, what to do; used by loading and schema."""

import difflib
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trainlab.config import PHASES, Values

BOUNDS = {
    "greater_than_equal": ("ge", "must be {} or more"),
    "greater_than": ("gt", "must be more than {}"),
    "less_than_equal": ("le", "must be {} or less"),
    "less_than": ("lt", "must be less than {}"),
}
TYPES = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "string": "text; put it in quotes",
    "tuple": "a list",
    "dict": "a mapping",
    "model": "a mapping",
}


def sentences(item: Mapping[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """Return (key path, sentence) for one entry of `ValidationError.errors()`; of rules over several keys there may be several."""
    if item["type"] != "value_error":
        return [_sentence(item)]
    lines = str(item["ctx"]["error"]).splitlines()  # each begins with its key
    return [(tuple(line.split(":", maxsplit=1)[0].split(".")), line) for line in lines]


def _sentence(item: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    at, recipe = _without_recipe(item["loc"])
    # without the parts that pydantic adds to a path inside `X | None`
    key = tuple(str(part) for part in at if str(part) not in ("int", "str", "float") and "[" not in str(part))
    kind, context, value = item["type"], item.get("ctx") or {}, _shown(item.get("input"))
    if kind == "union_tag_not_found":
        return (*key, "recipe"), f"{'.'.join(key)}.recipe: missing; add it, one of {', '.join(PHASES)}"
    if kind == "union_tag_invalid":
        return (*key, "recipe"), f"{'.'.join(key)}.recipe is {_shown(context['tag'])}: {choice(tuple(PHASES))}"
    name, field = ".".join(key), _field(key, recipe)
    if kind == "missing":
        return key, f"{name}: missing; add it{f'; {meaning(field)}' if meaning(field) else ''}"
    if kind == "extra_forbidden":
        return key, f"{name}: {_unknown(key, recipe)}"
    if kind in BOUNDS:
        bound = context[BOUNDS[kind][0]]
        return key, f"{name} is {value}: {BOUNDS[kind][1].format(bound)}; {_remedy(field)}"
    if kind == "literal_error":
        return key, f"{name} is {value}: {choice(options(field))}"
    if kind == "string_pattern_mismatch":
        return key, f"{name} is {value}: {wrong_form(field, context['pattern'])}"
    family = kind.split("_")[0]
    if family in TYPES and (kind.endswith(("_type", "_parsing", "_from_float"))):
        return key, f"{name} is {value}: must be {TYPES[family]}; {_unquoted(item)}{_remedy(field)}"
    return key, f"{name} is {value}: {item['msg'][0].lower()}{item['msg'][1:]}; {_remedy(field)}"


def _unquoted(item: Mapping[str, Any]) -> str:
    """Return the remedy for a number that is text: in quotes in a file, or given by Helm's --set."""
    try:
        float(item.get("input") if isinstance(item.get("input"), str) else "")  # type: ignore[arg-type]
    except ValueError:
        return ""
    return "write it without quotes in a file, and with --set-json for Helm; "


def _remedy(field: FieldInfo | None) -> str:
    """Return the remedy: the default if there is one, and what the key means."""
    if field is None:
        return "correct it"
    default = field.default
    plain = isinstance(default, (bool, int, float, str)) and default != ""
    hint = f"the default is {default}" if plain else "correct it"
    return f"{hint} ({meaning(field)})" if meaning(field) else hint


def meaning(field: FieldInfo | None) -> str:
    """Return what a key means, in one line; empty where nothing says so."""
    return " ".join((field.description or "").split()) if field else ""


def choice(options: Sequence[str]) -> str:
    """Return what to set where only these values are allowed."""
    *others, last = options
    quoted = ", in quotes" if {"on", "off"} & set(options) else ""  # without, YAML reads them as true and false
    return (
        f"must be one of {', '.join(others)} or {last}; set one of these{quoted}"
        if others
        else f"must be {last}; set it to that"
    )


def options(field: FieldInfo | None) -> tuple[str, ...]:
    """Return the values that a Literal field allows; empty for any other field."""
    if field is None:
        return ()
    parts = (field.annotation, *get_args(field.annotation))
    return next((tuple(map(str, get_args(part))) for part in parts if get_origin(part) is Literal), ())


def wrong_form(field: FieldInfo | None, pattern: str) -> str:
    """Return which text is valid: in words if the description names the formats, else as the pattern."""
    words = meaning(field)
    return f"has the wrong format; {f'write it as {words}' if ':' in words else f'it must match {pattern} ({words})'}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _without_recipe(at: Sequence[Any]) -> tuple[tuple[Any, ...], str | None]:
    """Return pydantic's path without the recipe that it inserts below `phase`, and that recipe."""
    if len(at) > 1 and at[0] == "phase" and at[1] in PHASES:
        return (at[0], *at[2:]), at[1]
    return tuple(at), None


def _unknown(key: tuple[str, ...], recipe: str | None) -> str:
    """Return why a key is refused: other recipes read it, or none does."""
    phases = PHASES if key[0] == "phase" else ()
    if others := sorted(name for name in phases if key[-1] in _keys_at(key[:-1], name)):
        return f"recipe {recipe} does not read it, only {', '.join(others)}; remove it"
    known = _keys_at(key[:-1], recipe)
    close = difflib.get_close_matches(key[-1], list(known), n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"unknown key; known keys: {', '.join(sorted(known))}{hint}"


def _keys_at(path: tuple[str, ...], recipe: str | None) -> Mapping[str, FieldInfo]:
    """Return the fields, by alias, of the block at a path; none if there is no block."""
    fields = keys_of(Values)
    for place, part in enumerate(path):
        block = block_of(fields[part]) if part in fields else None
        if (place, part) == (0, "phase"):
            block = PHASES[recipe or next(iter(PHASES))]
        fields = keys_of(block) if block else {}
    return fields


def _field(key: tuple[str, ...], recipe: str | None) -> FieldInfo | None:
    """Return the field that a path (with aliases) names, or the last one above a path into a free mapping or a list."""
    for length in range(len(key), 0, -1):
        if fields := _keys_at(key[: length - 1], recipe):
            return fields.get(key[length - 1])
    return None


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a block by the name that a values file uses."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def block_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model class of a field that holds a block of keys, None for a plain value."""
    annotation = field.annotation
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    for option in parts:
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None
