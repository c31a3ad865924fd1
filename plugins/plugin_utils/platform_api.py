"""Server-side apply, discovery and retries on top of kube.Api; used by the action plugins platform_*.

One object costs two requests (get, apply) plus one discovery request for each API group, and no process is started per
object: a set of 30 objects is one task. Every request is safe to repeat, so a busy or restarting API server is retried.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

from ansible.errors import AnsibleActionFail

from . import kueue, labels
from .kube import (
    NOT_FOUND,
    READ_SECONDS,
    Api,
    ApiError,
    Json,
    Unreachable,
    with_retries,
)
from .waiting import StatusLines

MANAGER = "trainlab-platform"
"""The name under which server-side apply records our fields."""
FIELDS = "trainlab-fields"
"""The same for the fields that the inventory names in an object that is the administrator's."""
OWNER = "platform"
"""Value of the owner label on what these plugins create."""
UPLOAD_SECONDS = 360.0
"""instantiatebinary answers when the build's pod runs and has read the archive; OpenShift itself gives up after five minutes."""
CORE_GROUP = "v1"
CONFLICT = 409
DENIED = re.compile(r"admission webhook|denied (the )?request")
"""How the API server passes on what a webhook or a policy objects to: a 403, too, and no lack of rights."""
VOLATILE = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")


