"""The user's login for a registry, from the files that podman, buildah, skopeo and docker write; called by push.py.

Format and order of the files: containers-auth.json(5). Credential helpers are programs of the user's machine, which the
root folder that pushes does not have.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedded_cluster.base import say

KEY = "image_push_auth_file"


@dataclass(frozen=True)
class Login:
    """What one file says about a registry: the `auths` entry, the file it is from, user and password where it has them."""

    file: Path
    name: str
    entry: dict[str, Any]

    def pair(self) -> tuple[str, str] | None:
        """User and password; None for a token, which only the registry can judge."""
        if self.entry.get("identitytoken") or not self.entry.get("auth"):
            return None
        words = base64.b64decode(self.entry["auth"]).decode(errors="replace").split(":", 1)
        return (words[0], words[1]) if len(words) > 1 else None

    def document(self) -> str:
        """Return an authentication file with this entry alone."""
        return json.dumps({"auths": {self.name: self.entry}})


def files(authfile: str) -> list[Path]:
    """Where a login is looked for; `authfile`, else $REGISTRY_AUTH_FILE, else every file that the programs write unasked.

    Raises say.UserError for a file that is named and does not exist.
    """
    for key, name in ((KEY, authfile), ("REGISTRY_AUTH_FILE", os.environ.get("REGISTRY_AUTH_FILE", ""))):
        if name:
            file = Path(name).expanduser().absolute()
            if not file.is_file():
                raise say.UserError(f"{key} is {name}, and there is no such file; nothing was built")
            return [file]
    run = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/containers/{os.geteuid()}")
    return [
        run / "containers" / "auth.json" if os.environ.get("XDG_RUNTIME_DIR") else run / "auth.json",
        Path.home() / ".config" / "containers" / "auth.json",
        Path.home() / ".docker" / "config.json",
    ]


def find(repository: str, authfile: str) -> Login | None:
    """The first login for `repository` (HOST/NAME), by its longest name in a file; None where no file has one.

    Raises say.UserError for a file that cannot be read, and for one that keeps the login in a credential helper.
    """
    parts = repository.split("/")
    names = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    names += ["https://index.docker.io/v1/"] * (parts[0] == "docker.io")  # what docker itself writes for it
    for file in files(authfile):
        if not file.is_file():
            continue
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            entries, helpers = content.get("auths") or {}, content.get("credHelpers") or {}
        except (OSError, ValueError, AttributeError) as error:
            raise say.UserError(
                f"{file}: not an authentication file ({error}); `podman login --authfile {file} {parts[0]}` writes one, "
                f"and {KEY} names another; nothing was built"
            ) from error
        for name in names:
            if entries.get(name):
                return Login(file, name, entries[name])
        if any(name in helpers or (name in entries and content.get("credsStore")) for name in names):
            raise say.UserError(
                f"{file}: the login for {parts[0]} is in a credential helper, which cannot be asked here; write it into a "
                f"file by `podman login --authfile FILE {parts[0]}` and name it in {KEY}; nothing was built"
            )
    return None
