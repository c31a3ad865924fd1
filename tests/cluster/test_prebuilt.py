"""Programs of $TRAINLAB_PROGRAMS are taken by their hash, and by nothing else."""

from __future__ import annotations

import gzip
import http.server
import os
import platform
import re
import signal
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_server.loopback_tls import secure
from embedded_cluster.base.say import UserError
from embedded_cluster.builds import modules, prebuilt
from ports import Handler, serve_in_thread

NAME = "etcd-0123456789ab"
CONTENT = b"\x7fELF of etcd" * 1000


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `make programs` writes it, with its lock, and a cache without programs."""
    built, folder = tmp_path / "built" / NAME, tmp_path / "programs"
    built.parent.mkdir()
    built.write_bytes(CONTENT)
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(prebuilt, "LOCK", tmp_path / "programs.lock")
    monkeypatch.setattr(prebuilt, "MACHINE", platform.machine())
    prebuilt.write([built], folder)
    monkeypatch.setenv(prebuilt.VARIABLE, str(folder))
    return folder


def test_what_was_written_is_taken(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "bin" / NAME
    prebuilt.take([target])
    assert target.read_bytes() == CONTENT and target.stat().st_mode & 0o777 == 0o755
    assert f"1 programs from {place}" in capsys.readouterr().out


def test_what_a_killed_command_left_is_taken_anew(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kill -9 after the last byte was written: nothing may take that for a program."""
    target = tmp_path / "bin" / NAME
    if (pid := os.fork()) == 0:
        monkeypatch.setattr(Path, "chmod", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        prebuilt.take([target])
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert [file.name for file in target.parent.iterdir()] == [f".{NAME}.part"]
    prebuilt.take([target])
    assert [file.name for file in target.parent.iterdir()] == [NAME] and target.read_bytes() == CONTENT


def test_nothing_is_taken_unless_asked(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(prebuilt.VARIABLE)
    prebuilt.take([tmp_path / "bin" / NAME])
    assert not list((tmp_path / "bin").iterdir())


def test_another_version_and_a_missing_one_are_built(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / f"{NAME}.gz").unlink()
    prebuilt.take([tmp_path / "bin" / NAME, tmp_path / "bin" / "helm-ba9876543210"])
    shown = capsys.readouterr().out
    assert f"{place}/{NAME}.gz is not there: it is built" in shown
    assert "helm-ba9876543210 is not in programs.lock" in shown
    assert not list((tmp_path / "bin").iterdir())


def _wrong_byte(file: Path) -> None:
    file.write_bytes(gzip.compress(CONTENT[:-1] + b"X"))


def _longer(file: Path) -> None:
    file.write_bytes(gzip.compress(CONTENT + bytes(10**7)))


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def _no_gzip(file: Path) -> None:
    file.write_bytes(CONTENT)


@pytest.mark.parametrize("harm", [_wrong_byte, _longer, _cut, _no_gzip])
def test_another_content_is_refused_by_name(harm: object, place: Path, tmp_path: Path) -> None:
    """With the file and what to do; nothing is left of it."""
    assert callable(harm)
    harm(place / f"{NAME}.gz")
    with pytest.raises(UserError, match=rf"{re.escape(str(place))}/{NAME}\.gz: .*unset {prebuilt.VARIABLE}"):
        prebuilt.take([tmp_path / "bin" / NAME])
    assert not list((tmp_path / "bin").iterdir())


@pytest.mark.parametrize("place_name", ["http://programs.example", "ftp://x", "/nowhere/at/all"])
def test_a_place_that_is_none_is_refused(
    place_name: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(prebuilt.VARIABLE, place_name)
    with pytest.raises(UserError, match=rf"{prebuilt.VARIABLE}={re.escape(place_name)}: .*unset"):
        prebuilt.take([tmp_path / "bin" / NAME])


@pytest.fixture
def served(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same over https, with a certificate that this process trusts; /forbidden answers 403."""

    class Files(Handler, http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(place))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            if self.path.startswith("/forbidden/"):
                self.send_error(403)
            else:
                super().do_GET()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    certificate = secure(server, tmp_path / "localhost")
    serve_in_thread(server)
    trusted = ssl.create_default_context(cafile=str(certificate))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted))
    monkeypatch.setattr(urllib.request, "urlopen", opener.open)
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_https_address_serves_as_a_folder(served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(prebuilt.VARIABLE, f"{served}/")
    prebuilt.take([tmp_path / "bin" / NAME])
    assert (tmp_path / "bin" / NAME).read_bytes() == CONTENT


def test_an_address_that_refuses_is_named(served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(prebuilt.VARIABLE, f"{served}/forbidden")
    with pytest.raises(UserError, match=rf"{served}/forbidden/{NAME}\.gz: the server answers 403 .*unset"):
        prebuilt.take([tmp_path / "bin" / NAME])


def test_an_address_that_lacks_one_leaves_it_to_the_build(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(prebuilt.VARIABLE, f"{served}/elsewhere")
    prebuilt.take([tmp_path / "bin" / NAME])
    assert "is not there: it is built" in capsys.readouterr().out


def test_the_lock_of_this_checkout_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name is a component's and a digest of its inputs; one of older inputs is never asked for, `make programs` drops it."""
    monkeypatch.setattr(prebuilt.platform, "machine", lambda: "x86_64")
    known = prebuilt.locked()
    programs = {name.rpartition("-")[0] for name in known}
    assert {name for name, part in modules.COMPONENTS.items() if part.default} <= programs <= set(modules.COMPONENTS)
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) and size > 10**6 for digest, size in known.values())
