"""Who asks a served model, and how it is reached; called by the clients of served models."""

import os
import ssl
from pathlib import Path
from typing import Any

from trainlab.errors import UserError
from trainlab.serve import proxy

TOKEN, CA = "TRAINLAB_TOKEN_FILE", "TRAINLAB_CA_FILE"
"""Variables that name a file: the token to send, the CA certificates that the server's is checked against."""


def options(url: str) -> dict[str, Any]:
    """Return httpx's arguments for a request to `url`: proxy, token and certificates.

    The token is read each time, as the kubelet rotates it, and never sent over plain HTTP. Raises UserError for files that
    cannot be read.
    """
    found: dict[str, Any] = {"trust_env": proxy.asked(url)}
    if not url.lower().startswith("https://"):
        return found
    if os.environ.get(TOKEN):
        found["headers"] = {"Authorization": f"Bearer {_token(Path(os.environ[TOKEN]))}"}
    if os.environ.get(CA):
        found["verify"] = _trusting(Path(os.environ[CA]))
    return found


def _token(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UserError(f"{TOKEN} is {path}: {error.strerror}; name a file with a token, or unset it") from None


def _trusting(path: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(path))
    except ssl.SSLError:
        reason = "holds no certificate"
    except OSError as error:
        reason = str(error.strerror)
    raise UserError(f"{CA} is {path}: {reason}; name a file of PEM certificates, or unset it")
