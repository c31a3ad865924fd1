"""A node of a cluster as people describe it, `8cpu,32GB` or `8cpu,32GB,1xL40S`, and what it leaves to pods."""

import re
from dataclasses import dataclass

from trainlab.config.types import SUFFIX
from trainlab.errors import UserError

RESERVED_CORES, RESERVED_BYTES = 1.0, 2 * 2**30
"""Of a node for its system and its DaemonSets (GPU operator, network, monitoring): assumed. OpenShift reserves 0.5 cores and 1 GiB itself."""
FORM = re.compile(
    r"(?P<cores>[0-9]+)\s*(?:v?cpus?),\s*(?P<memory>[0-9.]+)\s*(?P<unit>[GT]i?)B?(?:,\s*(?P<gpus>[0-9]+)x(?P<gpu>[\w-]+))?",
    re.I,
)


@dataclass(frozen=True)
class Node:
    """Cores, bytes of memory, and GPUs with their name ("" if nothing is said of them)."""

    cores: float
    memory: float
    gpus: int = 0
    gpu: str = ""

    @property
    def free_cores(self) -> float:
        """Cores that pods may ask for."""
        return self.cores - RESERVED_CORES

    @property
    def free_memory(self) -> float:
        """Bytes that pods may ask for."""
        return self.memory - RESERVED_BYTES


def parse(text: str) -> Node:
    """Return the node of a text; a GB is 10^9 bytes, a GiB 2^30. Raises UserError with the form."""
    match = FORM.fullmatch(text.strip())
    if match is None:
        raise UserError(f"--node {text}: not a node; write it as 8cpu,32GB or 8cpu,32GB,1xL40S")
    unit = match["unit"][0].upper() + match["unit"][1:].lower()
    return Node(
        float(match["cores"]), float(match["memory"]) * SUFFIX[unit], int(match["gpus"] or 0), match["gpu"] or ""
    )
