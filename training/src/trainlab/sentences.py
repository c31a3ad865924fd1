"""One sentence for one validation error of pydantic: key, value, what it must be, what to do; used by loading."""

import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trainlab.config import Values

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
    key = tuple(str(part) for part in item["loc"] if not _is_union_tag(part))
    name, kind, context = ".".join(key), item["type"], item.get("ctx") or {}
    field, is_block = _field(key)
    value = _shown(item.get("input"))
    if kind == "missing":
        help_text = f"; {field.description}" if field and field.description else ""
        return key, f"{name}: missing; add it{help_text}"
    if kind == "value_error":
        text = str(context.get("error", item["msg"]))
        if is_block:  # a rule over several keys: its text starts with the key, below this block
            joined = f"{name}.{text}" if name else text
            return tuple(joined.split(":", maxsplit=1)[0].split(".")), joined
        return key, f"{name}: {text}"
    if kind in BOUNDS:
        bound = context[BOUNDS[kind][0]]
        return key, f"{name} is {value}: {BOUNDS[kind][1].format(bound)}; {_remedy(field)}"
    if kind == "literal_error":
        return key, f"{name} is {value}: must be one of {context['expected']}; set it to one of these"
    if kind == "string_pattern_mismatch":
        return key, f"{name} is {value}: has the wrong form; {_form(field, context['pattern'])}"
    family = kind.split("_")[0]
    if family in TYPES and (kind.endswith(("_type", "_parsing", "_from_float"))):
        return key, f"{name} is {value}: must be {TYPES[family]}; {_remedy(field)}"
    return key, f"{name} is {value}: {item['msg'][0].lower()}{item['msg'][1:]}; {_remedy(field)}"


def _remedy(field: FieldInfo | None) -> str:
    """Return what to do: the default if there is one, and what the key means."""
    if field is None:
        return "correct it"
    default = field.default
    plain = isinstance(default, (bool, int, float, str)) and default != ""
    hint = f"the default is {default}" if plain else "correct it"
    return f"{hint} ({field.description})" if field.description else hint


def _form(field: FieldInfo | None, pattern: str) -> str:
    """Return which text is right: in words if they name the forms, else as the pattern."""
    words = field.description if field and field.description else ""
    return f"write it as {words}" if ":" in words else f"it must match {pattern} ({words})"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _is_union_tag(part: Any) -> bool:
    """True for the parts that pydantic adds to a path inside `X | None`."""
    return isinstance(part, str) and (part in ("int", "str", "float") or "[" in part)


def _field(key: tuple[str, ...]) -> tuple[FieldInfo | None, bool]:
    """Return the field that a path (with aliases) names, and whether the path names a block of keys."""
    model: type[BaseModel] | None = Values
    field: FieldInfo | None = None
    for part in key:
        if model is None:
            return field, False
        fields = {info.alias or name: info for name, info in model.model_fields.items()}
        if part not in fields:
            return None, False
        field = fields[part]
        model = block_of(field)
    return field, model is not None


def block_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model class of a field that holds a block of keys, None for a plain value."""
    annotation = field.annotation
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    for option in options:
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None
