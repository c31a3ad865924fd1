"""How many requests does playbooks/platform.yml send? Requests per object, and the second run on a ready cluster.

PYTHONPATH=cluster:tests python bench/platform_requests.py [--release 3.4] [--json FILE]
Starts the test API server (a real kube-apiserver with test-only operators, tests/api_server), installs the GPU operator and OpenShift AI,
and runs the playbook again. Prints a line for each step that applies objects; exits with 1 when the second run changed something
or took 25 s or more, or when there were more than 3.1 requests per object.
"""

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import outcome
from api_server.harness import Cluster
from api_server.server import Server

PER_OBJECT, SECONDS = 3.1, 25.0
STEP = re.compile(r"^TASK \[(?P<name>[^\]]+)\].*?$(?P<rest>.*?)(?=^(?:TASK|PLAY) )", re.M | re.S)


def steps(text: str) -> list[dict[str, Any]]:
    """Return {step, objects, requests} of each task that applied objects, from the output of `ansible-playbook -v`."""
    rows = []
    for task in STEP.finditer(text):
        result = re.search(r"=> (\{.*?^\}|\{.*\})$", task["rest"], re.M | re.S)
        answer = json.loads(result[1]) if result else {}
        if {"requests", "objects"} <= set(answer):
            rows.append({"step": task["name"], "objects": len(answer["objects"]), "requests": answer["requests"]})
    return rows


def main() -> int:
    """Install, run again, print and check."""
    parser = outcome.parser(__doc__)
    parser.add_argument("--release", default="3.5", help="release of OpenShift AI (default %(default)s)")
    args = parser.parse_args()
    os.environ |= {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default"}
    wanted = {"platform_operators": ["gpu", "rhoai"], "trainlab_platform_release": args.release}
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "api")
        server.start()
        try:
            cluster = Cluster(server, Path(folder))
            first = cluster.playbook("platform", "-v", **wanted)
            began = time.monotonic()
            second = cluster.playbook("platform", "-v", **wanted)
            seconds = time.monotonic() - began
        finally:
            server.stop()
    if first.code or second.code:
        sys.exit((first.text if first.code else second.text)[-3000:])
    result: dict[str, Any] = {"first": steps(first.text), "second": steps(second.text)}
    for name in ("first", "second"):
        for step in result[name]:
            print(f"{name:6}  {step['requests']:3} requests  {step['objects']:3} objects  {step['step']}")
    totals = {
        name: sum(step["requests"] for step in result[name]) / max(1, sum(step["objects"] for step in result[name]))
        for name in ("first", "second")
    }
    result |= {"per_object": totals, "second_seconds": round(seconds, 1), "second_changed": second.changed}
    result["hardware"] = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
    print(f"requests per object: {totals['first']:.2f}, again {totals['second']:.2f}; the bound is {PER_OBJECT}")
    print(f"second run: {seconds:.1f} s, changed={second.changed}; the bound is {SECONDS:.0f} s")
    bounds = {
        "requests per object": (max(totals.values()), PER_OBJECT),
        "seconds of the second run": (seconds, SECONDS),
    }
    return outcome.end(args, result, equal=bool(result["first"]) and not second.changed, at_most=bounds)


if __name__ == "__main__":
    sys.exit(main())
