"""An API server that serves training, serving and queue, without their operators; used by test_attendees.py and test_release.py."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import requests
import yaml
from attendee import until
from client import Client, condition
from crds import REPO
from server import Server

sys.path.insert(0, str(REPO / "tests" / "charts"))

import live
import upstream

KUEUE = "kueue.x-k8s.io/v1beta1"
QUEUES = ("clusterqueues", "localqueues", "resourceflavors", "workloads")
KUBEFLOW = "kubeflow.org/v1"
POLL_SECONDS = 0.5


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Start the server, with the true CRDs, a node that claims four GPUs, and a ClusterQueue."""
    one = Server(folder)
    one.start()
    try:
        live.install_crds(one)
        client = Client(one.kubeconfig)
        for kind in QUEUES:
            text = upstream.from_module("kueue", f"config/components/crd/bases/kueue.x-k8s.io_{kind}.yaml")
            crd = yaml.load(text, Loader=yaml.CSafeLoader)
            crd["spec"].pop("conversion", None)
            client.apply(json.loads(json.dumps(crd, default=str)))
        until(lambda: client.path(KUEUE, "LocalQueue") is not None)
        client.apply(live.node(4))
        path = "/api/v1/nodes/n1"
        client.send("PATCH", f"{path}/status", live.node(4), "application/merge-patch+json")
        client.apply({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "nvidia-pool"}, "spec": {}})
        yield one
    finally:
        one.stop()


def free_claims(client: Client) -> None:
    """Take away the finalizers whose controller does not run here."""
    for kind in ("PersistentVolumeClaim", "PersistentVolume"):
        for one in client.items("v1", kind):
            client.merge(one, {"metadata": {"finalizers": None}})


@contextlib.contextmanager
def trainer(kubeconfig: Path) -> Iterator[None]:
    """Act as the training operator meanwhile: each PyTorchJob has succeeded at once; claims may go."""
    client, ended = Client(kubeconfig), threading.Event()

    def act() -> None:
        while not ended.wait(POLL_SECONDS):
            with contextlib.suppress(requests.HTTPError):  # somebody else was faster; the next round sees it
                for job in client.items(KUBEFLOW, "PyTorchJob"):
                    if not job.get("status"):
                        client.status(job, {"conditions": [condition("Succeeded", True)], "replicaStatuses": {}})
                free_claims(client)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()
