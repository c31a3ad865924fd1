"""The Python environment: one that another checkout uses is left alone, and a failed download is a sentence."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from embedded_cluster import paths, pyenv, system
from embedded_cluster.say import UserError


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


@pytest.mark.parametrize("lock", ["requirements", "alone"])
def test_the_lock_holds_for_the_base_of_the_build_on_openshift(tmp_path: Path, lock: str) -> None:
    """Each package, and what it needs on that Python only, is a wheel for Python 3.12 and glibc 2.34: roles/image's image_base, UBI 9."""
    words = ["--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_34", "--only-binary", ":all:"]
    words += ["--no-deps"] if lock == "alone" else []  # as in the Containerfile
    words += ["--require-hashes", "-r", str(paths.REPO / "images" / "trainer" / f"{lock}.lock")]
    done = subprocess.run(
        [pyenv.uv(pyenv.installer()), "pip", "install", "--dry-run", "--target", tmp_path, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Would install" in done.stderr
