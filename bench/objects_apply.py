"""Is our own objects_apply worth keeping next to kubernetes.core.k8s? The same objects with both, on a real API server.

PYTHONPATH=cluster:tests python bench/objects_apply.py [--places 40] [--json FILE]
Starts the test API server, applies the objects of PLACES namespaces with each module, then again with nothing to change. Prints
the seconds of the module itself (minus those of the same play without it, the fastest of three); exits with 1 when the two leave
different objects, when the second run changed something, when there are no such seconds, or when our speedup is below FLOORS.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import outcome
from api_server.client import Client, Json
from api_server.server import Server

FLOORS = (1.5, 4.0)
"""Required speedup of the first run, and of the second, in which nothing changes."""
REPO = Path(__file__).resolve().parents[1]
OURS = "trainlab"
"""Substring of the label and annotation keys that only our module writes."""


def documents(prefix: str, places: int) -> list[Json]:
    """Return the namespaces with the objects that an attendee gets."""
    result: list[Json] = []
    for number in range(places):
        space = f"{prefix}-{number}"
        result.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
        subject = {"kind": "ServiceAccount", "name": "someone", "namespace": space}
        for kind, api, body in (
            ("ServiceAccount", "v1", {}),
            ("ConfigMap", "v1", {"data": {"site.yaml": "queue: gpus"}}),
            ("ResourceQuota", "v1", {"spec": {"hard": {"requests.cpu": "4"}}}),
            ("LimitRange", "v1", {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
            ("NetworkPolicy", "networking.k8s.io/v1", {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}),
            (
                "RoleBinding",
                "rbac.authorization.k8s.io/v1",
                {
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
                    "subjects": [subject],
                },
            ),
        ):
            result.append(
                {"apiVersion": api, "kind": kind, "metadata": {"name": "someone", "namespace": space}, **body}
            )
    return result


def play(module: str, arguments: Json) -> list[Json]:
    """Return a play with one task."""
    return [{"hosts": "localhost", "gather_facts": False, "tasks": [{"name": "Apply", module: arguments}]}]


def run(plays: list[Json], folder: Path) -> tuple[float, int]:
    """Run plays; return (seconds, changed tasks)."""
    file = folder / "play.json"
    file.write_text(json.dumps(plays), encoding="utf-8")
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    env = os.environ | {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "ANSIBLE_HOME": str(folder / "ansible")}
    began = time.monotonic()
    done = subprocess.run(
        [program, "-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}", str(file)],
        cwd=REPO,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode:
        sys.exit((done.stdout + done.stderr)[-3000:])
    return seconds, int(done.stdout.split("changed=")[1].split()[0])


def plain(client: Client, wanted: list[Json]) -> list[Json]:
    """Return the objects from the API server, without fields that differ between runs or are the module's own."""
    result = []
    for document in wanted:
        metadata = document["metadata"]
        path = client.path(document["apiVersion"], document["kind"], metadata["name"], metadata.get("namespace", ""))
        live = path and client.get(path)
        if not live:
            sys.exit(f"{document['kind']} {metadata} was not found")
        metadata = {"name": metadata["name"].rpartition("-")[2]}
        for key in ("labels", "annotations"):
            kept = {
                name: text
                for name, text in (live["metadata"].get(key) or {}).items()
                if OURS not in name and "last-applied" not in name and name != "kubernetes.io/metadata.name"
            }
            metadata |= {key: kept} if kept else {}
        rest = {key: value for key, value in live.items() if key not in ("metadata", "status", "subjects")}
        result.append(rest | {"metadata": metadata, "subjects": len(live.get("subjects") or [])})
    return result


def main() -> int:
    """Apply with both modules, twice; print and check."""
    parser = outcome.parser(__doc__)
    parser.add_argument("--places", type=int, default=40, help="number of namespaces (default %(default)s)")
    args = parser.parse_args()
    if args.smoke:
        args.places = 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Server(folder / "api")
        server.start()
        try:
            kubeconfig = str(server.kubeconfig)
            ours, theirs = documents("ours", args.places), documents("theirs", args.places)
            empty = min(run(play("ansible.builtin.debug", {"msg": ""}), folder)[0] for _ in range(3))
            own_play = play(
                "trainlab.rhoai.objects_apply", {"kubeconfig": kubeconfig, "owner": "bench", "documents": ours}
            )
            their_play = play("kubernetes.core.k8s", {"kubeconfig": kubeconfig, "apply": True, "definition": theirs})
            times: dict[str, list[float]] = {"objects_apply": [], "kubernetes.core.k8s": []}
            again = 0
            for repeated in (False, True):
                for module, plays in (("objects_apply", own_play), ("kubernetes.core.k8s", their_play)):
                    seconds, changed = run(plays, folder)
                    if seconds <= empty and not args.smoke:
                        sys.exit(
                            f"{module}: {seconds:.2f} s, no more than {empty:.2f} s of a play without it; try again"
                        )
                    times[module].append(max(0.01, round(seconds - empty, 2)))
                    again += repeated and changed
            client = Client(server.kubeconfig)
            same = plain(client, ours) == plain(client, theirs)
        finally:
            server.stop()
    ratios = [theirs / mine for mine, theirs in zip(*times.values(), strict=True)]
    for module, (first, second) in times.items():
        print(f"{module:20} {len(ours)} objects: {first:6.2f} s, again {second:6.2f} s")
    print(
        f"ratio {ratios[0]:.1f}, again {ratios[1]:.1f}; the minimum is {FLOORS}; {'equal' if same else 'DIFFERENT'}, again changed={again}"
    )
    result: dict[str, Any] = {
        "seconds": times,
        "ratios": ratios,
        "objects": len(ours),
        "cores": os.cpu_count(),
    }
    names = ("times as fast as kubernetes.core.k8s", "times as fast when nothing changes")
    floors = dict(zip(names, zip(ratios, FLOORS, strict=True), strict=True))
    return outcome.end(args, result, equal=same and not again, at_least=floors)


if __name__ == "__main__":
    sys.exit(main())
