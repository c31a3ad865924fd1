"""The scripts of others are those of the lock: byte for byte what npm installs from it."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import SOURCES

STATIC = SOURCES / "trainlab" / "room" / "static"
PACKAGE = json.loads((STATIC / "package.json").read_text())
LOCK = json.loads((STATIC / "package-lock.json").read_text())


def test_the_lock_pins_what_the_package_names() -> None:
    assert LOCK["packages"][""]["dependencies"] == PACKAGE["dependencies"]
    for name, version in PACKAGE["dependencies"].items():
        entry = LOCK["packages"][f"node_modules/{name}"]
        assert entry["version"] == version and entry["integrity"].startswith("sha512-") and "resolved" not in entry


def test_files_have_their_hashes() -> None:
    lines = dict(reversed(line.split("  ")) for line in (STATIC / "vendored.sha256").read_text().splitlines())
    assert set(lines) == set(PACKAGE["vendored"])
    for name, digest in lines.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest, name


def test_npm_installs_these_files_from_the_lock(tmp_path: Path) -> None:
    """npm checks each package against the lock's hash; needs npm and its registry, or its cache."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(STATIC / name, tmp_path)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if done.returncode and "EINTEGRITY" not in done.stderr:
        pytest.skip(f"npm cannot reach its registry: {done.stderr.splitlines()[:1]}")
    assert done.returncode == 0, done.stderr
    for name, source in PACKAGE["vendored"].items():
        assert (tmp_path / "node_modules" / source).read_bytes() == (STATIC / name).read_bytes(), name
