"""A rule over several keys of a values file, and whether it is broken.

charts/trainjob/templates/_rules.tpl evaluates the same rules (rules.json) in Helm; tests compare the two.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHOWN = 80  # characters of a value in a sentence
Condition = tuple[str, str, Any]
"""(key, test, operand). A key that is absent or null passes no test but `unset`. Tests:

`is`, `is not` a value; `in` a list of values; `starts`, `starts not` with a text; `set`: true, above 0 or not empty,
`unset`: the opposite (operand True); `holds` one of a list; `has not form`: does not match a pattern; `differs` from,
`exceeds` the number of the key that the operand names.
"""


@dataclass(frozen=True)
class Rule:
    """`key: says`, if all conditions hold; `{other.key}` in the sentence stands for that key's value."""

    key: str
    says: str
    when: tuple[Condition, ...]

    def broken(self, values: Mapping[str, Any]) -> str | None:
        """Return the sentence if these values (nested, with all defaults) break the rule, else None."""
        if not all(_holds(values, *condition) for condition in self.when):
            return None
        return f"{self.key}: {re.sub('{([a-zA-Z_.]+)}', lambda found: shown(value(values, found[1])), self.says)}"


def value(values: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key, None if it or a section above it is absent."""
    found: Any = values
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _holds(values: Mapping[str, Any], key: str, test: str, operand: Any) -> bool:
    found = value(values, key)
    if test == "unset":
        return not found
    if found is None:
        return False
    match test:
        case "set":
            return bool(found)
        case "is" | "is not":
            return (found == operand) == (test == "is")
        case "in":
            return found in operand
        case "starts" | "starts not":
            return str(found).startswith(operand) == (test == "starts")
        case "holds":
            return any(one in found for one in operand)
        case "has not form":
            return not re.search(operand, found)
    other = value(values, operand)
    if other is None:
        return False
    match test:
        case "differs":
            return bool(found != other)
        case "exceeds":
            return bool(found > other)
    raise ValueError(f"{test}: no test of a rule")


def shown(found: Any) -> str:
    """Return a value as a sentence shows it: text as it is, anything else as JSON, at most SHOWN characters."""
    text = found if isinstance(found, str) else json.dumps(found)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
