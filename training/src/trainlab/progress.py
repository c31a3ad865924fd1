"""Progress: a line at least every 30 seconds, and numbers for `trainlab watch`, both from rank 0 only."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

INTERVAL = 30.0  # seconds


class Eta:
    """Seconds left, from the mean time of the steps since the start."""

    def __init__(self, first: int = 0) -> None:
        self._first, self._began = first, time.monotonic()

    def left(self, step: int, total: int) -> float:
        """Return the seconds that remain after `step` of `total` steps."""
        return (time.monotonic() - self._began) / max(1, step - self._first) * (total - step)


@dataclass(frozen=True)
class Numbers:
    """The progress of the training; times in seconds, `epoch` in passes over the data, metrics by name."""

    step: int = 0
    total: int = 0
    left: float | None = None
    epoch: float | None = None
    epochs: float | None = None
    train: Mapping[str, float] = field(default_factory=dict)
    validation: Mapping[str, float] = field(default_factory=dict)

    def text(self) -> str:
        """Return the status line of this step."""
        loss = f" loss {self.train['loss']:.3f}" if "loss" in self.train else ""
        eta = f" eta {self.left:.0f} s" if self.left is not None else ""
        rate = f" {self.train['tokens_per_second']:.0f} tokens/s" if "tokens_per_second" in self.train else ""
        rate += f" ({self.train['mfu']:.0%} MFU)" if "mfu" in self.train else ""
        return f"step {self.step}/{self.total}{loss}{rate}{eta}"


class Progress:
    """Prints `trainlab: <status> (<seconds> s)` every 30 s within a `with`; silent on ranks other than 0."""

    def __init__(self, speaks: bool) -> None:
        self._speaks = speaks
        self._status = "starting"
        self._began = self._reported = time.monotonic()
        self.numbers = Numbers()
        self.ended = False
        self.peak_tokens: float | None = None  # tokens per second at which the GPUs would compute at their peak
        self.at_step: Callable[[int], None] = lambda _: None
        # of this rank's GPU since the last call (engine/gpu_use.py); and the numbers of a step, for the trackers (engine/trackers.py)
        self.gpu_use: Callable[[], dict[str, float]] = dict
        self.log: Callable[[int, Mapping[str, Any]], None] = lambda _step, _entry: None
        self._left = threading.Event()

    def __enter__(self) -> Self:
        """Print a line every 30 s from now on."""
        if self._speaks:
            threading.Thread(target=self._beat, name="progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop printing lines periodically."""
        self._left.set()

    def say(self, text: str) -> None:
        """Print a line now."""
        self._reported = time.monotonic()
        if self._speaks:
            print(f"trainlab: {text}", flush=True)

    def status(self, text: str) -> None:
        """Set the line to print after 30 s without another one."""
        self._status, self._began = text, time.monotonic()
        if time.monotonic() - self._reported >= INTERVAL:
            self.say(text)

    def at(self, numbers: Numbers) -> None:
        """Set the progress of the training, which is also its status."""
        self.numbers = numbers
        self.at_step(numbers.step)
        self.status(numbers.text())

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Print a step when it starts and its duration when it succeeds."""
        began = time.monotonic()
        self.say(f"{text} ...")
        self.status(text)
        yield
        self.say(f"{text}: {time.monotonic() - began:.0f} s")

    def page(self) -> dict[str, Any]:
        """Return the JSON that OpenShift AI's trainer polls, and `activity` for people.

        Names and types: red-hat-data-services/trainer, pkg/rhai/progression/progression.go, TrainerStatus. 100 percent
        and 0 seconds left are reported only at the very end, after the last score.
        """
        now = self.numbers
        share = int(100 * now.step / now.total) if now.total else 0
        return {
            "progressPercentage": 100 if self.ended else min(share, 99),
            "estimatedRemainingSeconds": 0 if self.ended else None if now.left is None else max(1, round(now.left)),
            "currentStep": now.step,
            "totalSteps": now.total,
            "currentEpoch": None if now.epoch is None else round(now.epoch, 3),
            "totalEpochs": None if now.epochs is None else round(now.epochs),
            "trainMetrics": _finite(now.train),
            "evalMetrics": _finite(now.validation),
            "activity": "done" if self.ended else self._status,
        }

    def _beat(self) -> None:
        while not self._left.wait(1):
            now = time.monotonic()
            if now - self._reported >= INTERVAL:
                self.say(f"{self._status} ({now - self._began:.0f} s)")


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """JSON has no NaN: a loss that is no longer a number becomes null."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def note(text: str) -> None:
    """Print a line at once, to stderr: stdout is for what a command returns."""
    print(f"trainlab: {text}", file=sys.stderr, flush=True)


def where(hosts: Sequence[str], nodes: Sequence[str]) -> str:
    """Return `in 4 pods on 2 nodes (n1, n2)`, or `on 1 host (name)` where no node is known."""
    named = ", ".join(nodes or hosts)
    if nodes:
        return f"in {_count(hosts, 'pod')} on {_count(nodes, 'node')} ({named})"
    return f"on {_count(hosts, 'host')} ({named})"


def _count(names: Sequence[str], what: str) -> str:
    return f"{len(names)} {what}{'s' * (len(names) != 1)}"
