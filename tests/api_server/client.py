"""A minimal client of the test API server, independent of the collection's own client, which it helps to test."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests
import yaml

Json = dict[str, Any]
SECONDS = 60
TRIES = 20
UNSTABLE = {"Event", "Lease"}


class NotServed(LookupError):
    """The API server does not know this kind, as before its operator is there, or for a moment after."""


class Client:
    """Requests as the user of a kubeconfig that holds a token; errors of the server raise requests.HTTPError."""

    def __init__(self, kubeconfig: Path) -> None:
        """Read address, certificate and token."""
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        self.server: str = cluster["server"]
        self._session = requests.Session()
        self._session.trust_env = False  # the server is on loopback: no proxy
        self._session.verify = cluster["certificate-authority"]
        self._session.headers["Authorization"] = f"Bearer {config['users'][0]['user']['token']}"
        self._resources: dict[str, dict[str, Json]] = {}

    def send(
        self, method: str, path: str, body: Json | None = None, kind: str = "application/json", **query: Any
    ) -> Json:
        """Send a request and return the response's object; retry when the server asks for that (429)."""
        for left in range(TRIES, 0, -1):
            answer = self._session.request(
                method,
                f"{self.server}{path}",
                data=None if body is None else json.dumps(body),
                headers={"Content-Type": kind},
                params=query,
                timeout=SECONDS,
            )
            if answer.status_code != 429 or left == 1:
                break
            time.sleep(float(answer.headers.get("Retry-After", 1)))
        if answer.status_code >= 400:
            raise requests.HTTPError(f"{method} {path}: {answer.status_code} {answer.text[:600]}", response=answer)
        result: Json = answer.json()
        return result

    def get(self, path: str, **query: Any) -> Json | None:
        """Return an object, None when it is not there."""
        try:
            return self.send("GET", path, **query)
        except requests.HTTPError as error:
            if error.response is not None and error.response.status_code == 404:
                return None
            raise

    def watch(self, path: str, since: str, seconds: int = 60) -> Iterator[Json]:
        """Yield each state of the objects of a collection after this resource version, none left out, for that long."""
        query: dict[str, str | int] = {"watch": "1", "resourceVersion": since, "timeoutSeconds": seconds}
        with self._session.get(f"{self.server}{path}", params=query, stream=True, timeout=seconds + SECONDS) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                yield json.loads(line)["object"]

    def ready(self) -> bool:
        """Tell whether the server reports that all of it has started."""
        return self._session.get(f"{self.server}/readyz", timeout=SECONDS).status_code == 200

    def resources(self, api_version: str, fresh: bool = False) -> dict[str, Json]:
        """Return what the server serves of a group, by kind."""
        if fresh or api_version not in self._resources:
            found = (self.get(f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}") or {}).get(
                "resources", []
            )
            self._resources[api_version] = {one["kind"]: one for one in found if "/" not in one["name"]}
        return self._resources[api_version]

    def path(self, api_version: str, kind: str, name: str = "", namespace: str = "") -> str | None:
        """Return the path of an object or a collection, None for a kind that is not served."""
        one = self.resources(api_version).get(kind) or self.resources(api_version, fresh=True).get(kind)
        if one is None:
            return None
        base = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
        scope = f"/namespaces/{namespace}" if one["namespaced"] and namespace else ""
        return f"{base}{scope}/{one['name']}" + (f"/{name}" if name else "")

    def look(self, api_version: str, kind: str, name: str, namespace: str = "") -> Json | None:
        """Return one object, None when it or its kind is not there."""
        path = self.path(api_version, kind, name, namespace)
        return self.get(path) if path else None

    def items(self, api_version: str, kind: str, namespace: str = "", **query: Any) -> list[Json]:
        """Return all objects of a kind."""
        path = self.path(api_version, kind, "", namespace)
        found = (self.get(path, **query) if path else None) or {}
        return [{"apiVersion": api_version, "kind": kind} | item for item in found.get("items", [])]

    def objects(self) -> set[str]:
        """Name every object in the API server."""
        groups = (self.get("/apis") or {})["groups"]
        versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]
        return {
            f"{version} {kind} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}"
            for version in versions
            for kind, resource in self.resources(version, fresh=True).items()
            if "list" in resource["verbs"] and kind not in UNSTABLE
            for one in self.items(version, kind)
        }

    def apply(self, thing: Json, manager: str = "test-operators") -> Json:
        """Create or change an object by server-side apply."""
        metadata = thing["metadata"]
        path = self.path(thing["apiVersion"], thing["kind"], metadata["name"], metadata.get("namespace", ""))
        if path is None:
            raise NotServed(f"{thing['apiVersion']} {thing['kind']} is not served")
        return self.send("PATCH", path, thing, "application/apply-patch+yaml", fieldManager=manager, force="true")

    def merge(self, thing: Json, change: Json, part: str = "") -> Json:
        """Merge fields into an object, or into its `part` (status)."""
        metadata = thing["metadata"]
        path = self.path(thing["apiVersion"], thing["kind"], metadata["name"], metadata.get("namespace", ""))
        return self.send("PATCH", f"{path}{f'/{part}' if part else ''}", change, "application/merge-patch+json")

    def status(self, thing: Json, status: Json) -> Json:
        """Set fields of an object's status."""
        return self.merge(thing, {"status": status}, "status")

    def delete(self, thing: Json) -> None:
        """Delete an object; nothing happens when it is not there."""
        metadata = thing["metadata"]
        path = self.path(thing["apiVersion"], thing["kind"], metadata["name"], metadata.get("namespace", ""))
        if path and self.get(path):
            self.send("DELETE", path)


def condition(kind: str, good: bool, reason: str = "", message: str = "") -> Json:
    """Return a status condition."""
    return {
        "type": kind,
        "status": "True" if good else "False",
        "reason": reason or ("Ready" if good else "Waiting"),
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
