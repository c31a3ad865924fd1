"""Run playbooks/drill.yml beside playbooks/train.yml, as in two terminals; print what the drill said, end as it or the training did.

PYTHONPATH=cluster:tests python -m drills.audience SITE pod
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from drills.place import NAMESPACE, PATIENCE, REPO, Place


def main(site: str, drill: str) -> int:
    """Train in two pods, and strike."""
    place = Place("pytorchjob", 2, site)
    place.remove()
    place.kubectl("create", "namespace", NAMESPACE, ok=False)  # it may be there
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "train.log"
        training = place.play(log)
        given = json.dumps(place.variables() | {"drill": drill, "report_dest": name})
        argv = [".venv/bin/ansible-playbook", "-i", "inventory/local", "playbooks/drill.yml", "-e", given]
        try:
            struck = subprocess.run(argv, cwd=REPO, stdin=subprocess.DEVNULL, check=False).returncode
            ended = training.wait(PATIENCE)
        finally:
            training.kill()
        if ended:
            print(log.read_text(encoding="utf-8"))
        return struck or ended


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
