"""The embedded cluster for real: it comes up, its nodes talk, and the host is unchanged afterwards.

About two minutes on two cores with programs and images in the cache; test_ending.py is about how it ends.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_cluster.containers import image_store, images, oci

from e2e import machine

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("no_cluster")]
# Hang guards for a busy machine; alone on two cores it takes about 9 and 19 seconds, down 1.
UP_SECONDS, DOWN_SECONDS = {1: 120, 2: 180}, 60
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {node}
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
    - name: main
      image: localhost/trainlab-resolves:1
      imagePullPolicy: Never
      command: [sh, -c, "echo hello from {node} > /tmp/index.html && exec httpd -f -p 8080 -h /tmp"]
"""


def _up(nodes: int) -> float:
    """Bring the cluster up and return its seconds."""
    begin = time.monotonic()
    assert machine.cluster("up", "--nodes", str(nodes)).endswith("changed=true\n")
    taken = time.monotonic() - begin
    assert len(machine.ready_nodes()) == nodes
    return taken


def test_older_tags_of_an_image_give_their_disk_back(tmp_path: Path) -> None:
    """Each lock file makes another image of 6 GB: the store keeps the newest, and what other images share with it.

    The next test brings up a cluster from what is left.
    """
    sources = []
    for tag in ("1", "2"):
        (tmp_path / tag).write_text(tag * 100)
        recipe = oci.Recipe({"same": Path(oci.__file__), "own": tmp_path / tag})
        oci.write(recipe, tmp_path / f"layout{tag}")
        manifest = oci.manifest_of(tmp_path / f"layout{tag}")
        sources.append(image_store.Source(tmp_path / f"layout{tag}", manifest, (f"localhost/trainlab-trial:{tag}",)))
    before = set(image_store.refs())
    image_store.add(sources)
    blobs = image_store.folder() / "root" / image_store.BLOBS
    old, new = ({blobs / digest for digest in oci.blobs_of(source.layout, source.manifest)} for source in sources)
    assert all(blob.exists() for blob in old | new)
    images.forget_older("localhost/trainlab-trial:2")
    assert set(image_store.refs()) == before | {"localhost/trainlab-trial:2"}
    assert all(blob.exists() for blob in new) and not any(blob.exists() for blob in old - new)
    image_store.forget(["localhost/trainlab-trial:2"])
    assert set(image_store.refs()) == before and not any(blob.exists() for blob in new)


@pytest.mark.rest  # survival and the room of the demo use both nodes
def test_two_nodes_talk_and_leave_no_trace(record_property: Callable[[str, object], None]) -> None:
    """Pods on both nodes reach each other and resolve Services; a second up changes nothing; down restores the host."""
    before = machine.snapshot()
    taken = _up(2)
    record_property("seconds_up_two_nodes", taken)
    assert taken < UP_SECONDS[2]
    assert list(machine.ready_nodes()) == ["n1", "n2"]
    _pods_talk()
    assert machine.cluster("up", "--nodes", "2").endswith("changed=false\n")
    _unseen_down_does_no_harm()
    status = json.loads(machine.cluster("status"))
    assert status["nodes"] == {"n1": True, "n2": True}
    begin = time.monotonic()
    assert machine.cluster("down").endswith("changed=true\n")
    taken = time.monotonic() - begin
    record_property("seconds_down_two_nodes", taken)
    assert taken < DOWN_SECONDS
    assert machine.changes(before, machine.snapshot()) == {}
    assert machine.cluster("down").endswith("changed=false\n")


def _unseen_down_does_no_harm() -> None:
    """`down` in a container with the host's network and cgroups, which sees none of the cluster's processes."""
    command = ["unshare", "--fork", "--pid", "--mount-proc", *machine.command("down")]
    done = subprocess.run(command, env=machine.ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "of another PID namespace" in done.stderr, done.stderr
    assert list(machine.ready_nodes()) == ["n1", "n2"]


def _pods_talk() -> None:
    machine.kubectl("apply", "-f", "-", stdin="---".join(POD.format(name=f"on-{n}", node=n) for n in ("n1", "n2")))
    machine.kubectl("wait", "--for=condition=Ready", "pod/on-n1", "pod/on-n2", "--timeout=60s")
    for own, other in (("n1", "n2"), ("n2", "n1")):
        address = machine.kubectl("get", "pod", f"on-{other}", "-o", "jsonpath={.status.podIP}")
        # by the node's CNI configuration; its podCIDR, which no program of the cluster reads, is another one after a conflict
        assert address.startswith(f"{machine.PODS}.{int(other[1:]) - 1}."), address
        url = f"http://{address}:8080/index.html"
        assert machine.kubectl("exec", f"on-{own}", "--", "wget", "-qO-", url) == f"hello from {other}\n"
        name = "kubernetes.default.svc.cluster.local"
        assert machine.kubectl("exec", f"on-{own}", "--", "resolves", name) == f"{machine.SERVICES}.0.1\n"


def test_bad_arguments_are_explained() -> None:
    """A wrong node count and an unknown node give one line with the remedy."""
    assert "error: --nodes 9: give 1 to 4" in machine.cluster("up", "--nodes", "9", code=2)
    assert "error: node 'n7' is not running; running: " in machine.cluster("exec", "n7", "true", code=2)
    assert "no such file or folder" in machine.cluster("load", "/nonexistent.tar", code=2)
