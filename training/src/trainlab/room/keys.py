"""The room's secret: signed cookies, and what is derived from it; made at first start where none is given."""

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

from trainlab.errors import UserError

VARIABLE, LINK_VARIABLE = "TRAINLAB_ROOM_KEY", "TRAINLAB_ROOM_LINK"
MIN_BYTES = 16
_VALUE = re.compile(r"([0-9a-z]{1,32})\.([0-9a-f]{64})")


class Key:
    """Signs; compares in constant time."""

    def __init__(self, secret: bytes, link: str = "") -> None:
        """`link` is the secret part of the presenter's link; empty derives it."""
        self._secret = secret
        self.link = link or self.derive("presenter-link")

    def derive(self, *parts: str) -> str:
        """Return 64 hex digits that only the holder of the key can compute."""
        return hmac.new(self._secret, "\0".join(parts).encode(), hashlib.sha256).hexdigest()

    def sign(self, purpose: str, value: str) -> str:
        """Return the cookie for `value` ([0-9a-z]{1,32})."""
        return f"{value}.{self.derive(purpose, value)}"

    def read(self, purpose: str, cookie: str | None) -> str | None:
        """Return the value of a cookie that `sign` made for the same purpose, else None."""
        match = _VALUE.fullmatch(cookie or "")
        if match and hmac.compare_digest(match[2], self.derive(purpose, match[1])):
            return match[1]
        return None

    def opens(self, secret: str) -> bool:
        """Say whether `secret` is the secret part of the presenter's link."""
        return hmac.compare_digest(secret.encode(), self.link.encode())


def load(state: Path, file: Path | None = None) -> Key:
    """Return the key of `file`, else of TRAINLAB_ROOM_KEY, else of the state folder, where it is made.

    TRAINLAB_ROOM_LINK is the secret part of the presenter's link, where a Secret has it. Raises UserError.
    """
    if file is None and (text := os.environ.get(VARIABLE)):
        return _checked(text.encode(), VARIABLE)
    path = file or state / "key"
    try:
        if file is None:
            state.mkdir(parents=True, exist_ok=True)
            try:
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                    stream.write(secrets.token_hex(32))
            except FileExistsError:
                pass
        return _checked(path.read_bytes().strip(), str(path))
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}; name a file with the room's key, or a --state that can be written"
        ) from None


def _checked(secret: bytes, where: str) -> Key:
    if len(secret) < MIN_BYTES:
        raise UserError(
            f"{where}: the room's key has {len(secret)} bytes, which can be guessed; use {MIN_BYTES} or more"
        )
    link = os.environ.get(LINK_VARIABLE, "")
    if link and not re.fullmatch(f"[0-9A-Za-z]{{{MIN_BYTES},64}}", link):
        raise UserError(f"{LINK_VARIABLE}: must be {MIN_BYTES} to 64 letters and digits, as it is part of an address")
    return Key(secret, link)
