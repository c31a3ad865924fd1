"""Debian after the README's one line of requirements, as root folders below $TRAINLAB_HOME/cache.

They contain Debian's minimal set of packages, those of the line, and a plain user; they are never written to again.
Called by fresh_machine.py.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from embedded_cluster.base import locks, paths, programs, say

from fresh import registries

README = paths.REPO / "README.md"
LINE = re.compile(r"apt-get install --no-install-recommends ([a-z0-9][a-z0-9.+ -]*[a-z0-9])")
SUITES = {"12": "bookworm", "13": "trixie"}
USER = "user"
"""Name of the plain user, uid 1000."""


def needs() -> list[str]:
    """Return the packages of the README's line; ValueError when it has none, or more than one."""
    (found,) = LINE.findall(README.read_text(encoding="utf-8"))
    return str(found).split()


def debian(suite: str, more: Sequence[str] = ()) -> Path:
    """Return the root folder of this release with the README's packages and `more`, made when missing.

    Raises say.UserError with mmdebstrap's last lines.
    """
    packages = sorted({*needs(), *more})
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(packages)}"]
    command += ['--aptopt=APT::Install-Recommends "false"', "--skip=check/qemu"]
    if registries.sources(suite):  # the machine gets those under their own names, see registries.py
        command += ['--customize-hook=rm -f "$1"/etc/apt/sources.list.d/*']
    command += [f'--customize-hook=chroot "$1" useradd --create-home --shell /bin/bash --uid 1000 {USER}', suite]
    digest = hashlib.sha256(" ".join(command).encode()).hexdigest()[:12]
    target = paths.CACHE / f"fresh-{suite}-{digest}"
    with locks.waiting(paths.CACHE / f"fresh-{suite}.lock", f"another command makes a fresh {suite}: waiting for it"):
        if not target.is_dir():
            _make(command, target)
    return target


def _make(command: Sequence[str], target: Path) -> None:
    part = target.with_name(f"{target.name}.part")
    if part.exists():
        shutil.rmtree(part)
    suite = command[-1]
    with tempfile.TemporaryDirectory() as folder, say.step(f"fresh {suite}: {command[3]}"):
        for name, text in registries.sources(suite).items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        given = sorted(map(str, Path(folder).iterdir()))
        # mmdebstrap's helpers read Perl's locale and TMPDIR; this machine's other settings must not leak in
        env = {key: value for key, value in os.environ.items() if key in ("PATH", "TMPDIR") or "proxy" in key.lower()}
        done = subprocess.run(
            [*programs.isolated(), *command, str(part), *given],
            env={**env, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-8:])
        raise say.UserError(f"mmdebstrap of a fresh {suite} failed (exit {done.returncode}):\n{last}")
    part.replace(target)
