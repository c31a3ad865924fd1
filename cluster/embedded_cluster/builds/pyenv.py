"""The Python environments of the checkout and the wheels of the trainer image, from lock files; the command `venv`.

Two environments: the one of the playbooks, which drives a cluster (`make venv`, `make demo`; Linux and macOS), and the one
for development, with the training stack and the tools of the tests (`make venv-dev`; Linux). The training stack is without CUDA's
libraries where there is no GPU (images/trainer/cpu_only.py).
pip downloads (it knows the user's index, proxy and certificates), uv installs (six times as fast as pip). The wheels
are those for the image's Python; a different Python on the machine gets wheels of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from embedded_cluster.base import files, locks, paths, say, system
from embedded_cluster.builds import rootfs

TRAINER = paths.REPO / "images" / "trainer"
TRAINER_LOCKS = tuple(TRAINER / name for name in ("requirements.lock", "models.lock", "alone.lock"))
TOOLS_LOCK = paths.REPO / "requirements.lock"
PLAYBOOKS_LOCK = paths.PACKAGE / "playbooks.lock"
CPU_ONLY = TRAINER / "cpu_only.py"
FAILED = "torch does not run without CUDA's libraries"
"""What cpu_only.py says then."""
DRIVER = Path("/proc/driver/nvidia/version")
COLLECTION = "ansible_collections/kubernetes/"
"""What the playbooks need of the package `ansible`, which holds 44 other vendors' collections, 21,000 files."""
INSTALLER_LOCK = paths.PACKAGE / "installer.lock"
GLIBC = range(5, 37)  # bookworm has glibc 2.36; pip matches wheel tags exactly, so each one is listed
CHECKOUTS = ".checkouts.json"
DEFAULT_PYTHON = Path("/usr/bin/python3")
"""Of the system: Debian links it to the Python whose ensurepip is in the package python3-venv."""
# Its first three lines are a string of Python's. The kernel would end the interpreter's name at a space, or at some length;
# pip writes its scripts for such a folder the same way.
PROGRAM = """#!/bin/sh
'''exec' {quoted} "$0" "$@"
' '''
# Checkouts with equal locks share this folder. It runs the sources of the one whose .venv/bin/trainlab was called; in
# an activated environment that is unknown, so of the one around the working directory, or of one that links here.
import json
import os
import sys
from pathlib import Path

folder = Path({python!r}).parents[1]
linked = [Path(one) for one in json.loads((folder / {record!r}).read_text())]
for checkout in (Path(sys.argv[0]).absolute().parents[2], Path.cwd(), *Path.cwd().parents, *linked):
    sources = str(checkout / "training" / "src")
    if os.path.exists(sources + "/trainlab/cli.py"):
        break
else:
    sys.exit("error: " + sys.argv[0] + ": no checkout of trainlab links to this environment; run make venv in one")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sources, os.environ.get("PYTHONPATH")]))
os.execv(sys.executable, [sys.executable, "-m", "trainlab.cli", *sys.argv[1:]])
"""
NETWORK = "check the network, its proxy (http_proxy, https_proxy) and pip's index (`pip config list`)"


def python_version() -> str:
    """Version of the Python that runs this, e.g. `3.11`."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _hash(*parts: object) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes() if isinstance(part, Path) else f"{part}\0".encode())
    return digest.hexdigest()[:12]


def require_venv() -> None:
    """Raise say.UserError where environment() would fail at its end: this Python cannot, or .venv is somebody's own."""
    require_ensurepip()
    link = paths.REPO / ".venv"
    if link.exists() and not link.is_symlink():
        raise say.UserError(f"{link} was not made by make: move it away, then run the same command again")


def require_ensurepip() -> None:
    """Raise say.UserError when this Python cannot create virtual environments: Debian packages that part separately."""
    probe = subprocess.run([sys.executable, "-c", "import venv, ensurepip"], capture_output=True, check=False)
    if probe.returncode:
        raise say.UserError(
            f"{sys.executable} cannot create virtual environments (no module ensurepip): "
            f"{system.install([_venv_package()])}; or name another Python: PYTHON=... make ..."
        )


def _venv_package() -> str:
    """Debian's package that has this Python's ensurepip; other systems have one for all."""
    ours = f"python{python_version()}"
    default = system.family() is not system.DEBIAN or DEFAULT_PYTHON.resolve().name in (DEFAULT_PYTHON.name, ours)
    return "python3-venv" if default else f"{ours}-venv"


