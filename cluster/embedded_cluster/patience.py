"""How long to wait: every limit of the embedded cluster is written for a machine like ours and multiplied here, in one place.

TRAINLAB_PATIENCE is that multiple: 1 by default, 15 where a processor is emulated. Imported by whatever waits.
"""

from __future__ import annotations

import math
import os

from embedded_cluster import say

VARIABLE = "TRAINLAB_PATIENCE"
LONGEST_PAUSE = 10.0


def factor() -> float:
    """The multiple that the environment asks for; raises say.UserError for anything but a number from 1 on."""
    given = os.environ.get(VARIABLE) or "1"
    try:
        number = float(given)
    except ValueError:
        number = 0.0
    if not 1 <= number < math.inf:
        raise say.UserError(
            f"{VARIABLE}={given}: give a number from 1 on; every wait takes so many times its usual limit"
        )
    return number


def seconds(usual: float) -> float:
    """The limit of a wait that takes at most `usual` seconds on a machine like ours."""
    return usual * factor()


def pause(usual: float) -> float:
    """How long to sleep between two looks: looking often is what a slow machine can afford least."""
    return min(seconds(usual), max(usual, LONGEST_PAUSE))


def hint() -> str:
    """What to do where a wait was too short for the machine, to end a message with."""
    return f"where the machine is only slow, wait longer: {VARIABLE}={2 * factor():g} (a multiple, now {factor():g})"
