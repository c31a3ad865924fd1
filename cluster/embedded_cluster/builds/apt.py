"""Installs the Debian packages that this checkout needs, if this process may; called by commands.py first."""

from __future__ import annotations

import fcntl
import os
import shlex
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from embedded_cluster.base import ends, locks, paths, patience, say, system

PACKAGES = ("ca-certificates", "debian-archive-keyring", "iproute2", "mmdebstrap", "python3-venv")
"""Those of preflight.TOOLS that a minimal Debian or Ubuntu lacks, and what they depend on."""
LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")
JOURNAL = Path("/var/lib/dpkg/updates")
"""Of dpkg's database: a file with a number as its name is of a dpkg that was cut short, and apt-get refuses to start."""
WAIT_SECONDS = 600.0
MAX_QUOTED = 200
"""Characters of apt's error that our message quotes."""
UNREACHED = "cannot reach Debian's package archive"
NETWORK = ("Failed to fetch", "Release file")
"""What apt says, in English, of an archive or of a proxy that does not answer, or not with the archive."""
REMEDY = "check the network, its proxy (http_proxy, https_proxy) and /etc/apt/sources.list"
_FLOCK = struct.Struct("hhlli4x")  # struct flock of fcntl(2) on 64-bit Linux: type, whence, start, length, pid


def installed() -> set[str]:
    """Names of the packages that dpkg has installed."""
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n"], capture_output=True, text=True, check=False
    )
    return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("installed ")}


def holder() -> str:
    """Who holds one of apt's locks, e.g. `apt-get (process 123)`; empty when nobody does."""
    for lock in map(Path, LOCKS):
        if not lock.exists():
            continue
        with lock.open("rb+") as file:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, *__, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
        if kind != fcntl.F_UNLCK:
            name = Path(f"/proc/{pid}/comm")
            return f"{name.read_text().strip() if name.exists() else 'a process elsewhere'} (process {pid})"
    return ""


def ensure(packages: Sequence[str] = PACKAGES) -> None:
    """Install what a minimal Debian or Ubuntu lacks of these packages; nothing elsewhere or without root."""
    if not system.has_apt() or not (missing := _missing(packages)):
        return
    with locks.waiting(paths.HOME / "apt.lock", "another command is installing Debian packages"):
        if missing := _missing(packages):
            _install(missing)


def _missing(packages: Sequence[str]) -> list[str]:
    present = installed()
    return [package for package in packages if package not in present]


def _install(packages: Sequence[str]) -> None:
    """Wait for another apt, then install. Raises say.UserError with apt's last lines."""
    limit = patience.seconds(WAIT_SECONDS)
    with say.step(f"Debian packages: {' '.join(packages)}"):
        _wait(limit)
        if any(entry.name.isdigit() for entry in JOURNAL.glob("*")):
            with ends.uncut("dpkg"):
                _run("dpkg", "--configure", "-a")
        patient = ("-o", f"DPkg::Lock::Timeout={limit:.0f}")
        # By default an unreachable archive is a warning here, and an unknown package name for the next command.
        _run("apt-get", "update", *patient, "-qq", "-o", "APT::Update::Error-Mode=any")
        install = ("apt-get", "install", *patient, "-y", "-qq", "--no-install-recommends", *packages)
        _run(*install, "--download-only")  # by itself, as this may be cut short
        with ends.uncut("apt-get"):
            _run(*install)


def _wait(limit: float) -> None:
    """Wait for another apt; raises say.UserError with its name after `limit` seconds."""
    began, announced = time.monotonic(), ""
    while other := holder():
        if other != announced:
            say.info(f"{other} is using apt: waiting for it")
            announced = other
        if time.monotonic() - began > limit:
            raise say.UserError(
                f"{other} has been using apt for {limit:.0f} s: wait for it or end it, then run this again"
            )
        time.sleep(1)


def _run(*command: str) -> None:
    """Run a command, where the terminal's Ctrl-C does not reach it; raises say.UserError with the reason that it gives."""
    done = subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        start_new_session=True,
    )
    if done.returncode:
        output = done.stderr or done.stdout
        what = f"{command[0]} {command[1]}: {reason(output)}"
        if any(words in output for words in NETWORK):
            raise say.UserError(f"{UNREACHED}: {what}; {REMEDY}")
        raise say.UserError(f"cannot install: {what}; run `{shlex.join(command)}` to see the rest of what it says")


def reason(output: str) -> str:
    """Return the first error in the output of apt, or of mmdebstrap quoting apt: the later ones repeat it."""
    lines = output.strip().splitlines()
    return next((line for line in lines if line.startswith("E:")), lines[-1] if lines else "")[:MAX_QUOTED]
