"""How long do places for a room take? playbooks/attendees.yml from its start to its end: made, made again, more of them, removed.

PYTHONPATH=cluster:tests python bench/places.py [--json FILE]
Starts the test API server (a real kube-apiserver with etcd and the controllers that matter, tests/api_server), with Kueue's kinds. Every
place is counted: the same kinds of objects in each namespace, a ClusterQueue that borrows from the pool, and a kubeconfig with a token
of its own that may train there and nowhere else. Exits with 1 when a place lacks something, the second run changed something, something
was left, or a bound below was missed. Machines differ, so the bounds are multiples of what a playbook takes here that only asks for one
object with kubernetes.core.k8s_info: the start of Ansible and of a module, the fastest of three.
"""

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import outcome
from api_server.attendee import may
from api_server.client import Client
from api_server.harness import REPO, Cluster, Run
from api_server.training_api import KUEUE, Training

COUNTS = {"made": 40, "made again": 40, "removed": 40, "more made": 100, "more removed": 100, "many made": 1000}
BOUNDS = {"made": 9.0, "made again": 6.0, "removed": 12.0, "more made": 14.0, "more removed": 20.0, "many made": 80.0}
"""Places of each run, and how many times as long as a question it may take."""
QUESTION = """
- hosts: all
  gather_facts: false
  tasks:
    - kubernetes.core.k8s_info: {kind: Namespace, name: default, kubeconfig: "{{ trainlab_kubeconfig }}"}
      register: found
      failed_when: not found.resources
"""
POOL = "pool"
RBAC = "rbac.authorization.k8s.io/v1"
KINDS = (
    ("v1", "ServiceAccount"),
    ("v1", "ResourceQuota"),
    ("v1", "LimitRange"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    (RBAC, "Role"),
    (RBAC, "RoleBinding"),
    (KUEUE, "LocalQueue"),
)
OURS = "trainlab.dev/owner=attendees"


def complete(client: Client, folder: Path, places: int) -> bool:
    """Tell whether there are so many namespaces of ours, the same things in each, and as many kubeconfigs that differ."""
    spaces = [each["metadata"]["name"] for each in client.items("v1", "Namespace", labelSelector=OURS)]
    counts = {space: Counter[str]() for space in spaces}
    for api_version, kind in KINDS:
        for item in client.items(api_version, kind, labelSelector=OURS):
            counts[item["metadata"]["namespace"]][kind] += 1
    files = sorted(folder.glob("*.kubeconfig"))
    each = next(iter(counts.values()), Counter())
    own = all(
        may(file, "create", "kubeflow.org", "pytorchjobs", f"trainlab-{file.stem}")
        for file in files[:: max(1, places // 10)]
    )
    other = may(files[0], "create", "kubeflow.org", "pytorchjobs", f"trainlab-{files[-1].stem}") and places > 1
    queues = [queue["spec"]["cohortName"] for queue in client.items(KUEUE, "ClusterQueue", labelSelector=OURS)]
    same = (
        queues == [POOL] * places
        and all(kinds == each for kinds in counts.values())
        and {kind for _api, kind in KINDS} - {"Role"} <= set(each)
    )
    return (
        len(spaces) == len(files) == len({file.read_text(encoding="utf-8") for file in files}) == places
        and same
        and own
        and not other
    )


def question(cluster: Cluster, folder: Path) -> float:
    """Return the seconds of a playbook that asks for one object, the fastest of three."""
    file = folder / "question.yml"
    file.write_text(QUESTION, encoding="utf-8")
    name, fastest = os.path.relpath(file.with_suffix(""), REPO / "playbooks"), float("inf")
    for _ in range(3):
        began = time.monotonic()
        done = cluster.playbook(name)
        fastest = min(fastest, time.monotonic() - began)
        if done.code:
            sys.exit(done.text[-3000:])
    return fastest


def main() -> int:
    """Make places, make them again, remove them, make more; print and check."""
    args = outcome.parser(__doc__).parse_args()
    counts = dict(zip(COUNTS, (1, 1, 1, 2), strict=False)) if args.smoke else COUNTS
    seconds: dict[str, float] = {}
    good: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Training(folder / "api")
        server.start()
        try:
            cluster, dest = Cluster(server, folder), folder / "handed"

            def run(what: str, **variables: Any) -> Run:
                began = time.monotonic()
                done = cluster.playbook(
                    "attendees",
                    attendees_dest=str(dest),
                    attendees_cluster_queue=POOL,
                    attendees_count=counts.get(what, 1),
                    **variables,
                )
                seconds[what] = round(time.monotonic() - began, 2)
                if done.code:
                    sys.exit(done.text[-3000:])
                print(f"{what:12} {seconds[what]:6.2f} s, changed={done.changed}", flush=True)
                return done

            quota = {"cpu": "4000", "memory": "16Ti", "nvidia.com/gpu": "1000"}
            pool = cluster.playbook("platform", platform_operators=[], platform_queue=POOL, platform_queue_quota=quota)
            if pool.code:
                sys.exit(pool.text[-3000:])
            bare, unit = cluster.objects(), question(cluster, folder)
            print(f"{'a question':12} {unit:6.2f} s", flush=True)
            for what in counts:
                if what.endswith("removed"):
                    run(what, attendees_state="absent")
                    good[what] = cluster.objects() == bare and not dest.exists()
                    continue
                unchanged = run(what).changed == 0
                good[what] = unchanged if what == "made again" else complete(cluster.client, dest, counts[what])
        finally:
            server.stop()
    result: dict[str, Any] = {"seconds": {"a question": round(unit, 2), **seconds}, "places": counts, "good": good}
    result["hardware"] = {"cores": os.cpu_count(), "load": os.getloadavg()[0]}
    bounds = {f"questions: {counts[what]} places {what}": (seconds[what] / unit, BOUNDS[what]) for what in counts}
    return outcome.end(args, result, equal=all(good.values()), at_most=bounds)


if __name__ == "__main__":
    sys.exit(main())
