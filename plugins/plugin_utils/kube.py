"""Plain requests to an API server over a connection (connection.py); used by every action plugin.

They go through the client library's configured connection pool as JSON, because cluster objects are read, not modeled.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlencode

from ansible.errors import AnsibleActionFail

from . import connection
from .connection import Connection
from .playbooks import embedded_words

Json = dict[str, Any]
CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
FORBIDDEN, NOT_FOUND = 403, 404
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OVERLOADED = {429, 500, 502, 503, 504}
"""What a busy or restarting API server, or a webhook behind it, answers for a while."""
PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds before a request is sent again."""
Answer = TypeVar("Answer")


class ApiError(Exception):
    """The API server answered with an error; `status` is the HTTP code, the text is the server's message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(Exception):
    """No usable answer at all: wrong address, certificate, or nothing listening."""


class Cut(Unreachable):
    """Connected, but the connection broke before the answer was complete."""


def with_retries(request: Callable[[], Answer], absent: bool) -> Answer:
    """Send a request that is safe to repeat; retry one that an overloaded server refused or that was cut off.

    `absent` says whether an unreachable server may come back, too.
    """
    for pause in PAUSES:
        try:
            return request()
        except ApiError as error:
            if error.status not in OVERLOADED:
                raise
        except Unreachable as error:
            if not absent and not isinstance(error, Cut):
                raise
        time.sleep(pause)
    return request()


class Api:
    """One API server; all methods raise ApiError for an HTTP error and Unreachable without an answer."""

    read_seconds = READ_SECONDS

    def __init__(self, kubeconfig: str, context: str | None = None) -> None:
        """Find the connection; AnsibleActionFail names the variable when it cannot be used."""
        from kubernetes.client import ApiClient

        self.connection: Connection = connection.find(kubeconfig, context or "")
        self.kubectl, self.oc = self.connection.command("kubectl"), self.connection.command("oc")
        self.server: str = self.connection.settings.host
        self._pool = ApiClient(self.connection.settings).rest_client.pool_manager

    def _headers(self) -> Any:
        from urllib3 import HTTPHeaderDict

        headers = HTTPHeaderDict({"Accept": "application/json, */*", "Content-Type": "application/json"})
        for name, value in self.connection.headers.items():
            for item in [value] if isinstance(value, str) else value:
                headers.add(name, item)
        token = self.connection.settings.auth_settings().get("BearerToken")
        if token and token.get("value"):
            headers["Authorization"] = token["value"]
        return headers

    def text(self, method: str, path: str, body: Json | bytes | None = None, **query: Any) -> str:
        """Send one request and return the answer's text; bytes are sent as they are."""
        from urllib3.exceptions import HTTPError, ProtocolError
        from urllib3.util import Timeout

        url = f"{self.server.rstrip('/')}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer = self._pool.request(
                method,
                url,
                body=body if body is None or isinstance(body, bytes) else json.dumps(body),
                headers=self._headers(),
                timeout=Timeout(connect=CONNECT_SECONDS, read=self.read_seconds),
                retries=False,
            )
        except ProtocolError as error:
            raise Cut(f"{self.server}: {error}") from error
        except HTTPError as error:
            raise Unreachable(f"{self.server}: {error}") from error
        text = answer.data.decode("utf-8", "replace")
        if answer.status >= 400:
            raise ApiError(answer.status, _message(text))
        return text

    def send(self, method: str, path: str, body: Json | None = None, **query: Any) -> Json:
        """Send one request and return the answer's JSON object."""
        answer: Json = json.loads(self.text(method, path, body, **query))
        return answer

    def get(self, path: str, **query: Any) -> Json | None:
        """Return one object, None when there is none."""
        try:
            return self.send("GET", path, **query)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def items(self, path: str, selector: str = "", **query: Any) -> list[Json]:
        """Return the objects of a list; empty also when the API serves no such kind."""
        if selector:
            query["labelSelector"] = selector
        result: list[Json] = (self.get(path, **query) or {}).get("items", [])
        return result

    def serves(self, group_version: str, resource: str) -> bool:
        """Tell whether the API server offers this resource, e.g. `kubeflow.org/v1`, `pytorchjobs`."""
        discovery = self.get(f"/apis/{group_version}") or {}
        return any(item["name"] == resource for item in discovery.get("resources", []))

    def may(self, verb: str, resource: str, group: str = "", namespace: str = "") -> bool:
        """Ask the API server whether this user may do that; `resource` may name a subresource, as `pods/log`."""
        name, _slash, part = resource.partition("/")
        wanted = {"group": group, "resource": name, "subresource": part, "verb": verb, "namespace": namespace}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = self.send("POST", REVIEWS, review | {"spec": {"resourceAttributes": wanted}})
        return bool((answer.get("status") or {}).get("allowed"))

    def log(self, namespace: str, pod: str, container: str, **query: Any) -> str:
        """Return a container's log; empty while there is none."""
        try:
            return self.text("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log", container=container, **query)
        except ApiError as error:
            if error.status in (400, NOT_FOUND):  # 400: the container has not started yet
                return ""
            raise


