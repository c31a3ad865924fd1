"""Short-lived kubeconfigs of ServiceAccounts: ask for a token, write it, tell whether an older one is still good."""

from __future__ import annotations

import base64
import binascii
import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from .kube import Json

LIFE_LEFT = 0.5
"""A token is renewed when less than this fraction of its lifetime is left."""


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
        found: Any = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError, binascii.Error):
        return {}
    return found if isinstance(found, dict) else {}


def token_in(file: Path) -> str:
    """Return the token of a kubeconfig of ours; empty without one."""
    try:
        config: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        return str(config["users"][0]["user"]["token"])
    except (OSError, yaml.YAMLError, KeyError, IndexError, TypeError):
        return ""


def still_serves(token: str, account_uid: str, now: datetime) -> bool:
    """Tell whether a token belongs to this ServiceAccount (a new one has another uid) and has enough lifetime left."""
    said = claims(token)
    account = ((said.get("kubernetes.io") or {}).get("serviceaccount") or {}).get("uid")
    if account != account_uid or not {"exp", "iat"} <= said.keys():
        return False
    return bool(said["exp"] - now.timestamp() > LIFE_LEFT * (said["exp"] - said["iat"]))


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
