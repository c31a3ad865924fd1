"""How long to wait: every limit of the embedded cluster suits a machine like ours and is multiplied in one place, here.

TRAINLAB_PATIENCE is the factor: 1 by default, 15 on an emulated processor. Imported by everything that waits.
"""

from __future__ import annotations

import math
import os

from embedded_cluster import say

VARIABLE = "TRAINLAB_PATIENCE"
LONGEST_PAUSE = 10.0


def factor() -> float:
    """The factor that the environment sets; raises say.UserError for anything but a number of at least 1."""
    given = os.environ.get(VARIABLE) or "1"
    try:
        number = float(given)
    except ValueError:
        number = 0.0
    if not 1 <= number < math.inf:
        raise say.UserError(f"{VARIABLE}={given}: give a number of at least 1; it multiplies the limit of every wait")
    return number


def seconds(usual: float) -> float:
    """The limit of a wait that takes at most `usual` seconds on a machine like ours."""
    return usual * factor()


def pause(usual: float) -> float:
    """How long to sleep between two polls: frequent polling is what a slow machine can least afford."""
    return min(seconds(usual), max(usual, LONGEST_PAUSE))


def hint() -> str:
    """What to do when a wait was too short for the machine; ends a message."""
    return f"if the machine is just slow, wait longer: {VARIABLE}={2 * factor():g} (a factor, now {factor():g})"
