"""Installs the Debian packages that this checkout needs, if this process may; called by commands.py first."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from embedded_cluster import locks, paths, say, system

PACKAGES = ("ca-certificates", "debian-archive-keyring", "iproute2", "mmdebstrap", "python3-venv")
"""Those of preflight.TOOLS that a minimal Debian or Ubuntu lacks, and what they depend on."""
LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")
WAIT_SECONDS = 600.0
LONGEST = 200
"""Characters of apt's error that our message quotes."""
UNREACHED = "cannot reach Debian's package archive"
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
            kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
        if kind != fcntl.F_UNLCK:
            name = Path(f"/proc/{pid}/comm")
            return f"{name.read_text().strip() if name.exists() else 'a process elsewhere'} (process {pid})"
    return ""


def ensure() -> None:
    """Install what a minimal Debian or Ubuntu lacks of PACKAGES; nothing elsewhere or without root."""
    if not system.has_apt() or not (missing := _missing()):
        return
    with locks.waiting(paths.HOME / "apt.lock", "another command is installing Debian packages"):
        if missing := _missing():
            _install(missing)


def _missing() -> list[str]:
    there = installed()
    return [package for package in PACKAGES if package not in there]


def _install(packages: Sequence[str]) -> None:
    """Wait for another apt, then install. Raises say.UserError with apt's last lines."""
    began = time.monotonic()
    with say.step(f"Debian packages: {' '.join(packages)}"):
        told = ""
        while other := holder():
            if other != told:
                say.info(f"{other} is using apt: waiting for it")
                told = other
            if time.monotonic() - began > WAIT_SECONDS:
                raise say.UserError(
                    f"{other} has been using apt for {WAIT_SECONDS:.0f} s: wait for it or end it, then run this again"
                )
            time.sleep(1)
        # By default an unreachable archive is a warning here, and an unknown package name for the next command.
        _apt(UNREACHED, "update", "-qq", "-o", "APT::Update::Error-Mode=any")
        _apt("cannot install", "install", "-y", "-qq", "--no-install-recommends", *packages)


def _apt(failed: str, *arguments: str) -> None:
    done = subprocess.run(
        ["apt-get", "-o", f"DPkg::Lock::Timeout={WAIT_SECONDS:.0f}", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise say.UserError(f"{failed}: apt-get {arguments[0]}: {reason(done.stderr or done.stdout)}; {REMEDY}")


def reason(said: str) -> str:
    """Return the first error in the output of apt, or of mmdebstrap quoting apt: the later ones repeat it."""
    lines = said.strip().splitlines()
    return next((line for line in lines if line.startswith("E:")), lines[-1] if lines else "")[:LONGEST]
