"""Writes a kubeconfig for each attendee's ServiceAccount, with a token that expires by itself."""

from __future__ import annotations

import base64
import binascii
import json
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail

from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import Json

SITE = "site.yaml"
MIN_HOURS = 1.0
"""Below ten minutes the API server refuses; in less than an hour no training finishes."""
MAX_PARALLEL = 8
"""Requests in flight: each waits for a distant API server, and the client library's pool keeps five connections per processor."""
LIFE_LEFT = 0.5
"""A token is renewed when less than this fraction of its lifetime is left."""


class ActionModule(ClusterAction):
    """Creates what is missing or about to expire."""

    OPERATION = "a token for an attendee"

    def refuse(self, args: Json) -> None:
        """Refuse a lifetime in which no training finishes."""
        if args["hours"] < MIN_HOURS:
            raise AnsibleActionFail(f"attendees_hours is {args['hours']:g}; set it to {MIN_HOURS:g} or more")

    def run_on_cluster(self, args: Json) -> Json:
        """Write; returns changed, dest, written (names) and until, when the first of them expires."""
        folder = Path(args["dest"]).absolute()
        cluster = self.api.connection.cluster_entry(args["server"])
        try:
            return self._all(args, folder, cluster)
        except OSError as error:
            raise AnsibleActionFail(
                f"attendees_dest is {folder}: {error.strerror} ({error.filename}); name a folder that you may write to"
            ) from error

    def _all(self, args: Json, folder: Path, cluster: Json) -> Json:
        written, until = [], []
        for attendee, token in self._tokens(args, folder):
            if not token:
                written.append(attendee["name"])
                continue
            until.append(ends(token))
            text = kubeconfig_text(cluster, attendee["namespace"], attendee["name"], token)
            if not self.check and write(_file(folder, attendee), text):
                written.append(attendee["name"])
        site, changed = folder / SITE, bool(written)
        if not self.check and args["site"]:
            changed = write(site, f"---\n{yaml.safe_dump({'site': args['site']}, sort_keys=False)}") or changed
        elif not self.check and site.exists():
            site.unlink()
            changed = True
        first = min(until).strftime("%Y-%m-%d %H:%M UTC") if until else ""
        return {"changed": changed, "dest": str(folder), "written": written, "until": first}

    def _tokens(self, args: Json, folder: Path) -> Iterator[tuple[Json, str]]:
        """Yield each attendee, in their order, with the token that serves: empty where check mode asks for none."""
        account, seconds = args["service_account"], int(args["hours"] * 3600)

        def token_for(attendee: Json) -> str:
            path = f"/api/v1/namespaces/{attendee['namespace']}/serviceaccounts/{account}"
            service_account = self.api.get(path)
            token = token_in(_file(folder, attendee))
            if service_account is not None and still_serves(
                token, service_account["metadata"]["uid"], datetime.now(UTC), seconds
            ):
                return token
            if self.check:
                return ""
            fresh = self._token(path, seconds)
            # a server may grant less than is asked for: then a fresh token ends hardly later
            uid, now = (service_account or {}).get("metadata", {}).get("uid", ""), datetime.now(UTC)
            if still_serves(token, uid, now, 0) and ends(fresh) - ends(token) < LIFE_LEFT * (ends(fresh) - now):
                return token
            return fresh

        with ThreadPoolExecutor(MAX_PARALLEL) as several:
            yield from zip(args["attendees"], several.map(token_for, args["attendees"]), strict=True)

    def _token(self, path: str, seconds: int) -> str:
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        return str(self.api.send("POST", f"{path}/token", wanted)["status"]["token"])


def _file(folder: Path, attendee: Json) -> Path:
    return folder / f"{attendee['name']}.kubeconfig"


def kubeconfig_text(cluster: Json, namespace: str, user: str, token: str) -> str:
    """Return a kubeconfig with one context, whose namespace is the user's own."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "trainlab", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "trainlab", "context": {"cluster": "trainlab", "namespace": namespace, "user": user}}],
        "current-context": "trainlab",
    }
    return str(yaml.safe_dump(config, sort_keys=False))


def claims(token: str) -> Json:
    """Return the claims of a token, unverified; {} for anything that is not a token."""
    try:
        part = token.split(".")[1]
        result: Any = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError, binascii.Error):
        return {}
    return result if isinstance(result, dict) else {}


def token_in(file: Path) -> str:
    """Return the token of a kubeconfig of ours; empty without one."""
    try:
        config: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        return str(config["users"][0]["user"]["token"])
    except (OSError, yaml.YAMLError, KeyError, IndexError, TypeError):
        return ""


def still_serves(token: str, account_uid: str, now: datetime, seconds: int) -> bool:
    """Tell whether a token belongs to this ServiceAccount (a new one has another uid) and has enough of the wanted `seconds` left."""
    payload = claims(token)
    account = ((payload.get("kubernetes.io") or {}).get("serviceaccount") or {}).get("uid")
    if account != account_uid or not {"exp", "iat"} <= payload.keys():
        return False
    return bool(payload["exp"] - now.timestamp() > LIFE_LEFT * max(seconds, payload["exp"] - payload["iat"]))


def ends(token: str) -> datetime:
    """Return when a token expires."""
    return datetime.fromtimestamp(claims(token)["exp"], UTC)


def write(file: Path, text: str) -> bool:
    """Write a file atomically, readable only by its owner; False if it has that content already."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if file.exists() and file.read_text(encoding="utf-8") == text and file.stat().st_mode & 0o777 == 0o600:
        return False
    handle, part = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # mode 0600 from the first byte on
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    Path(part).replace(file)
    return True
