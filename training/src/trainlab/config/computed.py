"""Rules that a table cannot express; the chart's _computed.tpl has the same, except for Python regular expressions."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from trainlab.config.quantity import quantity
from trainlab.config.rule import value

PRODUCT_LABEL = "nvidia.com/gpu.product"
"""Label of a node, set by GPU feature discovery."""
PART_OF_GPU = r"/mig-|\.shared$|-MIG-|-SHARED$"
"""In the name of a resource or of a product: a slice, or a share that the device plugin renames; shares may have the name of whole GPUs."""


def broken(values: Mapping[str, Any]) -> str | None:
    """Return the sentence `key: reason; remedy` of the first rule that these values break, else None."""
    return (
        _tasks(values)
        or _shared_memory(values)
        or _curriculum(values)
        or _document_start(values)
        or _env(values)
        or _parts_of_gpus(values)
    )


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


def _curriculum(values: Mapping[str, Any]) -> str | None:
    key, steps = "phase.stage.curriculum", value(values, "phase.stage.curriculum")
    if not steps:
        return None
    longest = value(values, "phase.model.max_length")
    for step in steps:
        if longest % step["length"]:
            return f"{key}: length {step['length']} does not divide model.max_length {longest}; take one that does"
    if any(one["length"] > other["length"] for one, other in pairwise(steps)):
        return f"{key}: lengths decrease; put the short ones first"
    total = sum(step["share"] for step in steps)
    return None if abs(total - 1) < 1e-6 else f"{key}: shares add up to {total:g}; make it 1"


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