Connected = TypeVar("Connected", bound=Api)


def _message(text: str) -> str:
    """The sentence in a Status object, or the start of whatever else was answered."""
    try:
        status = json.loads(text)
    except ValueError:
        return text.strip()[:300]
    return str(status.get("message", text)) if isinstance(status, dict) else text[:300]


def condition(item: Json, kind: str) -> Json:
    """Return the condition of this type in an object's status, {} without one."""
    conditions = (item.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == kind), {})


def wrong_cluster(api: Api, expected: str) -> str:
    """Guard against the wrong kubeconfig: return what is wrong; empty if it is the expected cluster, or none is expected.

    The id of a cluster is the uid of its namespace kube-system, which every cluster has.
    """
    if not expected:
        return ""
    try:
        cluster_id = (api.get("/api/v1/namespaces/kube-system") or {"metadata": {}})["metadata"].get("uid", "none")
    except ApiError as error:
        return f"trainlab_cluster_id is set, but the cluster's id cannot be read ({error}); set it to '' for this user"
    if cluster_id == expected:
        return ""
    return (
        f"trainlab_cluster_id: {expected} is expected but {api.server} is cluster {cluster_id}; set trainlab_kubeconfig to the "
        f"right cluster, or trainlab_cluster_id to this one's (`{api.kubectl} get namespace kube-system -o "
        "jsonpath={.metadata.uid}`)"
    )


def connect(kubeconfig: str, context: str | None = None, sort: type[Connected] = Api) -> tuple[Connected, Json]:  # type: ignore[assignment]
    """Return the API and its /version; AnsibleActionFail with variable and remedy when it cannot be used."""
    api = sort(kubeconfig, context)
    try:
        version: Json = json.loads(with_retries(lambda: Api.text(api, "GET", "/version"), absent=False))
        json.loads(with_retries(lambda: Api.text(api, "GET", "/api"), absent=False))
    except Unreachable as error:
        raise AnsibleActionFail(
            f"{api.connection.origin}: the API server cannot be reached ({error}); start the cluster "
            f"(embedded: `ansible-playbook {embedded_words()}`) or set trainlab_kubeconfig to the right one"
        ) from error
    except ApiError as error:
        if error.status in OVERLOADED:
            raise AnsibleActionFail(
                f"{api.connection.origin}: {api.server} is overloaded or restarting ({error.status}: {error}); "
                "run the playbook again when it answers"
            ) from error
        raise AnsibleActionFail(
            f"{api.connection.origin}: {api.server} refuses these credentials ({error.status}: {error}); "
            "log in again, or set trainlab_kubeconfig to a kubeconfig with valid credentials"
        ) from error
    except ValueError as error:
        raise AnsibleActionFail(
            f"{api.connection.origin}: {api.server} is not a Kubernetes API server; set trainlab_kubeconfig "
            "to the kubeconfig of your cluster"
        ) from error
    return api, version