def _run(argv: Sequence[str | Path], what: str, remedy: str, **variables: str) -> None:
    """Run a command silently; raises say.UserError with the reason that it gives and the remedy."""
    done = subprocess.run(
        [str(argument) for argument in argv],
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()] or [f"exit {done.returncode}"]
        reason = next((line for line in lines if line.lower().startswith("error")), lines[-1])
        raise say.UserError(f"{what}: {reason.strip()[:400]}; {remedy}")


def installer() -> Path:
    """The folder of a small environment with pip and uv; made when missing."""
    folder = paths.CACHE / f"installer-{_hash(INSTALLER_LOCK, os.path.realpath(sys.executable), sys.version)}"
    if not (folder / ".complete").exists():
        with locks.waiting(paths.CACHE / "installer.lock", "another command is installing pip and uv"):
            if not (folder / ".complete").exists():
                _make_installer(folder)
    return folder


def _make_installer(folder: Path) -> None:
    """The first access to the package index: fails early when that does not answer."""
    require_ensurepip()
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", folder], f"making {folder}", "see the message of Python's venv")
    asked: list[str | Path] = ["install", "--no-deps", "--require-hashes", "--retries", "1", "-r", INSTALLER_LOCK]
    _run([*_pip(folder), *asked], "cannot reach Python's package index", NETWORK)
    (folder / ".complete").touch()


def _pip(folder: Path) -> list[str]:
    return [str(folder / "bin" / "pip"), "--disable-pip-version-check", "--quiet", "--no-cache-dir", "--no-input"]


def uv(folder: Path) -> Path:
    """The uv program in an installer()."""
    return folder / "bin" / "uv"


