"""When to save, and how much time is left; used by the training loops of the recipes. No torch."""

import time


class Eta:
    """Seconds left, from the mean time of the steps since the start."""

    def __init__(self, first: int = 0) -> None:
        self._first, self._began = first, time.monotonic()

    def left(self, step: int, total: int) -> float:
        """Return the seconds that remain after `step` of `total` steps."""
        return (time.monotonic() - self._began) / max(1, step - self._first) * (total - step)


def planned(total: int, count: int) -> list[int]:
    """Return `count` steps spread evenly over 1..total, the last one being `total`; fewer if there are fewer steps."""
    return sorted({max(1, round(total * part / count)) for part in range(1, count + 1)})
