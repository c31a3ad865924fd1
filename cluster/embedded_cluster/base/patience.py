"""How long to wait: every limit of the embedded cluster suits a machine like ours and is multiplied in one place, here.

The factor is TRAINLAB_PATIENCE, 1 by default, 15 on an emulated processor; a command that starts on a busy machine raises it.
Imported by everything that waits.
"""

from __future__ import annotations

import math
import os

from embedded_cluster.base import say

VARIABLE = "TRAINLAB_PATIENCE"
MAX_PAUSE = 10.0
MAX_FLOOR = 10.0
"""A busy machine multiplies a limit by no more: it may be idle again in a minute, and something may be broken."""
_floor = 1.0


def factor() -> float:
    """The factor that the environment sets, or the floor where that is higher.

    Raises say.UserError for anything but a number of at least 1.
    """
    value = os.environ.get(VARIABLE) or "1"
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 1 <= number < math.inf:
        raise say.UserError(f"{VARIABLE}={value}: give a number of at least 1; it multiplies the limit of every wait")
    return max(number, _floor)


def raise_for(tasks: float, processors: int) -> None:
    """Set the floor of the factor to the number of tasks per processor that want to run, and say so where it counts.

    `tasks` is the machine's load average of the last minute (proc_loadavg(5)).
    """
    global _floor
    current, pressure = factor(), round(tasks / processors, 1)
    if min(pressure, MAX_FLOOR) > current:
        _floor = min(pressure, MAX_FLOOR)
        say.info(f"{pressure:g} tasks share each processor: limits of waits are multiplied by {_floor:g} ({VARIABLE})")


def seconds(usual: float) -> float:
    """The limit of a wait that takes at most `usual` seconds on a machine like ours."""
    return usual * factor()


def pause(usual: float) -> float:
    """How long to sleep between two polls: frequent polling is what a slow machine can least afford."""
    return min(seconds(usual), max(usual, MAX_PAUSE))


def hint() -> str:
    """What to do when a wait was too short for the machine; ends a message."""
    return f"if the machine is just slow, wait longer: {VARIABLE}={2 * factor():g} (a factor, now {factor():g})"
