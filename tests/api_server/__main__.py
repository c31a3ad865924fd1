"""The command line of the test API server, from the root of the checkout:

    PYTHONPATH=cluster:tests python -m api_server start [--folder DIR] [--statuses FOLDER]
                                                          prints the kubeconfig
    PYTHONPATH=cluster:tests python -m api_server fault [--folder DIR] gpu-operator-certified=csv-failed api-server=busy
    PYTHONPATH=cluster:tests python -m api_server left [--folder DIR]        fails unless it holds what it held at its start
    PYTHONPATH=cluster:tests python -m api_server stop [--folder DIR]

FOLDER is `statuses` of an unpacked bundle of playbooks/collect.yml: what that cluster reported is replayed. A fault afterwards
ends that, unless it says `statuses=FOLDER`, too. Used by molecule/default.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from api_server.server import Server

FOLDER = Path(tempfile.gettempdir()) / "trainlab-api"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m api_server", description="A kube-apiserver with test-only operators."
    )
    parser.add_argument("command", choices=["start", "fault", "left", "stop"])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--statuses", type=Path, help="of a bundle, replayed in the place of ours")
    parser.add_argument("faults", nargs="*", metavar="PACKAGE=FAULT")
    args = parser.parse_intermixed_args()  # the faults may come after --folder
    server = Server(args.folder)
    if args.command == "start":
        server.stop()
        server.start()
        server.replay(args.statuses.resolve() if args.statuses else None)
        print(server.kubeconfig)
    elif args.command == "fault":
        server.fault(dict(each.split("=", 1) for each in args.faults))
    elif args.command == "left":
        left = server.left()
        print("\n".join(left))
        return 1 if left else 0
    else:
        server.stop()
    return 0


sys.exit(main())
