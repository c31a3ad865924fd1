"""What is going on, at least every 30 seconds: a status that a thread of rank 0 prints while nothing else does."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 30.0  # seconds


class Progress:
    """Prints `trainlab: <status> (<seconds> s)`; silent on ranks other than 0."""

    def __init__(self, speaks: bool) -> None:
        self._speaks = speaks
        self._status = "starting"
        self._began = self._said = time.monotonic()
        if speaks:
            threading.Thread(target=self._beat, name="progress", daemon=True).start()

    def say(self, text: str) -> None:
        """Print a line now."""
        self._said = time.monotonic()
        if self._speaks:
            print(f"trainlab: {text}", flush=True)

    def status(self, text: str) -> None:
        """Set the line that is printed when 30 s have passed without another one."""
        self._status, self._began = text, time.monotonic()
        if time.monotonic() - self._said >= EVERY:
            self.say(text)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Name a step when it starts and say its time when it ends well."""
        began = time.monotonic()
        self.say(f"{text} ...")
        self.status(text)
        yield
        self.say(f"{text}: {time.monotonic() - began:.0f} s")

    def _beat(self) -> None:
        while True:
            time.sleep(1)
            now = time.monotonic()
            if now - self._said >= EVERY:
                self.say(f"{self._status} ({now - self._began:.0f} s)")
