"""The smallest kernel of Triton: gpus.py launches it to see whether Triton can compile, load and run here; imported with a GPU only."""

from typing import Any

import triton
import triton.language as tl


@triton.jit
def increment(values: Any, count: Any) -> None:
    """Add 1 to each of the first `count` (at most 16) values, in place."""
    places = tl.arange(0, 16)
    inside = places < count
    tl.store(values + places, tl.load(values + places, mask=inside) + 1, mask=inside)
