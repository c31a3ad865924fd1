"""Kill a rank of a run that may start again once, twice; print how the job ended, its starts and what it said, as JSON.

PYTHONPATH=cluster:tests python -m drills.used_up SITE pytorchjob
"""

import json
import random
import sys
import time

from drills import faults
from drills.place import PATIENCE, Place


def main(site: str, api: str) -> int:
    """Strike each of the two starts once it trains."""
    place = Place(api, 1, site, {"restarts": 1})
    place.remove()
    place.install()
    for loss in (1, 2):
        limit = time.monotonic() + PATIENCE
        while len(place.starts()) < loss or not place.step() or not place.ranks():
            if time.monotonic() > limit:
                print(f"start {loss} does not train after {PATIENCE:.0f} s", file=sys.stderr)
                return 1
            time.sleep(0.1)
        faults.rank_killed(place, random.Random(loss))
    end = place.end(PATIENCE)
    print(json.dumps({"end": end, "starts": place.starts(), "said": place.logs()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