class PlatformApi(Api):
    """An API server that is changed by server-side apply; `requests` counts the requests sent."""

    def __init__(self, kubeconfig: str, context: str | None = None) -> None:
        """Find the connection, see kube.Api."""
        super().__init__(kubeconfig, context)
        self.requests = 0
        self._content_type = "application/json"
        self._resources: dict[str, dict[str, Json]] = {}

    def _headers(self) -> Any:
        headers = super()._headers()
        headers["Content-Type"] = self._content_type
        return headers

    def text(self, method: str, path: str, body: Json | bytes | None = None, **query: Any) -> str:
        """Send a request; an overloaded or absent server is asked again after 1, 2, 4 and 8 s."""

        def once() -> str:
            self.requests += 1
            return Api.text(self, method, path, body, **query)

        return with_retries(once, absent=True)

    def resource(self, api_version: str, kind: str) -> Json | None:
        """Return the discovery entry of a kind; None when the API server does not serve it (yet)."""
        if kind not in self._resources.get(api_version, {}):
            base = f"/api/{api_version}" if api_version == CORE_GROUP else f"/apis/{api_version}"
            resources = (self.get(base) or {}).get("resources", [])
            self._resources[api_version] = {
                resource["kind"]: resource for resource in resources if "/" not in resource["name"]
            }
        return self._resources[api_version].get(kind)

    def path(self, api_version: str, kind: str, namespace: str = "", name: str = "") -> str | None:
        """Return the path of an object, or of its collection without a name; None when the kind is not served."""
        resource = self.resource(api_version, kind)
        if resource is None:
            return None
        base = f"/api/{api_version}" if api_version == CORE_GROUP else f"/apis/{api_version}"
        scope = f"/namespaces/{namespace}" if resource["namespaced"] and namespace else ""
        return f"{base}{scope}/{resource['name']}" + (f"/{name}" if name else "")

    def look(self, api_version: str, kind: str, name: str, namespace: str = "") -> Json | None:
        """Return one object, None when it or its kind does not exist."""
        path = self.path(api_version, kind, namespace, name)
        item = self.get(path) if path else None
        return item and item | {"apiVersion": api_version, "kind": kind}

    def current(self, document: Json) -> Json | None:
        """Return what is there of a document, None without."""
        metadata = document["metadata"]
        return self.look(document["apiVersion"], document["kind"], metadata["name"], metadata.get("namespace", ""))

    def listed(self, api_version: str, kind: str, namespace: str = "", selector: str = "") -> list[Json]:
        """Return the objects of a kind, Kueue's in the version that is served; none where the kind is not."""
        api_version = kueue.version(self, api_version)
        path = self.path(api_version, kind, namespace)
        typed = {"apiVersion": api_version, "kind": kind}  # the API server's lists omit them
        return [item | typed for item in self.items(path, selector)] if path else []

    def patch(self, path: str, body: Json, **query: Any) -> Json:
        """Merge these fields into an object."""
        return self._send_as("application/merge-patch+json", path, body, **query)

    def apply(self, path: str, body: Json, dry_run: bool = False, manager: str = MANAGER, force: bool = True) -> Json:
        """Create or change an object by server-side apply.

        With `force` our fields win over any other manager's; without, ApiError 409 names the managers that set them otherwise.
        """
        query = {"fieldManager": manager, "force": str(force).lower()} | ({"dryRun": "All"} if dry_run else {})
        return self._send_as("application/apply-patch+yaml", path, body, **query)

    def put(
        self, document: Json, before: Json | None, dry_run: bool, manager: str = MANAGER, force: bool = True
    ) -> str:
        """Apply a document whose kind is served, of which `before` is there; return created, changed or unchanged.

        A dry run answers `would create` or `would change`. `manager` and `force` are those of `apply`.
        """
        metadata = document["metadata"]
        path = self.path(document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"])
        try:
            after = self.apply(str(path), document, dry_run, manager, force)
        except ApiError as error:
            if dry_run and before is None and error.status == NOT_FOUND:  # its namespace would have been created before
                return "would create"
            raise
        if before is not None and plain(before) == plain(after):  # the quantity 1000m, too, which is stored as 1
            return "unchanged"
        word = "create" if before is None else "change"
        return f"would {word}" if dry_run else f"{word}d"

    def _send_as(self, content_type: str, path: str, body: Json, **query: Any) -> Json:
        self._content_type = content_type
        try:
            return self.send("PATCH", path, body, **query)
        finally:
            self._content_type = "application/json"

    def upload(self, path: str, content: bytes) -> Json:
        """Send a file once and return the answer's object; it is not repeated, since each upload starts something."""
        self._content_type, self.read_seconds = "application/octet-stream", UPLOAD_SECONDS
        self.requests += 1
        try:
            answer: Json = json.loads(Api.text(self, "POST", path, content))
        finally:
            self._content_type, self.read_seconds = "application/json", READ_SECONDS
        return answer

    def delete(self, path: str, uid: str = "", policy: str = "Background") -> bool:
        """Delete an object and what it owns, with policy Foreground before itself; False when it was not there.

        One with another `uid` is not touched: an operator recreated it after a deletion whose answer was lost.
        """
        body: Json = {"propagationPolicy": policy} | ({"preconditions": {"uid": uid}} if uid else {})
        try:
            self.send("DELETE", path, body)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return False
            if not (uid and error.status == CONFLICT):
                raise
        return True


def ours(item: Json) -> bool:
    """Tell whether the platform role created this object."""
    return (item["metadata"].get("labels") or {}).get(labels.OWNER) == OWNER


def editors(item: Json) -> list[str]:
    """Return who else set fields of an object of ours, by the names of their field managers; its status and metadata do not count."""
    return sorted(
        {
            entry.get("manager", "")
            for entry in item["metadata"].get("managedFields") or []
            if entry.get("manager") not in (MANAGER, FIELDS)
            and not entry.get("subresource")
            and set(entry.get("fieldsV1") or {}) - {"f:metadata", "f:status"}
        }
    )


def plain(item: Json) -> Json:
    """Return the object without what the server itself keeps updating, and without what its lists omit."""
    metadata = {key: value for key, value in item["metadata"].items() if key not in VOLATILE}
    left = {key: value for key, value in item.items() if key not in ("apiVersion", "kind", "status")}
    return left | {"metadata": metadata}


def title(document: Json) -> str:
    """Name an object for people, e.g. `Subscription openshift-nfd/nfd`."""
    metadata = document["metadata"]
    namespace = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{document['kind']} {namespace}{metadata['name']}"


def failure(error: Exception, doing: str) -> AnsibleActionFail:
    """Turn an error of a request into the sentence that the user sees."""
    if isinstance(error, Unreachable):
        return AnsibleActionFail(f"{doing}: the API server does not answer ({error}); the run can simply be repeated")
    status = error.status if isinstance(error, ApiError) and not DENIED.search(str(error)) else 0
    remedy = {
        401: "; log in again: the credentials in trainlab_kubeconfig have expired",
        403: "; use a trainlab_kubeconfig with cluster-admin rights, or let an administrator run playbooks/platform.yml",
    }.get(status, "")
    return AnsibleActionFail(f"{doing}: {error}{remedy}")


def remove(
    api: PlatformApi, items: list[Json], timeout: float, poll: float, lines: StatusLines, policy: str = "Background"
) -> None:
    """Delete `things` (with apiVersion and kind); AnsibleActionFail names what blocks one that is still there.

    `timeout` and `poll` are seconds. An object of the same name but another uid is not the one to remove.
    """
    pending = {}
    for item in items:
        metadata = item["metadata"]
        path = str(api.path(item["apiVersion"], item["kind"], metadata.get("namespace", ""), metadata["name"]))
        if api.delete(path, metadata["uid"], policy):
            pending[path] = item
    end = time.monotonic() + timeout
    while pending:
        for path, item in list(pending.items()):
            now = api.get(path)
            if now is None or now["metadata"]["uid"] != item["metadata"]["uid"]:
                del pending[path]
                lines.say(f"{title(item)}: gone")
            elif time.monotonic() > end:
                raise AnsibleActionFail(
                    f"{title(item)} is still there {timeout:.0f} s after it was deleted, held by {held(now)}; check that "
                    "its operator is running, then run the same playbook again: it continues from here"
                )
            else:
                lines.changed(title(item), "waits for its finalizers")
        if pending:
            time.sleep(poll)


def held(item: Json) -> str:
    """Return what keeps a deleted object: its finalizers and, for a namespace, what the controller reports."""
    finalizers = item["metadata"].get("finalizers") or (item.get("spec") or {}).get("finalizers") or ["nothing known"]
    conditions = (item.get("status") or {}).get("conditions") or []
    bad = [f"{each.get('type')}: {each.get('message')}" for each in conditions if each.get("status") == "True"]
    return "; ".join([", ".join(finalizers), *bad])
