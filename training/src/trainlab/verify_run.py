"""`trainlab verify-run`: did the gate promote, and does the tuned model answer? What `helm test` runs; no torch."""

import time
from pathlib import Path

from trainlab import client, files
from trainlab.errors import UserError

PAUSE, HEARTBEAT = 3.0, 15.0  # seconds
QUESTION = "What should I do first in an emergency?"


class NotServed(UserError):
    """The run is not promoted or its model does not answer: the check failed, the input was right."""

    code = 1


def command(run_dir: Path, url: str, timeout: float = 4) -> int:
    """Return 0 if RUN_DIR/gate.json promotes and the model `tuned` at `url` answers within `timeout` minutes.

    Raises UserError with the reason otherwise. A server that is still starting is waited for, one that refuses is not.
    """
    gate = files.read_json(run_dir / "gate.json")
    if gate.get("promoted") is not True:
        raise NotServed(f"{run_dir / 'gate.json'}: not promoted. {' '.join(gate.get('reasons', []))}")
    print(f"trainlab: promoted: {' '.join(gate.get('reasons', []))}", flush=True)
    answer = _patient(url, timeout * 60)
    if not answer.text:
        raise NotServed(f"{url}: model tuned gave an empty answer to {QUESTION!r}")
    print(f"trainlab: {url} answers as tuned: {answer.text}", flush=True)
    return 0


def _patient(url: str, seconds: float) -> client.Answer:
    end = time.monotonic() + seconds
    said = 0.0
    while True:
        try:
            return client.chat(url, "tuned", QUESTION, max_tokens=32, timeout=max(5.0, end - time.monotonic()))
        except client.Unreachable as error:
            now = time.monotonic()
            if now + PAUSE > end:
                raise NotServed(f"{error} (tried for {seconds:.0f} s)") from None
            if now - said >= HEARTBEAT:
                said = now
                print(f"trainlab: waiting: {error}", flush=True)
            time.sleep(PAUSE)
