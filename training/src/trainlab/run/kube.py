"""A minimal in-cluster client for the Kubernetes API: get, server-side apply and delete; used by promote, lease and the room.

Nothing else in the image needs the `kubernetes` package, and importing it takes longer than this work.
"""

import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from trainlab.errors import UserError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MANAGER = "trainlab-promote"
TIMEOUT, PAUSE = 120.0, 2.0  # seconds: how long to retry a failing API server, and the wait between tries


def own_namespace(account: Path = ACCOUNT) -> str:
    """Return the namespace of this pod; raises UserError without a mounted service account."""
    try:
        return (account / "namespace").read_text().strip()
    except OSError as error:
        raise UserError(f"{account / 'namespace'}: {error.strerror}; mount the service account's token") from None


class Kube:
    """Authenticates as the pod's service account; retries while the API server is unreachable or overloaded."""

    def __init__(self, address: str, account: Path) -> None:
        self._account = account
        try:
            context = ssl.create_default_context(cafile=str(account / "ca.crt"))
        except OSError as error:
            raise UserError(f"{account / 'ca.crt'}: {error.strerror}; mount the service account's token") from None
        self._client = httpx.Client(base_url=address, verify=context, timeout=30, trust_env=False)

    @classmethod
    def in_cluster(cls, env: Mapping[str, str], account: Path = ACCOUNT) -> Self:
        """Return a client for the API server of the cluster this pod runs in; raises UserError outside a cluster."""
        host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise UserError("KUBERNETES_SERVICE_HOST is not set: this works only in a pod")
        return cls(f"https://{f'[{host}]' if ':' in host else host}:{port}", account)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return one object."""
        return self._call("GET", path)

    def apply(self, path: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """Create or change one object by server-side apply; our fields win."""
        return self._call("PATCH", path, value)

    def find(self, path: str) -> dict[str, Any] | None:
        """Return one object, None where there is none."""
        return self._call("GET", path, absent=True) or None

    def delete(self, path: str, version: str | None = None, grace: int | None = None) -> bool:
        """Delete one object, or only its resourceVersion `version`; return False if it has changed. One that is gone is deleted.

        `grace` is the seconds that a pod has to end; None leaves that to the pod.
        """
        options: dict[str, Any] = {"preconditions": {"resourceVersion": version}} if version else {}
        options |= {} if grace is None else {"gracePeriodSeconds": grace}
        return bool(self._call("DELETE", path, options or None).get("code") != 409)

    def _call(
        self, method: str, path: str, value: Mapping[str, Any] | None = None, *, absent: bool = False
    ) -> dict[str, Any]:
        """Return the answer; with `absent` an empty one for what is not there, and for DELETE also that it has changed."""
        end = time.monotonic() + TIMEOUT
        while True:
            problem = ""
            try:
                reply = self._send(method, path, value)
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if absent and reply.status_code == 404:
                    return {}
                if reply.status_code < 300 or (method == "DELETE" and reply.status_code in (404, 409)):
                    return dict(reply.json()) | ({"code": 409} if reply.status_code == 409 else {})
                message = _message(reply)
                problem = f"HTTP {reply.status_code}: {message}"
                if reply.status_code != 429 and reply.status_code < 500:
                    raise UserError(f"{method} {path}: {problem}{_remedy(reply.status_code, message)}")
            if time.monotonic() + PAUSE > end:
                raise UserError(f"{method} {path}: gave up after {TIMEOUT:.0f} s; last: {problem}")
            print(f"trainlab: {method} {path}: {problem}; retrying", flush=True)
            time.sleep(PAUSE)

    def _send(self, method: str, path: str, value: Mapping[str, Any] | None) -> httpx.Response:
        token = (self._account / "token").read_text().strip()  # read each time: the kubelet rotates it
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        if value is None:
            return self._client.request(method, path, headers=headers)
        if method == "DELETE":
            return self._client.request(method, path, headers=headers, json=value)
        headers["Content-Type"] = "application/apply-patch+yaml"  # JSON is YAML
        query = {"fieldManager": MANAGER, "force": "true"}
        return self._client.request(method, path, headers=headers, params=query, json=value)


def _message(reply: httpx.Response) -> str:
    """Return the message of a Kubernetes Status, or the start of whatever was returned."""
    try:
        return str(reply.json()["message"])
    except (ValueError, KeyError, TypeError):
        return reply.text[:300]


def _remedy(status: int, message: str) -> str:
    # A webhook may answer with any status: for a HardwareProfile that is gone OpenShift AI's says 400 up to 3.4, 403 since 3.5.
    if "denied the request" in message:
        cause = "change what it refuses"
        if "hardware profile" in message:
            cause = "create that HardwareProfile, or name another one in site.hardwareProfile"
        return f"; {cause}, and train the same phase again: its run is kept, and only its promotion is repeated"
    if status == 403:
        return "; the Role of this pod's service account must allow it"
    if status == 404:
        return "; is KServe installed, and the release still there?"
    return ""
