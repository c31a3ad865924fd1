"""Which operating system this is and what its users type to install something; called by preflight and the installers."""

from __future__ import annotations

import functools
import os
import platform
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from embedded_cluster.base.say import UserError

# family -> name in Debian -> name there, where they differ
RENAMED: dict[str, dict[str, str]] = {
    "fedora": {"iproute2": "iproute", "mount": "util-linux", "python3-venv": "python3"},
    "suse": {"mount": "util-linux", "python3-venv": "python3"},
    "arch": {"mount": "util-linux", "python3-venv": "python"},
}
DEBIAN_ONLY = ("mmdebstrap",)


@dataclass(frozen=True)
class Family:
    """A family of systems: its name and the command that installs packages."""

    name: str
    install: str


DEBIAN = Family("debian", "apt-get install")
FEDORA = Family("fedora", "dnf install")
SUSE = Family("suse", "zypper install")
ARCH = Family("arch", "pacman -S")
UNKNOWN = Family("unknown", "install with your system's package manager:")
_BY_ID = {
    "debian": DEBIAN,
    "ubuntu": DEBIAN,
    "fedora": FEDORA,
    "rhel": FEDORA,
    "centos": FEDORA,
    "suse": SUSE,
    "opensuse": SUSE,
    "arch": ARCH,
}


@functools.cache
def release() -> Mapping[str, str]:
    """The keys of /etc/os-release (freedesktop's os-release(5)); empty where there is none."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def require_linux() -> None:
    """Raise UserError on other systems: the locked packages and the cluster are for Linux."""
    if platform.system() == "Linux":
        return
    remedy = "use a Linux machine or virtual machine"
    if platform.system() == "Darwin":
        remedy = "brew install lima; limactl start --cpus=4 --memory=16 --disk=60, then clone and make demo in there"
    raise UserError(f"trainlab runs on Linux, and this is {name()}: {remedy}")


def family() -> Family:
    """The family of this system by ID and ID_LIKE."""
    known = release()
    for word in (known.get("ID", ""), *known.get("ID_LIKE", "").split()):
        if word in _BY_ID:
            return _BY_ID[word]
    return UNKNOWN


def name() -> str:
    """What this system calls itself, e.g. `Debian GNU/Linux 12 (bookworm)`."""
    if platform.system() == "Darwin":
        return f"macOS {platform.mac_ver()[0]}".strip()
    return release().get("PRETTY_NAME", platform.system())


def install(packages: Iterable[str]) -> str:
    """The command that installs these packages (Debian's names) here, with sudo where it is needed.

    What only Debian and Ubuntu package is listed separately.
    """
    ours = family()
    wanted = list(packages)
    if ours is DEBIAN:
        missing: list[str] = []
    else:
        missing = [package for package in wanted if package in DEBIAN_ONLY]
        wanted = [package for package in wanted if package not in DEBIAN_ONLY]
    names = list(dict.fromkeys(RENAMED.get(ours.name, {}).get(package, package) for package in wanted))
    sudo = "sudo " if os.geteuid() != 0 else ""
    remedies = [f"{sudo}{ours.install} {' '.join(names)}"] if names else []
    if missing:
        remedies.append(
            f"{', '.join(missing)}: {name()} may not have it; Debian and Ubuntu do, also in a virtual machine"
        )
    return "; ".join(remedies)


def has_apt() -> bool:
    """Whether this process can install Debian packages."""
    return os.geteuid() == 0 and family() is DEBIAN and shutil.which("apt-get") is not None


def memory_available() -> int:
    """Bytes that programs can take without swapping; 0 where the kernel does not tell."""
    return _meminfo("MemAvailable")


def memory_total() -> int:
    """Bytes of memory of this machine; 0 where the kernel does not tell."""
    return _meminfo("MemTotal")


def _meminfo(key: str) -> int:
    """Bytes of a line of /proc/meminfo (proc_meminfo(5))."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0
