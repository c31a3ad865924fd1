"""A root folder that cannot be made says why: an unreachable archive in apt's words with the remedy, else the log's end."""

from __future__ import annotations

from pathlib import Path

import pytest
from embedded_cluster import rootfs
from embedded_cluster.say import UserError

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
