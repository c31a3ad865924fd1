"""The Python environment: one that another checkout uses is left alone, and a failed download is a sentence."""

from __future__ import annotations

import contextlib
import json
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from embedded_cluster import commands
from embedded_cluster.base import home, paths, system
from embedded_cluster.base.say import UserError
from embedded_cluster.builds import apt, pyenv


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "CACHE", tmp_path)
    return tmp_path


def _environment(cache: Path, name: str, users: list[Path] | None) -> Path:
    folder = cache / f"venv-{name * 12}"
    folder.mkdir()
    if users is not None:
        (folder / pyenv.CHECKOUTS).write_text(json.dumps([str(user) for user in users]))
    return folder


def test_only_environments_that_nobody_links_are_dropped(cache: Path) -> None:
    user, gone = cache / "user", cache / "gone"
    user.mkdir()
    used = _environment(cache, "a", [user])
    (user / ".venv").symlink_to(used)
    unused, moved = _environment(cache, "b", [gone]), _environment(cache, "c", [user])
    unknown, new = _environment(cache, "d", None), _environment(cache, "e", [])
    pyenv._drop_unused(but=new)
    assert used.exists() and unknown.exists() and new.exists()
    assert not unused.exists() and not moved.exists()


def test_linking_records_the_checkout_and_forgets_who_left(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = cache / "checkout"
    checkout.mkdir()
    monkeypatch.setattr(paths, "REPO", checkout)
    folder = _environment(cache, "a", [cache / "left"])
    (folder / "bin").mkdir()
    (checkout / ".venv").symlink_to("elsewhere")
    pyenv._link(folder)
    assert (checkout / ".venv").resolve() == folder
    assert json.loads((folder / pyenv.CHECKOUTS).read_text()) == [str(checkout)]


def test_each_checkout_runs_its_own_sources_in_an_environment_that_they_share(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for ranks that it starts, in an activated environment, and when the other checkout, which linked last, is gone."""
    folder = _environment(cache, "a", [])
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    for name in ("one", "other"):
        package = cache / name / "training" / "src" / "trainlab"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        child = "import trainlab.cli; trainlab.cli.say()"
        say = f"import subprocess, sys\ndef say():\n    print('{name}')\n"
        main = f"if __name__ == '__main__':\n    say()\n    subprocess.run([sys.executable, '-c', '{child}'])\n"
        (package / "cli.py").write_text(say + main)
        monkeypatch.setattr(paths, "REPO", cache / name)
        pyenv._link(folder)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")

    def says(program: Path, folder: Path) -> list[str]:
        return subprocess.run([program], cwd=folder, capture_output=True, text=True, check=True).stdout.split()

    assert says(cache / "one" / ".venv" / "bin" / "trainlab", cache / "other") == ["one", "one"]
    activated = folder / "bin" / "trainlab"
    assert says(activated, cache / "one" / "training") == ["one", "one"]
    shutil.rmtree(cache / "other")
    assert says(activated, cache) == ["one", "one"]
    shutil.rmtree(cache / "one")
    astray = subprocess.run([activated], cwd=cache, capture_output=True, text=True, check=False)
    assert astray.returncode == 1 and "run make venv in one" in astray.stderr and "Traceback" not in astray.stderr


def test_a_folder_with_a_space_in_its_name(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel ends the name of a script's interpreter at the first one."""
    checkout, folder = cache / "my checkout", cache / "my disk's $HOME" / "venv-a"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    package = checkout / "training" / "src" / "trainlab"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "cli.py").write_text("import sys\nprint(sys.argv[1:])\n")
    monkeypatch.setattr(paths, "REPO", checkout)
    pyenv._link(folder)
    command = [checkout / ".venv" / "bin" / "trainlab", "two words"]
    done = subprocess.run(command, cwd=cache, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("['two words']\n", "")


def test_somebodys_own_environment_is_refused_before_anything_is_made(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of `python3 -m venv .venv`."""
    (cache / ".venv").mkdir()
    monkeypatch.setattr(paths, "REPO", cache)
    monkeypatch.setattr(pyenv, "_wheels_of_this_python", lambda: pytest.fail("downloads"))
    for command in (pyenv.require_venv, pyenv.environment):
        with pytest.raises(UserError, match=r"/\.venv was not made by make: move it away, then run the same command"):
            command()
    assert (cache / ".venv").is_dir()


@pytest.mark.parametrize(("version", "package"), [("3.11", "python3-venv"), ("3.12", "python3.12-venv")])
def test_the_package_with_ensurepip_is_that_of_this_python(
    cache: Path, monkeypatch: pytest.MonkeyPatch, version: str, package: str
) -> None:
    (cache / "python3").symlink_to("python3.11")
    monkeypatch.setattr(pyenv, "DEFAULT_PYTHON", cache / "python3")
    monkeypatch.setattr(pyenv, "python_version", lambda: version)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(system, "release", lambda: {"ID": "debian"})
    with pytest.raises(UserError, match=rf"apt-get install {package};"):
        pyenv.require_venv()


def test_a_failed_program_is_one_sentence() -> None:
    """pip's own ERROR line is the reason, not the last of its hints."""
    script = "echo 'WARNING: retrying' >&2; echo 'ERROR: no match for torch' >&2; echo 'hint: try' >&2; exit 1"
    with pytest.raises(UserError) as failed:
        pyenv._run(["sh", "-c", script], "downloading", pyenv.NETWORK)
    assert str(failed.value) == f"downloading: ERROR: no match for torch; {pyenv.NETWORK}"
    with pytest.raises(UserError, match=r"^downloading: no room; "):
        pyenv._run(["sh", "-c", "echo collecting >&2; echo 'no room' >&2; exit 1"], "downloading", pyenv.NETWORK)


def test_wheels_of_the_image_do_not_depend_on_this_python() -> None:
    """pip gets the image's Python and every manylinux tag of its libc, against pip's own list for this machine."""
    words = pyenv.tags()
    assert words[words.index("--python-version") + 1] == "3.11"
    debug = subprocess.run(
        [pyenv.installer() / "bin" / "pip", "debug", "--verbose"], capture_output=True, text=True, check=True
    ).stdout
    tags = {line.strip().rpartition("-none-")[2] for line in debug.splitlines() if "-none-manylinux" in line}
    newest = max(pyenv.GLIBC)
    known = {tag for tag in tags if not (minor := re.match(r"manylinux_2_(\d+)_", tag)) or int(minor[1]) <= newest}
    assert known and known <= set(words[words.index("--platform") :])


def _resolved(target: Path, words: list[str]) -> str:
    """Return what uv would install with these arguments; fails with its words."""
    argv = [pyenv.uv(pyenv.installer()), "pip", "install", "--dry-run", "--target", target, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("lock", ["requirements", "alone"])
def test_the_lock_holds_for_the_base_of_the_build_on_openshift(tmp_path: Path, lock: str) -> None:
    """Each package, and what it needs on that Python only, is a wheel for Python 3.12 and glibc 2.34: roles/image's image_base, UBI 9."""
    words = ["--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_34", "--only-binary", ":all:"]
    words += ["--no-deps"] if lock == "alone" else []  # as in the Containerfile
    words += ["--require-hashes", "-r", str(paths.REPO / "images" / "trainer" / f"{lock}.lock")]
    assert "Would install" in _resolved(tmp_path, words)


@pytest.mark.parametrize("version", ["3.11", "3.13"])
@pytest.mark.parametrize(
    "system_and_processor",
    ["x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "x86_64-apple-darwin", "aarch64-apple-darwin"],
)
def test_the_lock_of_the_playbooks_holds_for_linux_and_macos(
    tmp_path: Path, system_and_processor: str, version: str
) -> None:
    """Each package, and what it needs on that system only, is a wheel in the lock; uv that installs them as well."""
    words = ["--python-version", version, "--python-platform", system_and_processor, "--only-binary", ":all:"]
    words += ["--require-hashes", "-r", str(pyenv.PLAYBOOKS_LOCK), "-r", str(pyenv.INSTALLER_LOCK)]
    found = _resolved(tmp_path, words)
    assert "+ ansible-core==" in found and "+ torch" not in found, found


@pytest.fixture
def made(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A checkout without an environment; what is made, as `playbooks` and `dev`, is noted and not downloaded."""
    checkout = cache / "checkout"
    checkout.mkdir()
    noted: list[str] = []

    def make(folder: Path, wheels: Path | None, _gpus: bool) -> None:
        noted.append("dev" if wheels else "playbooks")
        (folder / "bin").mkdir(parents=True)
        (folder / ".complete").touch()

    monkeypatch.setattr(paths, "REPO", checkout)
    monkeypatch.setattr(pyenv, "require_ensurepip", lambda: None)
    monkeypatch.setattr(pyenv, "_make", make)
    monkeypatch.setattr(pyenv, "_fails", lambda _folder: "")
    monkeypatch.setattr(pyenv, "_wheels_of_this_python", lambda _gpus: cache / "wheels")
    return noted


def test_a_checkout_whose_environment_is_for_development_keeps_it(made: list[str]) -> None:
    small = pyenv.environment()
    development = pyenv.environment(dev=True)
    assert made == ["playbooks", "dev"] and small != development
    assert pyenv.environment() == development == (paths.REPO / ".venv").resolve()
    assert made == ["playbooks", "dev"]


def test_an_environment_for_development_that_is_made_in_the_meantime_is_taken(
    made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two targets of make in parallel, as of `make test-drills`: whichever ends last, the link leads to torch."""
    waiting = pyenv.locks.waiting

    def wait(*given: Any) -> contextlib.AbstractContextManager[None]:
        monkeypatch.setattr(pyenv.locks, "waiting", waiting)
        pyenv.environment(dev=True)
        return waiting(*given)

    monkeypatch.setattr(pyenv.locks, "waiting", wait)
    pyenv.environment()
    assert made == ["dev"]


def test_on_macos_only_the_environment_of_the_playbooks_is_made(
    made: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the answers that a Mac gives; the environment itself was not made on one."""
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))
    monkeypatch.setattr(system, "release", dict)
    monkeypatch.setattr(home, "claim", lambda: None)
    monkeypatch.setattr(apt, "installed", lambda: pytest.fail("asks dpkg"))

    def run(*argv: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["cluster", *argv])
        return commands.main(), capsys.readouterr().err

    assert run("ready") == (0, "") and run("venv") == (0, "")
    assert made == ["playbooks"]
    for refused in (["venv", "--dev"], ["demo"], ["check"]):
        code, said = run(*refused)
        assert code == 2 and said.startswith("error: trainlab runs on Linux, and this is macOS 15.1: "), said
