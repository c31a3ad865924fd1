"""One sentence per pydantic validation error: key, value, what it must be, what to do; used by loading and schema."""

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


def sentence(item: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Return (key path, sentence) for one entry of `ValidationError.errors()`."""
    at, recipe = _without_recipe(item["loc"])
    key = tuple(str(part) for part in at if not _is_union_tag(part))
    kind, context, value = item["type"], item.get("ctx") or {}, _shown(item.get("input"))
    if kind == "union_tag_not_found":
        return (*key, "recipe"), f"{'.'.join(key)}.recipe: missing; add it, one of {', '.join(PHASES)}"
    if kind == "union_tag_invalid":
        return (*key, "recipe"), f"{'.'.join(key)}.recipe is {_shown(context['tag'])}: {choice(tuple(PHASES))}"
    name, field = ".".join(key), _field(key, recipe)
    if kind == "missing":
        help_text = f"; {field.description}" if field and field.description else ""
        return key, f"{name}: missing; add it{help_text}"
    if kind == "value_error":  # a rule over several keys: its text starts with the key
        text = str(context["error"])
        return tuple(text.split(":", maxsplit=1)[0].split(".")), text
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
    return f"{hint} ({field.description})" if field.description else hint


def choice(options: Sequence[str]) -> str:
    """Return what to set where only these values are allowed."""
    *most, last = options
    return (
        f"must be one of {', '.join(most)} or {last}; set one of these" if most else f"must be {last}; set it to that"
    )


def options(field: FieldInfo | None) -> tuple[str, ...]:
    """Return the values that a Literal field allows; empty for any other field."""
    if field is None:
        return ()
    parts = (field.annotation, *get_args(field.annotation))
    return next((tuple(map(str, get_args(part))) for part in parts if get_origin(part) is Literal), ())


def wrong_form(field: FieldInfo | None, pattern: str) -> str:
    """Return which text is valid: in words if the description names the formats, else as the pattern."""
    words = field.description if field and field.description else ""
    return f"has the wrong format; {f'write it as {words}' if ':' in words else f'it must match {pattern} ({words})'}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _without_recipe(at: Sequence[Any]) -> tuple[tuple[Any, ...], str | None]:
    """Return pydantic's path without the recipe that it inserts below `phase`, and that recipe."""
    if len(at) > 1 and at[0] == "phase" and at[1] in PHASES:
        return (at[0], *at[2:]), at[1]
    return tuple(at), None


def _is_union_tag(part: Any) -> bool:
    """True for the parts that pydantic adds to a path inside `X | None`."""
    return isinstance(part, str) and (part in ("int", "str", "float") or "[" in part)


def _field(key: tuple[str, ...], recipe: str | None) -> FieldInfo | None:
    """Return the field that a path (with aliases) names, or the last one above a path into a free mapping."""
    model: type[BaseModel] | None = Values
    field: FieldInfo | None = None
    for place, part in enumerate(key):
        if model is None:
            return field
        fields = {info.alias or name: info for name, info in model.model_fields.items()}
        if part not in fields:
            return None
        field = fields[part]
        model = PHASES[recipe or next(iter(PHASES))] if (place, part) == (0, "phase") else block_of(field)
    return field


def block_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model class of a field that holds a block of keys, None for a plain value."""
    annotation = field.annotation
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    for option in parts:
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None
