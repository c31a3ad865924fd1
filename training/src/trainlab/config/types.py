"""The base of every section of a values file: unknown keys are errors; the types that several sections share, and how models
and data sets are named.

Patterns are read by Rust's, Go's and Python's engines: no look-around, no \\w or \\d, which differ between them.
"""

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

_NUMBER = r"([1-9][0-9]*(\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)"  # above 0
_BYTES = "(Ki|Mi|Gi|Ti|k|M|G|T)"
# One segment of a path, neither `.` nor `..`
_SEGMENT = r"(\.\.[A-Za-z0-9._-]|\.?[A-Za-z0-9_-])[A-Za-z0-9._-]*"
PATH = rf"{_SEGMENT}(/{_SEGMENT})*"
OBJECT = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*"

Name = Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$")]
ObjectName = Annotated[str, StringConstraints(pattern=rf"^({OBJECT})?$", max_length=253)]
"""Name of a Kubernetes object (RFC 1123), or empty for none."""
Cpu = Annotated[str, StringConstraints(pattern=rf"^{_NUMBER}m?$")]
Bytes = Annotated[str, StringConstraints(pattern=rf"^{_NUMBER}{_BYTES}?$")]
OptionalBytes = Annotated[str, StringConstraints(pattern=rf"^({_NUMBER}{_BYTES}?)?$")]


class Strict(BaseModel):
    """Base of all sections: unknown keys are errors, values never change after loading.

    What a key means is its description: Field's, or the docstring below it (messages.meaning).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


SUFFIX = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity(text: str) -> float:
    """Return the value of a Kubernetes quantity: "300m" is 0.3, "3Gi" is 3 x 2^30. Raises ValueError."""
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    if not match or match[2] not in SUFFIX:
        raise ValueError(f"{text!r} is not a quantity; write a number with m, Ki, Mi, Gi, Ti, k, M, G or T")
    return float(match[1]) * SUFFIX[match[2]]


NETWORK = "builtin:resnet18"
DIGITS, CIFAR10, TOPICS = "builtin:digits", "torchvision:cifar10", "pydoc:topics"
SIZE_PARTS = ("hidden", "layers", "heads", "kv", "mlp", "vocab", "context")
"""What a size that is written out consists of, in this order, each name followed by its number."""
_SIZE = rf"(2\.4M|139M|7\.39B|{'-'.join(f'{part}[1-9][0-9]{{0,6}}' for part in SIZE_PARTS)}(-tied)?)"
KINDS = {
    "pypi": r"pypi:[A-Za-z0-9._-]+==[A-Za-z0-9.]+",
    "hf": r"hf:[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+@[0-9a-f]{40}",
    "pvc": f"pvc:{PATH}",
    "s3": f"s3:{PATH}",
    "init": f"init:llama-{_SIZE}",
    "parent": f"parent:llama-{_SIZE}",
    "builtin": "builtin:[a-z][-a-z0-9]*",
    NETWORK: NETWORK,
    DIGITS: DIGITS,
    CIFAR10: CIFAR10,
    TOPICS: TOPICS,
    "trained": "trained",
}
"""Kind of a reference -> its pattern."""


def size_parts(source: str) -> dict[str, int]:
    """Return the numbers of a size that is written out in a model source, by the names of SIZE_PARTS; none for any other source.

    >>> size_parts("init:llama-hidden64-layers2-heads4-kv2-mlp128-vocab512-context256")["kv"]
    2
    """
    match = re.fullmatch(f"{KINDS['init']}|{KINDS['parent']}", source)
    parts = [re.fullmatch("([a-z]+)([0-9]+)", part) for part in source.split("-")] if match else []
    return {part[1]: int(part[2]) for part in parts if part}


def split(heads: int, kv: int, gpus: int) -> bool:
    """Tell whether vLLM can divide a model of so many heads, and so many of keys and values, among GPUs.

    It splits those of keys and values, or has each of them on several GPUs (vLLM 0.24, its model of Llama).
    """
    return not heads % gpus and not (kv % gpus and gpus % kv)


def form(*kinds: str) -> str:
    """Return the pattern of a key that takes references of these kinds."""
    return f"^({'|'.join(KINDS[kind] for kind in kinds)})$"
