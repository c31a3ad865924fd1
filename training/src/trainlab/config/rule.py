"""A rule over several keys of a values file, and whether it is broken; `computed` has those that a table cannot express.

charts/trainjob/templates/_checks.tpl evaluates the same rules (rules.json) in Helm, and the computed ones except for Python's
regular expressions; tests compare the two.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trainlab.config.types import quantity, size_parts, split

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
        return f"{self.key}: {re.sub('{([a-zA-Z_.]+)}', lambda match: shown(value(values, match[1])), self.says)}"


def value(values: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key, None if it or a section above it is absent."""
    node: Any = values
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _holds(values: Mapping[str, Any], key: str, test: str, operand: Any) -> bool:
    actual = value(values, key)
    if test == "unset":
        return not actual
    if actual is None:
        return False
    match test:
        case "set":
            return bool(actual)
        case "is" | "is not":
            return (actual == operand) == (test == "is")
        case "in":
            return actual in operand
        case "starts" | "starts not":
            return str(actual).startswith(operand) == (test == "starts")
        case "holds":
            return any(item in actual for item in operand)
        case "has not form":
            return not re.search(operand, actual)
    other = value(values, operand)
    if other is None:
        return False
    match test:
        case "differs":
            return bool(actual != other)
        case "exceeds":
            return bool(actual > other)
    raise ValueError(f"{test}: no test of a rule")


def shown(content: Any) -> str:
    """Return a value as a sentence shows it: text as it is, anything else as JSON, at most SHOWN characters."""
    text = content if isinstance(content, str) else json.dumps(content)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


PRODUCT_LABEL = "nvidia.com/gpu.product"
"""Label of a node, set by GPU feature discovery."""
OWN_LABEL = "^(app.kubernetes.io|helm.sh|trainlab.dev)/"
"""Of labels that the chart sets."""
SHARE = r"\.shared$|-SHARED$"
"""In the name of a resource or of a product: a share that the device plugin renames; shares may have the name of whole GPUs."""
PART_OF_GPU = f"/mig-|-MIG-|{SHARE}"
"""A slice, or a share."""


def computed(values: Mapping[str, Any]) -> list[str]:
    """Return a sentence `key: reason; remedy` for each rule that a table cannot express and that these values break."""
    checks = (_env, _pod_labels, _tasks, _shared_memory, _curriculum, _size, _document_start, _parts_of_gpus)
    return [sentence for check in checks if (sentence := check(values))]


def _tasks(values: Mapping[str, Any]) -> str | None:
    tasks = value(values, "phase.evaluate.tasks") or ()
    double = next((name for name in tasks if list(tasks).count(name) > 1), None)
    return f"phase.evaluate.tasks: {double} is listed twice; name it once" if double else None


def _shared_memory(values: Mapping[str, Any]) -> str | None:
    shared, memory = (str(value(values, f"phase.resources.{key}")) for key in ("shared_memory", "memory"))
    if quantity(shared) <= quantity(memory):
        return None
    return f"phase.resources.shared_memory: {shared} is more than resources.memory {memory}, of which it is a part; lower it"


def _env(values: Mapping[str, Any]) -> str | None:
    names = sorted(value(values, "site.env") or ())
    odd = next((name for name in names if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)), None)
    if odd is None:
        return None
    return f"site.env: '{odd}' is not a variable name; use letters, digits and _, no digit first"


def _pod_labels(values: Mapping[str, Any]) -> str | None:
    labels = sorted(value(values, "site.podLabels") or ())
    own = next((name for name in labels if re.search(OWN_LABEL, name)), None)
    return own and f"site.podLabels: {own} is set by the chart; remove it"


def _curriculum(values: Mapping[str, Any]) -> str | None:
    key, steps = "phase.stage.curriculum", value(values, "phase.stage.curriculum")
    if not steps:
        return None
    longest = value(values, "phase.model.max_length")
    for step in steps:
        if longest % step["length"]:
            return f"{key}: length {step['length']} does not divide model.max_length {longest}; take one that does"
    if any(step["length"] > following["length"] for step, following in pairwise(steps)):
        return f"{key}: lengths decrease; put the short ones first"
    total = sum(step["share"] for step in steps)
    return None if abs(total - 1) < 1e-6 else f"{key}: shares add up to {total:g}; make it 1"


def _size(values: Mapping[str, Any]) -> str | None:
    """Heads share the width and the keys evenly, and rotary positions turn pairs of numbers."""
    size = size_parts(str(value(values, "phase.model.source")))
    if not size:
        return None
    hidden, heads, kv = size["hidden"], size["heads"], size["kv"]
    if hidden % (2 * heads):
        return f"phase.model.source: hidden {hidden} is not a multiple of 2 x heads {heads}; change one of the two"
    if heads % kv:
        return f"phase.model.source: heads {heads} is not a multiple of kv {kv}; change one of the two"
    longest, context = value(values, "phase.model.max_length"), size["context"]
    if longest > context:
        return f"phase.model.max_length: {longest} is more than the context {context} of phase.model.source; lower it"
    if value(values, "phase.serve.runtime") != "vllm":
        return None
    gpus, tokens = value(values, "phase.serve.gpus"), value(values, "phase.serve.max_tokens")
    if gpus and not split(heads, kv, gpus):
        return (
            f"phase.serve.gpus: {gpus} with runtime vllm, which divides the {heads} heads and {kv} of keys and values of "
            "phase.model.source evenly; take a divisor of the heads that divides the others, or is a multiple of them"
        )
    if longest + tokens > context:
        return (
            f"phase.serve.max_tokens: {tokens} and model.max_length {longest} are more than the context {context} of "
            "phase.model.source, with which vllm does not start; lower one of them"
        )
    return None


def _document_start(values: Mapping[str, Any]) -> str | None:
    text = value(values, "phase.text.document_start")
    try:
        re.compile(text or "")
    except re.error as error:
        return f"phase.text.document_start: {text!r} is not a regular expression ({error}); correct it"
    return None


def _parts_of_gpus(values: Mapping[str, Any]) -> str | None:
    """Each rank needs a physical GPU of its own; by their names slices (MIG) and shares (time-slicing, MPS) may be parts of one."""
    nodes, per_node = (value(values, f"phase.resources.{key}") for key in ("nodes", "gpus_per_node"))
    if nodes * per_node < 2 or (per_node == 1 and value(values, "site.spread") == "required"):
        return None
    product = (value(values, "site.nodeSelector") or {}).get(PRODUCT_LABEL, "")
    names = (("site.gpuResource", value(values, "site.gpuResource")), (f"site.nodeSelector {PRODUCT_LABEL}", product))
    key, name = next(((key, name) for key, name in names if re.search(PART_OF_GPU, name)), ("", ""))
    if not key:
        return None
    return (
        f"{key}: {name} is a part of a GPU, and the job has {nodes * per_node} ranks: two of them on one GPU end in NCCL (Duplicate GPU "
        "detected); choose whole GPUs, or set phase.resources.nodes and gpus_per_node to 1, or gpus_per_node to 1 and site.spread to "
        "required"
    )
