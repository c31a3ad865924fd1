"""A program's name is the hash of all that it is built from, so one that exists is never stale."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from embedded_cluster import build, modules, toolchain


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """The name of a program of one module, computed anew."""
    (tmp_path / "go.mod").write_text("module one\n")
    monkeypatch.setattr(modules, "folder", lambda _: tmp_path)
    monkeypatch.setattr(toolchain, "go_version", lambda: "go1.26.0")
    monkeypatch.setattr(build, "_flags", lambda _: ["-trimpath"])

    def named() -> str:
        build._digest.cache_clear()
        return build.binary("one").name

    yield named
    build._digest.cache_clear()


@pytest.mark.parametrize("what", ["go.mod", "go.sum", "main.go", "flags", "settings", "go"])
def test_each_input_changes_the_name(
    what: str, name: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = name()
    assert name() == before
    if what == "flags":
        monkeypatch.setattr(build, "_flags", lambda _: ["-trimpath", "-race"])
    elif what == "settings":
        monkeypatch.setitem(build.SETTINGS, "CGO_ENABLED", "1")
    elif what == "go":
        monkeypatch.setattr(toolchain, "go_version", lambda: "go1.26.6")
    else:
        (tmp_path / what).write_text("changed\n")
    assert name() != before
