"""What `make release` leaves: pushed, pulled and installed with the lines of docs/operate/release.md, from a registry with a login."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from api_server.registry import PASSWORD, USER, Registry
from slow import but_the_first

from charts.rendering import HELMS, KUBERNETES, ROOT, SITE, binary, environment, template

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "operate" / "release.md").read_text(encoding="utf-8")
VERSION: str = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
PUBLISHED = "oci://ghcr.io/trainlab/charts"


def make(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a target of the checkout with the environment and the Helm at hand."""
    of_make = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    env = {key: value for key, value in os.environ.items() if key not in of_make} | more
    old = [f"--old-file={name}" for name in ("gen", "venv-dev")]
    command = ["make", "-C", str(ROOT), "--no-print-directory", *old, f"BIN={Path(sys.executable).parent}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.fixture(scope="module")
def release() -> Path:
    """The folder with the files of a release."""
    done = make("release", f"TAG=v{VERSION}", f"HELM={binary('helm')}")
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "artifacts" / "release"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """An empty registry."""
    with Registry(tmp_path_factory.mktemp("registry"), "127.0.0.1") as one:
        yield one


@pytest.fixture(scope="module")
def digest(release: Path, registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Push the chart as the workflow does, and once more, which is refused; return the digest that the registry gives its version."""
    home = str(tmp_path_factory.mktemp("home"))
    login = [binary("helm"), "registry", "login", registry.host, "-u", USER, "--password-stdin", "--ca-file"]
    env = environment() | {"HOME": home}
    subprocess.run(
        [*login, registry.authority], input=PASSWORD, text=True, check=True, env=env, stderr=subprocess.DEVNULL
    )
    words = (f"REGISTRY=oci://{registry.host}/charts", f"HELM={binary('helm')}", f"CA={registry.authority}")
    done = make("publish-chart", *words, HOME=home)
    assert done.returncode == 0, done.stdout + done.stderr
    again = make("publish-chart", *words, HOME=home)
    assert again.returncode == 2 and f"charts/trainjob has version {VERSION} already; raise the version" in again.stderr
    _, head = registry.get(f"charts/trainjob/manifests/{VERSION}", method="HEAD")
    return head["Docker-Content-Digest"]


@pytest.mark.parametrize("name", but_the_first(HELMS))
def test_the_chart_installs_by_version_and_by_digest(
    name: str, registry: Registry, digest: str, tmp_path: Path
) -> None:
    """The two lines of the page render what the checkout does; a version and a digest that nobody pushed are refused."""
    config = registry.login(tmp_path / "login.json")
    lines = re.findall(rf"^helm install (survival {PUBLISHED}/trainjob.*) -f site.yaml$", PAGE, re.MULTILINE)
    assert len(lines) == 2, "one by version, one by digest"
    files = tuple(str(ROOT / "values" / each) for each in ("survival.yaml",))
    expected = template(files, release="survival", name=name).stdout
    env = environment() | {"HOME": str(tmp_path), "HELM_REGISTRY_CONFIG": str(config)}

    def rendered(line: str) -> subprocess.CompletedProcess[str]:
        more = f"-f {SITE} --namespace lab --kube-version {KUBERNETES} --ca-file {registry.authority}".split()
        command = [str(binary(name)), "template", *line.split(), *more]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=tmp_path)

    for line in lines:
        line = line.replace(PUBLISHED, f"oci://{registry.host}/charts").replace("sha256:DIGEST", digest)
        done = rendered(line)
        assert done.returncode == 0, done.stderr
        assert done.stdout == expected, line
        other = line.replace(VERSION, "9.9.9").replace(digest, f"sha256:{'0' * 64}")
        done = rendered(other)
        assert done.returncode and "not found" in done.stderr, done.stderr


def test_the_collection_and_the_package_install(release: Path, tmp_path: Path) -> None:
    """In a home of their own, without a network; the program checks a phase."""
    env = os.environ | {"HOME": str(tmp_path), "ANSIBLE_COLLECTIONS_PATH": str(tmp_path), "PYTHONPATH": ""}
    galaxy = [sys.executable, "-m", "ansible", "galaxy", "collection"]
    archive = release / f"trainlab-rhoai-{VERSION}.tar.gz"
    for words in (["install", "--no-deps", "-p", str(tmp_path), str(archive)], ["list", "trainlab.rhoai"]):
        done = subprocess.run([*galaxy, *words], capture_output=True, text=True, check=False, env=env, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert re.search(rf"trainlab\.rhoai\s+{re.escape(VERSION)}\b", done.stdout), done.stdout
    folder = tmp_path / "ansible_collections" / "trainlab" / "rhoai"
    assert "meta/ee-requirements.txt" in PAGE and (folder / "meta" / "ee-requirements.txt").is_file()

    (wheel,) = re.findall(r"^pip install https://\S+/(\S+\.whl)$", PAGE, re.MULTILINE)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(tmp_path / "lib"),
    ]
    subprocess.run([*pip, str(release / wheel)], check=True, env=env, capture_output=True)
    check = [sys.executable, "-m", "trainlab.cli", "check", str(folder / "values" / "quick.yaml")]
    done = subprocess.run(
        check, capture_output=True, text=True, check=False, env=env | {"PYTHONPATH": str(tmp_path / "lib")}
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_hashes_are_those_of_the_files(release: Path) -> None:
    """SHA256SUMS lists every file of the release."""
    lines = (release / "SHA256SUMS").read_text(encoding="utf-8").split()
    listed = dict(zip(lines[1::2], lines[::2], strict=True))
    files = {path for path in release.iterdir() if path.name != "SHA256SUMS"}
    assert listed == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert len(listed) == 4, "two charts, the collection, the wheel"


def test_another_tag_is_refused() -> None:
    """A tag that is not the version publishes nothing, and says which it has to be."""
    done = make("release", "TAG=v9.9.9", "--old-file=package")
    assert done.returncode == 2 and f"TAG=v9.9.9, but galaxy.yml has version {VERSION}" in done.stderr, done.stderr
