"""A DaemonSet controller and a kubelet for tests: a pod per node that the template selects; pulls late or fails."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from api_server.client import Client

Json = dict[str, Any]
POLL_SECONDS = 0.3
BACK_OFF = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}


class Daemons:
    """Acts in its own thread; `broken` images cannot be pulled, others are present after `rounds` rounds."""

    def __init__(self, kubeconfig: Path) -> None:
        """Do nothing before `run`."""
        self._client, self._seen, self.broken = Client(kubeconfig), {}, set()  # type: ignore[var-annotated]
        self.rounds = 3

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Act in the meantime."""
        ended = threading.Event()

        def act() -> None:
            while not ended.wait(POLL_SECONDS):
                with contextlib.suppress(requests.HTTPError):  # another writer was faster; the next round sees it
                    self._step()

        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        yield
        ended.set()
        thread.join()

    def _step(self) -> None:
        for one in self._client.items("apps/v1", "DaemonSet"):
            self._one(one)

    def _one(self, daemons: Json) -> None:
        space, name = daemons["metadata"]["namespace"], daemons["metadata"]["name"]
        template = daemons["spec"]["template"]
        chosen = template["spec"].get("nodeSelector") or {}
        nodes = [
            each["metadata"]["name"]
            for each in self._client.items("v1", "Node")
            if (each["metadata"].get("labels") or {}).items() >= chosen.items()
        ]
        images = [each["image"] for each in template["spec"]["containers"]]
        ready = 0
        for node in nodes:
            ready += self._pod(space, f"{name}-{node}", node, daemons, images)
        numbers = {"desiredNumberScheduled": len(nodes), "currentNumberScheduled": len(nodes), "numberMisscheduled": 0}
        status = {"numberReady": ready, "updatedNumberScheduled": len(nodes)} | numbers
        self._client.status(daemons, status | {"observedGeneration": daemons["metadata"]["generation"]})

    def _pod(self, space: str, name: str, node: str, daemons: Json, images: list[str]) -> int:
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": True}
        owner |= {key: daemons["metadata"][key] for key in ("name", "uid")}
        found = self._client.look("v1", "Pod", name, space)
        wanted = daemons["spec"]["template"]
        if found and [each["image"] for each in found["spec"]["containers"]] != images:
            self._client.send("DELETE", f"/api/v1/namespaces/{space}/pods/{name}", gracePeriodSeconds=0)
            return 0
        if found is None:
            metadata = {
                "name": name,
                "namespace": space,
                "labels": wanted["metadata"]["labels"],
                "ownerReferences": [owner],
            }
            made = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": wanted["spec"] | {"nodeName": node},
            }
            self._client.send("POST", f"/api/v1/namespaces/{space}/pods", made)
            return 0
        uid = found["metadata"]["uid"]
        self._seen[uid] = self._seen.get(uid, 0) + 1
        bad = bool(self.broken & set(images))
        good = not bad and self._seen[uid] > self.rounds
        state = (
            {"waiting": BACK_OFF} if bad else {"running": {}} if good else {"waiting": {"reason": "ContainerCreating"}}
        )
        each = [
            {"name": f"image-{number}", "image": image, "imageID": "", "ready": good, "restartCount": 0, "state": state}
            for number, image in enumerate(images, 1)
        ]
        typed = found | {"apiVersion": "v1", "kind": "Pod"}
        self._client.status(typed, {"phase": "Running" if good else "Pending", "containerStatuses": each})
        return int(good)