def download(arguments: Sequence[str | Path], target: Path, what: str) -> None:
    """Download packages by hash and without their dependencies into the folder `target`."""
    target.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f"{target.name}.tmp")  # what a killed pip leaves behind, the next one removes
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    common: list[str | Path] = ["download", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-d", target]
    _run([*_pip(installer()), *common, *arguments], what, NETWORK, TMPDIR=str(scratch))
    shutil.rmtree(scratch)


def _requirements(files: Sequence[Path]) -> list[str]:
    return [word for file in files for word in ("-r", str(file))]


def tags() -> list[str]:
    """Return pip's arguments for the trainer image's wheels, whichever Python runs: bookworm's CPython, this processor."""
    machine = platform.machine()
    names = ["manylinux2014", "linux", *(f"manylinux_2_{minor}" for minor in GLIBC)]
    names += ["manylinux1", "manylinux2010"] if machine == "x86_64" else []
    version = ["--implementation", "cp", "--python-version", rootfs.PYTHON]
    return version + [word for name in names for word in ("--platform", f"{name}_{machine}")]


def _lock() -> Path:
    return paths.CACHE / "python.lock"


def cpu_only() -> ModuleType:
    """images/trainer/cpu_only.py, which the image's build runs as a program."""
    spec = importlib.util.spec_from_file_location("cpu_only", CPU_ONLY)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _refused() -> Path:
    """A file that is there when the locked torch did not run without CUDA's libraries here (`use_cuda`)."""
    return paths.CACHE / f"with-cuda-{_hash(CPU_ONLY, *TRAINER_LOCKS)}"


def use_cuda(reason: str) -> None:
    """Note that the locked torch needs CUDA's libraries even without a GPU, so that everything is made with them."""
    say.info(f"{FAILED} here ({reason}): going on with them, 2 GB more")
    _refused().touch()


def cuda(gpus: bool = False) -> bool:
    """Whether the training stack is installed with CUDA's libraries: for GPUs, or where it does not run without them."""
    return gpus or platform.machine() != "x86_64" or _refused().exists()


def locks_of(gpus: bool = False, checkout: Path | None = None) -> list[Path]:
    """The lock files of a checkout's training stack; without CUDA the first is derived from the one in the checkout."""
    first, *rest = ((checkout or paths.REPO) / file.relative_to(paths.REPO) for file in TRAINER_LOCKS)
    if cuda(gpus):
        return [first, *rest]
    derived = paths.CACHE / f"cpu-{_hash(CPU_ONLY, first)}.lock"
    if not derived.exists():
        paths.CACHE.mkdir(parents=True, exist_ok=True)
        _write(derived, cpu_only().without_cuda(first.read_text(encoding="utf-8")))
    return [derived, *rest]


def wheels(gpus: bool = False) -> Path:
    """The folder of the trainer image's wheels (0.9 GB, with CUDA 3 GB), downloaded when missing."""
    target = _wheels_of(locks_of(gpus))
    if not (target / ".complete").exists():
        with locks.waiting(_lock(), "another command makes the Python environment"):
            _download_wheels(target, gpus)
    return target


def _wheels_of(locked: Sequence[Path]) -> Path:
    return paths.CACHE / f"wheels-{_hash(rootfs.PYTHON, platform.machine(), *locked)}"


def _download_wheels(target: Path, gpus: bool) -> None:
    if (target / ".complete").exists():  # another command made them in the meantime
        return
    with say.step(f"wheels of the training stack ({'3' if cuda(gpus) else '0.9'} GB, once)"):
        for old in paths.CACHE.glob("wheels-*"):
            if old != target and not _needed(old):
                shutil.rmtree(old)
        download([*tags(), *_requirements(locks_of(gpus))], target, "downloading the training stack")
        (target / ".complete").touch()


def _needed(old: Path) -> bool:
    """Whether these wheels are those of a checkout that links to an environment, or named by a command, as of an image's build."""
    for environment in paths.CACHE.glob(f"venv-{'?' * 12}"):
        for user in _users(environment) or ():
            if not _links(user, environment):
                continue
            if not all((user / file.relative_to(paths.REPO)).exists() for file in TRAINER_LOCKS):
                return True  # of another version, whose locks are elsewhere
            if any(old.name.startswith(_wheels_of(locks_of(gpus, user)).name) for gpus in (False, True)):
                return True
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended in the meantime
            if str(old).encode() in command.read_bytes():
                return True
    return False


def _wheels_of_this_python(gpus: bool) -> Path:
    """The trainer's wheels for the Python that runs this: the image's own when the versions match."""
    ours = wheels(gpus)
    if python_version() == rootfs.PYTHON and sysconfig.get_platform().startswith("linux"):
        return ours
    target = ours.with_name(f"{ours.name}-{python_version()}")
    with locks.waiting(_lock(), "another command makes the Python environment"):
        if (target / ".complete").exists():
            return target
        with say.step(f"wheels of the training stack for Python {python_version()} (most are the image's)"):
            target.mkdir(exist_ok=True)
            for wheel in ours.glob("*.whl"):
                if "-py3-none-" in wheel.name or "-py2.py3-none-" in wheel.name:
                    files.link(wheel, target / wheel.name)
            what = f"downloading the training stack for Python {python_version()}"
            download(_requirements(locks_of(gpus)), target, what)
            (target / ".complete").touch()
    return target


def environment(dev: bool = False) -> Path:
    """The environment of the checkout, linked as .venv; made when missing. Returns its folder.

    With `dev` the one for development; else the one of the playbooks, unless the one for development exists already.
    """
    require_venv()
    gpus = DRIVER.exists()
    python = (os.path.realpath(sys.executable), sys.version)
    folder = development = paths.CACHE / f"venv-{_hash(*TRAINER_LOCKS, CPU_ONLY, cuda(gpus), TOOLS_LOCK, *python)}"
    if not dev and not (development / ".complete").exists():
        folder = paths.CACHE / f"venv-{_hash(PLAYBOOKS_LOCK, *python)}"
    if not (folder / ".complete").exists():
        wheels = _wheels_of_this_python(gpus) if dev else None
        with locks.waiting(_lock(), "another command makes the Python environment"):
            if not dev and (development / ".complete").exists():  # another command made it in the meantime
                folder = development
            if not (folder / ".complete").exists():
                _make(folder, wheels, gpus)
        if dev and not cuda(gpus) and (reason := _fails(folder)):
            use_cuda(reason)
            return environment(dev=True)
    _link(folder)
    return folder


def _make(folder: Path, wheels: Path | None, gpus: bool) -> None:
    """Make the environment of the playbooks or, with the trainer's wheels, the one for development."""
    title = (
        "Python environment of the playbooks" if wheels is None else "Python environment (3 GB, with CUDA 6 GB, once)"
    )
    with say.step(title):
        scratch = paths.CACHE / "python.part"
        for left in (scratch, folder):
            shutil.rmtree(left, ignore_errors=True)
        _drop_unused(folder)
        tools = PLAYBOOKS_LOCK if wheels is None else TOOLS_LOCK
        download(_requirements([tools]), scratch / "tools", "downloading the tools")
        _run([sys.executable, "-m", "venv", folder], f"making {folder}", "see the message of Python's venv")
        if wheels is None:
            _install_playbooks(folder, scratch)
        else:
            _install(folder, scratch, wheels, locks_of(gpus))
            _install(folder, scratch, scratch / "tools", [TOOLS_LOCK])
            if not cuda(gpus):
                cpu_only().write_stubs(_packages(folder) / "torch")
        shutil.rmtree(scratch)
        (folder / ".complete").touch()


def _install(folder: Path, scratch: Path, source: Path, locked: Sequence[Path]) -> None:
    """Install what these lock files name from the wheels in `source`: files are linked, not copied."""
    argv: list[str | Path] = [uv(installer()), "pip", "install", "--quiet", "--python", folder / "bin" / "python"]
    # The cache is on the file system of the environment.
    argv += ["--no-index", "--no-deps", "--require-hashes", "--cache-dir", scratch / "uv", "--link-mode", "hardlink"]
    argv += ["--find-links", source, *_requirements(locked)]
    _run(argv, f"installing into {folder}", f"free disk space, or remove {source} and run this again")


def _install_playbooks(folder: Path, scratch: Path) -> None:
    """Install PLAYBOOKS_LOCK, of its package `ansible` only COLLECTION."""
    (wheel,) = (scratch / "tools").glob("ansible-[0-9]*.whl")
    with zipfile.ZipFile(wheel) as archive:  # pip compared its hash when it downloaded it
        names = [name for name in archive.namelist() if name.startswith(COLLECTION)]
        archive.extractall(_packages(folder), names)
    entries = re.split(r"^(?=[a-zA-Z0-9])", PLAYBOOKS_LOCK.read_text(encoding="utf-8"), flags=re.MULTILINE)
    rest = scratch / "rest.lock"
    rest.write_text("".join(entry for entry in entries if not entry.startswith("ansible==")), encoding="utf-8")
    _install(folder, scratch, scratch / "tools", [rest])


def _packages(folder: Path) -> Path:
    """The site-packages of an environment."""
    return folder / "lib" / f"python{python_version()}" / "site-packages"


def _fails(folder: Path) -> str:
    """Why torch does not work in an environment without CUDA's libraries; empty when it does."""
    command = [str(folder / "bin" / "python"), str(CPU_ONLY), "check"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    return "" if done.returncode == 0 else last.removeprefix(f"{FAILED}: ")


def _drop_unused(but: Path) -> None:
    """Remove the environments that no checkout links to any more; one without a record is left alone."""
    for folder in paths.CACHE.glob(f"venv-{'?' * 12}"):
        users = _users(folder)
        if folder != but and users is not None and not any(_links(user, folder) for user in users):
            shutil.rmtree(folder)


def _users(folder: Path) -> list[Path] | None:
    try:
        return [Path(name) for name in json.loads((folder / CHECKOUTS).read_text(encoding="utf-8"))]
    except (FileNotFoundError, ValueError):
        return None


def _links(checkout: Path, folder: Path) -> bool:
    return (checkout / ".venv").is_symlink() and (checkout / ".venv").resolve() == folder


def _link(folder: Path) -> None:
    """Make .venv of this checkout a link to the environment, and record there who uses it."""
    program, python = folder / "bin" / "trainlab", str(folder / "bin" / "python")
    _write(program, PROGRAM.format(quoted=shlex.quote(python), python=python, record=CHECKOUTS))
    program.chmod(0o755)
    users = {str(user) for user in _users(folder) or () if _links(user, folder)} | {str(paths.REPO)}
    _write(folder / CHECKOUTS, json.dumps(sorted(users)))
    if not _links(paths.REPO, folder):
        made = paths.REPO / f".venv.{os.getpid()}"
        made.symlink_to(folder)
        made.replace(paths.REPO / ".venv")  # another command may make it at the same moment


def _write(file: Path, text: str) -> None:
    """Write a small file atomically, if its content differs."""
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        part = file.with_name(f".{file.name}.{os.getpid()}")
        part.write_text(text, encoding="utf-8")
        part.replace(file)
