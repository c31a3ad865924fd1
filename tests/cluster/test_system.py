"""What is missing is reported with the install command of the user's system."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest
from embedded_cluster.base import system
from embedded_cluster.base.say import UserError

REPO = Path(__file__).resolve().parents[2]
RELEASES = {
    "debian": {"ID": "debian", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"},
    "ubuntu": {"ID": "ubuntu", "ID_LIKE": "debian", "PRETTY_NAME": "Ubuntu 24.04.3 LTS"},
    "mint": {"ID": "linuxmint", "ID_LIKE": "ubuntu debian", "PRETTY_NAME": "Linux Mint 22"},
    "fedora": {"ID": "fedora", "PRETTY_NAME": "Fedora Linux 42"},
    "rhel": {"ID": "rhel", "ID_LIKE": "fedora", "PRETTY_NAME": "Red Hat Enterprise Linux 9.6"},
    "suse": {"ID": "opensuse-leap", "ID_LIKE": "suse opensuse", "PRETTY_NAME": "openSUSE Leap 15.6"},
    "arch": {"ID": "arch", "PRETTY_NAME": "Arch Linux"},
    "other": {"ID": "void", "PRETTY_NAME": "Void"},
}
NO_MMDEBSTRAP = "mmdebstrap: {} may not have it; Debian and Ubuntu do, also in a virtual machine"


def _is(monkeypatch: pytest.MonkeyPatch, name: str, uid: int = 0) -> None:
    monkeypatch.setattr(system, "release", lambda: RELEASES[name])
    monkeypatch.setattr(os, "geteuid", lambda: uid)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("debian", "apt-get install iproute2 mmdebstrap python3-venv"),
        ("ubuntu", "apt-get install iproute2 mmdebstrap python3-venv"),
        ("mint", "apt-get install iproute2 mmdebstrap python3-venv"),
        ("fedora", "dnf install iproute python3; " + NO_MMDEBSTRAP.format("Fedora Linux 42")),
        ("rhel", "dnf install iproute python3; " + NO_MMDEBSTRAP.format("Red Hat Enterprise Linux 9.6")),
        ("suse", "zypper install iproute2 python3; " + NO_MMDEBSTRAP.format("openSUSE Leap 15.6")),
        ("arch", "pacman -S iproute2 python; " + NO_MMDEBSTRAP.format("Arch Linux")),
    ],
)
def test_install_in_the_words_of_the_system(monkeypatch: pytest.MonkeyPatch, name: str, command: str) -> None:
    _is(monkeypatch, name)
    assert system.install(["iproute2", "mmdebstrap", "python3-venv"]) == command


def test_install_for_a_user_begins_with_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    _is(monkeypatch, "debian", uid=1000)
    assert system.install(["iproute2"]) == "sudo apt-get install iproute2"


def test_a_system_of_no_known_family_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    _is(monkeypatch, "other")
    assert system.install(["iproute2"]) == "install with your system's package manager: iproute2"


def test_macos_is_told_of_a_virtual_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.6", ("", "", ""), "arm64"))
    with pytest.raises(UserError, match=r"trainlab runs on Linux, and this is macOS 15\.6: brew install lima; limactl"):
        system.require_linux()


PYTHONS = [
    (
        "3.9",
        "ID=rhel\nID_LIKE=fedora\n",
        "python3 is 3.9, and trainlab needs Python 3.11 to 3.13: dnf install python3.12;",
    ),
    (
        "3.10",
        "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=jammy\n",
        "python3 is 3.10, and trainlab needs Python 3.11 to 3.13: apt-get install python3.11 python3.11-venv;",
    ),
    (
        "3.10",
        "ID=linuxmint\nID_LIKE='ubuntu debian'\nVERSION_CODENAME=vera\nUBUNTU_CODENAME=jammy\n",
        "python3 is 3.10, and trainlab needs Python 3.11 to 3.13: apt-get install python3.11 python3.11-venv;",
    ),
    (
        "3.9",
        "ID=debian\nVERSION_CODENAME=bullseye\n",
        "python3 is 3.9, and trainlab needs Python 3.11 to 3.13: install Python 3.13 from elsewhere;",
    ),
    (
        "",
        "ID=debian\nVERSION_CODENAME=trixie\n",
        "no Python was found, and trainlab needs Python 3.11 to 3.13: apt-get ",
    ),
    ("3.14", "ID=fedora\n", "python3 is 3.14, and trainlab needs Python 3.11 to 3.13: dnf install python3.13;"),
    (
        "",
        "ID=opensuse-leap\nID_LIKE='suse opensuse'\n",
        "no Python was found, and trainlab needs Python 3.11 to 3.13: zyp",
    ),
    (
        "3.14",
        "ID=arch\n",
        "python3 is 3.14, and trainlab needs Python 3.11 to 3.13: install Python 3.13 from elsewhere;",
    ),
]


@pytest.mark.skipif(os.geteuid() != 0, reason="binds an /etc/os-release of its own")
@pytest.mark.parametrize(("version", "release", "sentence"), PYTHONS)
def test_no_fit_python_is_one_sentence(tmp_path: Path, version: str, release: str, sentence: str) -> None:
    """In a mount namespace with that system's os-release, and a PATH whose only Python says that version."""
    done = _run_python(tmp_path, version, release)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {sentence}") and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="binds an /etc/os-release of its own")
def test_a_newer_python_beside_an_old_one_is_found(tmp_path: Path) -> None:
    _stub(tmp_path / "bin" / "python3.12", "3.12")
    done = _run_python(tmp_path, "3.9", "ID=rhel\n")
    assert (done.returncode, done.stdout) == (0, "ran 3.12\n"), done.stderr


def test_the_package_is_found_from_anywhere(tmp_path: Path) -> None:
    """Not installed, without PYTHONPATH, and where Python does not look in the current folder."""
    env = {"PATH": os.environ["PATH"], "PYTHONSAFEPATH": "1"}
    command = [REPO / "cluster" / "python", REPO / "cluster", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("usage: cluster/python cluster "), done.stderr


def _stub(file: Path, version: str) -> None:
    """A Python that reports its version, and that it was run."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then echo {version}; else echo "ran {version}"; fi\n')
    file.chmod(0o755)


def _run_python(folder: Path, version: str, release: str) -> subprocess.CompletedProcess[str]:
    (folder / "os-release").write_text(release)
    if version:
        _stub(folder / "bin" / "python3", version)
    (folder / "bin").mkdir(exist_ok=True)
    for name in ("sh", "uname"):
        (folder / "bin" / name).symlink_to(f"/bin/{name}")
    script = f"mount --bind {folder}/os-release /etc/os-release; PATH={folder}/bin exec {REPO}/cluster/python any"
    command = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False)
