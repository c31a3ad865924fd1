"""Runs the tests of plugins and playbooks with other releases of ansible-core than that of the lock: all that meta/runtime.yml allows.

    python tests/ansible_range.py 2.17.14 2.18.19 [-- PYTEST_ARGUMENT ...]

Each gets an environment of its own below artifacts/ansible, which takes everything else from that of the checkout. One that this
Python cannot run is refused by pip, with its reason (2.20 wants Python 3.12). Exits with 1 if a test failed, after all of them ran.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ["tests/plugins"]
RESOLVELIB = "resolvelib==1.0.1"  # the newest that ansible-galaxy of 2.17 and 2.18 takes


def environment(core: str) -> Path:
    """Return the Python of an environment with that ansible-core, made anew."""
    folder = ROOT / "artifacts" / "ansible" / core
    venv.create(folder, clear=True, symlinks=True)
    python = folder / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--ignore-installed",
    ]
    subprocess.run([*pip, f"ansible-core=={core}", RESOLVELIB], check=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (own / "checkout.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")  # after its own
    return python


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
    print(f"failed with ansible-core {', '.join(failed)}" if failed else "passed with each", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
