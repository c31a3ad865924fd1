"""Kubernetes quantities as numbers."""

import re

SUFFIX = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity(text: str) -> float:
    """Return the value of a Kubernetes quantity: "300m" is 0.3, "3Gi" is 3 x 2^30. Raises ValueError."""
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    if not match or match[2] not in SUFFIX:
        raise ValueError(f"{text!r} is not a quantity; write a number with m, Ki, Mi, Gi, Ti, k, M, G or T")
    return float(match[1]) * SUFFIX[match[2]]
