"""The Containerfile of the trainer image as an inline source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.builds import carried, inlined

TEXT = (Path(__file__).resolve().parents[2] / "images/trainer/Containerfile").read_text(encoding="utf-8")


def test_every_copy_comes_out_of_the_archive_and_nothing_else_changes() -> None:
    made = inlined(TEXT)
    assert made.index("ARG BASE=") < made.index("FROM ${BASE} AS context") < made.index("FROM ${BASE} AS packages")
    assert "ADD context.tar.gz /context/" in made
    plain = re.findall(r"(?m)^COPY (?!--)(.+) (\S+)$", TEXT)
    assert len(plain) >= 4 and any(" " in sources for sources, _ in plain)
    for sources, target in plain:
        inside = " ".join(f"/context/{source}" for source in sources.split())
        assert f"\nCOPY --from=context {inside} {target}\n" in made
    assert not re.search(r"(?m)^COPY (?!--)", made)
    back = made.replace("\nFROM ${BASE} AS context\nUSER 0\nADD context.tar.gz /context/\n", "")
    assert back.replace("--from=context ", "").replace("/context/", "") == TEXT


def test_what_cannot_be_inline() -> None:
    with pytest.raises(AnsibleActionFail, match="no FROM"):
        inlined("ARG A")
    with pytest.raises(AnsibleActionFail, match="trainlab_image_source to checkout or git"):
        carried("x", b"x" * ((1 << 20) + 1))  # bytes of the archive, as the API server counts them
    assert carried("x", b"abc") == {"context.tar.gz": "YWJj"}
