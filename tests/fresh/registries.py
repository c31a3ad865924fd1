"""A fresh machine's package registry settings: exactly those of this machine, read when a test runs.

A registry may be behind a proxy or a mirror that only this machine's configuration names, so that is copied into the
fresh machine, and nothing else. Called by roots.py and fresh_machine.py.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

FILES = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pip.conf",
    "/etc/xdg/pip/pip.conf",
)
VARIABLES = re.compile(
    r"PIP_\w+|GOPROXY|GOSUMDB|GONOSUMDB|GONOPROXY|GOPRIVATE|GOINSECURE|GOAUTH|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE"
    r"|(https?|all|no|ftp)_proxy|(HTTPS?|ALL|NO|FTP)_PROXY"
)
SUITES = re.compile(r"\b(bookworm|trixie|forky)\b")


def sources(suite: str) -> dict[str, str]:
    """Return name -> content of this machine's apt sources, rewritten for `suite`; nothing when this is not Debian."""
    release = platform.freedesktop_os_release()
    own = release.get("VERSION_CODENAME", "")
    if release.get("ID") != "debian" or not own:
        return {}
    folder = Path("/etc/apt/sources.list.d")
    result = {}
    for file in [Path("/etc/apt/sources.list"), *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))]:
        if not file.is_file():
            continue
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
        words = " ".join(lines).split()
        if own in words and "main" in words:
            result[file.name] = "\n".join(SUITES.sub(suite, line) for line in lines) + "\n"
    return result


def files(suite: str) -> dict[str, bytes]:
    """Return path -> content of everything that apt, pip and the resolver of the fresh machine should read."""
    result = {path: Path(path).read_bytes() for path in FILES if Path(path).is_file()}
    for file in sorted(Path("/etc/apt/apt.conf.d").glob("*")):
        if file.is_file() and re.search(rb"^\s*Acquire", file.read_bytes(), re.MULTILINE):
            result[str(file)] = file.read_bytes()
    own = sources(suite)
    if own:
        result |= {
            f"/etc/apt/sources.list.d/{name}": text.encode() for name, text in own.items() if name != "sources.list"
        }
        result["/etc/apt/sources.list"] = own.get("sources.list", "").encode()
    return result


def environment() -> dict[str, str]:
    """Return the variables that point pip, Go and everything else to their registries."""
    match = {key: value for key, value in os.environ.items() if VARIABLES.fullmatch(key)}
    return {**_go_settings(), **match}


def folders() -> list[Path]:
    """Return the folders and files of this machine that those variables name, to be mounted read-only."""
    words = {word.rstrip("/") for word in " ".join(environment().values()).split() if word.startswith("/")}
    own = {word for word in words if any(file == word or file.startswith(f"{word}/") for file in FILES)}
    return sorted(path for path in map(Path, words - own) if path.exists())


def _go_settings() -> dict[str, str]:
    file = Path(os.environ.get("GOENV") or Path.home() / ".config" / "go" / "env")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    pairs = (line.partition("=") for line in lines)
    return {key: value for key, _, value in pairs if VARIABLES.fullmatch(key)}
