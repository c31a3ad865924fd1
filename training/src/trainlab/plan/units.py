"""Network speeds to numbers, numbers to short text; used by the whole planner."""

import re

from trainlab.config.types import SUFFIX
from trainlab.errors import UserError

DEFAULT_NETWORK = "10Gbit"
DEFAULT_STORAGE = "300MB/s"  # a file system over the network, one client


def network(text: str) -> float:
    """Return bytes per second of a link such as 10Gbit, 25G, 400Gb/s or 900Mbit. Raises UserError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([GMT])(?:bit|b|bps|b/s|bit/s)?", text.strip(), re.IGNORECASE)
    rate = float(match[1]) * SUFFIX[match[2].upper()] / 8 if match else 0.0
    if rate <= 0:
        raise UserError(f"--network {text}: not a link speed; write it as 10Gbit, 25Gbit or 400Gbit")
    return rate


def storage(text: str) -> float:
    """Return bytes per second of a volume such as 300MB/s or 1.5GB/s. Raises UserError."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kMG])B(?:/s)?", text.strip())
    rate = float(match[1]) * SUFFIX[match[2]] if match else 0.0
    if rate <= 0:
        raise UserError(f"--storage {text}: not the speed of a volume; write it as 300MB/s or 1GB/s")
    return rate


def count(value: float) -> str:
    """Return large counts as 3.08 B or 418.9 M, small ones in full."""
    for limit, mark, digits in ((1e12, "T", 2), (1e9, "B", 2), (1e6, "M", 1)):
        if abs(value) >= limit:
            return f"{value / limit:.{digits}f} {mark}"
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Return bytes as GB, MB or kB (decimal, as data sheets and networks count)."""
    for limit, mark in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= limit:
            return f"{value / limit:.2f} {mark}"
    return f"{value:.0f} B"


def gib(value: float) -> str:
    """Return bytes as GiB, as nvidia-smi and Kubernetes count memory."""
    return f"{value / 2**30:.2f} GiB"


def claim(value: float) -> str:
    """Return bytes as the quantity of a claim: 20Gi, 512Mi."""
    return f"{value / 2**30:g}Gi" if value >= 2**30 else f"{value / 2**20:g}Mi"


def seconds(value: float) -> str:
    """Return a duration as 12 s, 3.5 min or 40.1 h."""
    if value < 10:
        return f"{value:.2f} s"
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"
