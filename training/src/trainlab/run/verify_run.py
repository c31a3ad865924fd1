"""`trainlab verify-run`: did the gate promote, and does the served model answer? What `helm test` runs; no torch."""

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from trainlab import files, recipes
from trainlab.recipes.base import Recipe
from trainlab.run import results
from trainlab.serve import client
from trainlab.serve.client import NotServed

PAUSE, HEARTBEAT, CONNECT = 3.0, 15.0, 5.0  # seconds


def command(run_dir: Path, urls: Sequence[str], model: str = "tuned", timeout: float = 4) -> int:
    """Return 0 if RUN_DIR/gate.json promotes and the `model` at one of `urls` answers within `timeout` minutes.

    Of several, the first that takes a connection is asked. Raises NotServed (or UserError) with the reason otherwise. It waits for
    a server that is still starting, not for one that refuses.
    """
    gate = files.read_json(run_dir / "gate.json")
    if gate.get("promoted") is not True:
        raise NotServed(f"{run_dir / 'gate.json'}: not promoted. {' '.join(gate.get('reasons', []))}")
    print(f"trainlab: promoted: {' '.join(gate.get('reasons', []))}", flush=True)
    recipe = recipes.get_recipe(results.phase_of(run_dir))
    print(f"trainlab: {_probe_until(recipe, run_dir, urls, model, timeout * 60)}", flush=True)
    return 0


def _probe_until(recipe: Recipe, run_dir: Path, urls: Sequence[str], model: str, seconds: float) -> str:
    end = time.monotonic() + seconds
    reported = 0.0
    while True:
        try:
            return recipe.probe(run_dir, _open(urls), model, max(5.0, end - time.monotonic()))
        except client.Unreachable as error:
            now = time.monotonic()
            if now + PAUSE > end:
                raise NotServed(f"{error} (tried for {seconds:.0f} s)") from None
            if now - reported >= HEARTBEAT:
                reported = now
                print(f"trainlab: waiting: {error}", flush=True)
            time.sleep(PAUSE)


def _open(urls: Sequence[str]) -> str:
    """Return the first address that takes a connection, the only one untried: it may be behind a proxy.

    A port that is not the Service's may drop packets instead of refusing, hence the short time-out of each try.
    """
    if len(urls) == 1:
        return urls[0]
    for url in urls:
        place = urlsplit(url)
        try:
            socket.create_connection((str(place.hostname), place.port or 80), CONNECT).close()
        except OSError:
            continue
        return url
    raise client.Unreachable(f"{' and '.join(urls)}: cannot be reached")
