"""A root folder that cannot be made says why: an unreachable archive in apt's words with the remedy, else the log's end. One
that is old is made anew, unless something has it mounted or the archive cannot be reached."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_cluster.base.say import UserError
from embedded_cluster.builds import rootfs

UNREACHED = "E: Failed to fetch http://mirror.example/InRelease  Could not connect\nE: Some index files failed\nE: mmdebstrap failed"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            UNREACHED,
            "cannot reach Debian's package archive: mmdebstrap: E: Failed to fetch http://mirror.example/InRelease",
        ),
        ("I: installing\nE: no room", "mmdebstrap failed (exit 25, whole log: "),
    ],
    ids=["network", "other"],
)
def test_why_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, words: str) -> None:
    program = tmp_path / "unshare"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit 25\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(rootfs.paths, "CACHE", tmp_path / "cache")
    with pytest.raises(UserError) as failed:
        rootfs.debian("trial", ["nothing"])
    assert str(failed.value).startswith(words)
    assert ("http_proxy, https_proxy" in str(failed.value)) == (said == UNREACHED)


STATUS = "var/lib/dpkg/status"
MAKES = """#!/bin/sh
for word; do case "$word" in *.part)
  mkdir -p "$word/usr" "$word/var/lib/dpkg"
  printf 'Package: nothing\nStatus: install ok installed\nVersion: 2\n' > "$word/var/lib/dpkg/status" ;;
esac; done
"""


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A root folder of 31 days, and a PATH on which mmdebstrap makes one with a newer version of its package."""
    program = tmp_path / "unshare"
    program.write_text(MAKES)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(rootfs.paths, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(rootfs, "_KEPT", set())
    folder = rootfs.folder("trial", ["nothing"])
    (folder / "usr").mkdir(parents=True)
    (folder / STATUS).parent.mkdir(parents=True)
    (folder / STATUS).write_text("Package: nothing\nStatus: install ok installed\nVersion: 1\n")
    _aged(folder, 31)
    yield folder


def _aged(folder: Path, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(folder / STATUS, (then, then))


def test_an_old_root_folder_is_made_anew(old: Path) -> None:
    _aged(old, 29)
    before = rootfs.versions("trial", ["nothing"])
    assert "Version: 1" in (old / STATUS).read_text()
    _aged(old, 31)
    after = rootfs.versions("trial", ["nothing"])
    assert "Version: 2" in (old / STATUS).read_text()
    assert before != after, "the image's name does not say that its base has other packages"
    assert rootfs.debian("trial", ["nothing"]) == old
    assert [each.name for each in old.parent.glob("trial-*")] == [old.name]


def test_an_old_root_folder_stays_where_the_archive_is_out_of_reach(
    old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "unshare").write_text(f"#!/bin/sh\ncat <<'END'\n{UNREACHED}\nEND\nexit 25\n")
    for _ in range(2):
        assert rootfs.debian("trial", ["nothing"]) == old
    (tmp_path / "unshare").write_text(MAKES)
    rootfs._KEPT.clear()  # another command, a moment later: it waits for the archive no more
    assert rootfs.debian("trial", ["nothing"]) == old
    assert "Version: 1" in (old / STATUS).read_text()
    said = "".join(capsys.readouterr())
    assert (
        said.count(f"the Debian packages in {old} are 31 days old and stay: cannot reach Debian's package archive") == 1
    )
    tried = rootfs.paths.CACHE / "trial.tried"
    os.utime(tried, (time.time() - 3700, time.time() - 3700))
    assert "Version: 2" in (rootfs.debian("trial", ["nothing"]) / STATUS).read_text()


MOUNTS = ["/usr/bin/unshare", "--mount", "sh", "-ec", 'mount --bind "$0" "$0/usr" && echo ready && exec sleep 60']
ROOTED = [
    sys.executable,
    "-c",
    "import os, sys, time; os.chroot(sys.argv[1]); print('ready', flush=True); time.sleep(60)",
]
"""As a node whose folder is on a disk of its own: its table of mounts does not have the path that the folder has here."""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a folder")
@pytest.mark.parametrize("start", [MOUNTS, ROOTED], ids=["named", "rooted"])
def test_an_old_root_folder_stays_while_a_node_has_it_mounted(
    old: Path, start: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen([*start, str(old)], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        try:
            assert rootfs.debian("trial", ["nothing"]) == old
            assert "Version: 1" in (old / STATUS).read_text()
            assert "a cluster uses it" in "".join(capsys.readouterr())
        finally:
            running.kill()


@pytest.mark.parametrize(
    ("line", "serves"),
    [
        ("deb http://mirror.example/debian bookworm main", True),
        ("deb http://mirror.example/debian trixie main", False),
        ("deb http://mirror.example/debian bookworm contrib", False),
        ("# deb http://mirror.example/debian bookworm main", False),
    ],
)
def test_a_package_source_is_one_of_the_release_and_its_main_section(line: str, serves: bool, tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(f"{line}\n", encoding="ascii")
    assert rootfs._serves(tmp_path / "sources.list", "bookworm") is serves
