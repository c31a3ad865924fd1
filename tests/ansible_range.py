"""Runs the tests of plugins and playbooks, and `ansible-test sanity` on what is released, with other releases of ansible-core than
that of the lock: all that meta/runtime.yml allows.

    python tests/ansible_range.py 2.18.19 2.20.10 2.21.5 [-- PYTEST_ARGUMENT ...]

With arguments of pytest there is no sanity; without, the release of the lock has it, too.

Each gets an environment of its own below artifacts/ansible, which takes everything else from that of the checkout; one that this Python
is too old for has another Python, NEWER_PYTHON or the newest in the PATH, and everything else by the lock. Exits with 1 if a test
failed, after all of them ran.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from ansible.release import __version__

ROOT = Path(__file__).resolve().parents[1]
TESTS = ["tests/plugins"]
MIN_PYTHON = {"2.20": (3, 12), "2.21": (3, 12)}
"""Releases that need a newer Python than Debian 12 has."""
RESOLVELIB = "resolvelib==1.0.1"  # the newest that ansible-galaxy of 2.18 takes; 2.20 and 2.21 take the lock's


def environment(core: str) -> Path:
    """Return the Python of an environment with that ansible-core, made anew."""
    folder = ROOT / "artifacts" / "ansible" / core
    python = folder / "bin" / "python"
    least = next((needed for first, needed in MIN_PYTHON.items() if core.startswith(f"{first}.")), (3, 0))
    mine = sys.version_info >= least
    subprocess.run(
        [sys.executable if mine else newer(least), "-m", "venv", "--clear", "--without-pip", folder], check=True
    )
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    if mine:
        own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        (own / "checkout.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")  # after its own
        subprocess.run([*pip, "--ignore-installed", f"ansible-core=={core}", RESOLVELIB], check=True)
    else:
        subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements.lock")], check=True)
        subprocess.run([*pip, f"ansible-core=={core}"], check=True)
    return python


def newer(least: tuple[int, int]) -> str:
    """Return a Python of at least this version, by name or path; ends the program where there is none."""
    asked = os.environ.get("NEWER_PYTHON")
    for name in [asked] if asked else [f"python3.{minor}" for minor in range(19, least[1] - 1, -1)]:
        if version(name) >= least:
            return name
    wanted = ".".join(map(str, least))
    found = f"NEWER_PYTHON={asked} is none" if asked else "none is in the PATH"
    raise SystemExit(f"error: Python {wanted} or newer is needed, and {found}; install one, or name it in NEWER_PYTHON")


def version(python: str | Path) -> tuple[int, ...]:
    """Return major and minor version of a Python; (0, 0) for what does not run."""
    words = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return (0, 0)
    return tuple(map(int, done.stdout.split()))


GET_PIP = """import subprocess, sys
words = [one for one in sys.argv[1:] if not one.startswith("--no-")]  # of get-pip, not of pip
raise SystemExit(subprocess.call([{program!r}, "-m", "pip", "--python", sys.executable, "install", *words]))
"""
"""Stands in for the script with which ansible-test fetches the pip of its environments, and which it takes from its cache."""
PIPS = ("24_2", "25_2")  # those of 2.18, and of 2.20 and 2.21


def sanity(python: Path) -> int:
    """Run `ansible-test sanity` on the built collection, in a folder outside of the checkout, whose git ignores artifacts."""
    with tempfile.TemporaryDirectory(prefix="trainlab-sanity-") as name:
        home, unpacked = Path(name) / "home", Path(name) / "ansible_collections" / "trainlab" / "rhoai"
        cache = home / ".ansible" / "test" / "cache"
        cache.mkdir(parents=True)
        for pip in PIPS:
            (cache / f"get_pip_{pip}.py").write_text(GET_PIP.format(program=sys.executable), encoding="utf-8")
        galaxy = [str(python), str(python.with_name("ansible-galaxy")), "collection", "build", "--output-path", name]
        subprocess.run(galaxy, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(name).glob("*.tar.gz")
        shutil.unpack_archive(archive, unpacked)
        shutil.copytree(ROOT / "tests" / "sanity", unpacked / "tests" / "sanity")
        which = ".".join(map(str, version(python)))
        command = [str(python), str(python.with_name("ansible-test")), "sanity", "--python", which, "--requirements"]
        env = os.environ | {"HOME": str(home), "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
        return subprocess.run(command, cwd=unpacked, env=env, check=False).returncode


def main() -> int:
    """Run the tests with each release of the command line."""
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    failed = []
    for core in words[:at]:
        python = environment(core)
        command = [str(python), "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", *(words[at + 1 :] or TESTS)]
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        print(f"==> ansible-core {core}", flush=True)
        if subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": path}, check=False).returncode:
            failed.append(core)
        if at == len(words) and sanity(python):
            failed.append(f"{core} (sanity)")
    if at == len(words) and sanity(environment(__version__)):
        failed.append(f"{__version__} (sanity)")  # the lock's, whose tests `make test` runs
    print(f"failed with ansible-core {', '.join(failed)}" if failed else "passed with each", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
