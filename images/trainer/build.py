"""Builds the trainer image with buildah and brings it to the embedded cluster's nodes.

    python3 images/trainer/build.py [--packages]

--packages stops after the slow layers (they depend on the lock files alone), so that `make demo` can make them beside
the Go builds. The tag is a hash of everything that goes in: an image that is there already is never built again.
The last line is JSON: {"image": reference, "digest": "sha256:...", "changed": true|false}. Called by the role `image`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
sys.path.insert(0, str(REPO / "cluster" / "lab"))

import ends  # noqa: E402
import say  # noqa: E402

try:
    import locks
    import paths
    import rootfs

    import images
except say.LabError as error:  # what the environment says of the cluster is wrong
    sys.stderr.write(f"error: {error}\n")
    sys.exit(2)

NAME = "localhost/trainlab-trainer"
PACKAGES = "localhost/trainlab-packages"
BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")
LAYOUT = paths.CACHE / "trainer-layout"
LOCKS = ("requirements.lock", "models.lock", "alone.lock")  # in the order of cluster/venv


def _digest(files: Iterator[Path] | list[Path], *, root: Path = REPO) -> str:
    """Hash over names and contents, 12 hex digits."""
    whole = hashlib.sha256()
    for file in sorted(files):
        whole.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return whole.hexdigest()[:12]


def _sources() -> Iterator[Path]:
    """Everything that the Containerfile copies, and itself."""
    yield from (HERE / name for name in ("Containerfile", *LOCKS))
    for folder in (REPO / "data", REPO / "training" / "src"):
        yield from (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    yield REPO / "training" / "pyproject.toml"


def _base() -> str:
    """The Debian base image from packages; its tag names release and packages."""
    ref = f"localhost/trainlab-base:{rootfs.identity(BASE_PACKAGES)}"
    if not images.buildah("images", "--quiet", "--filter", f"reference={ref}", quiet=True).strip():
        folder = rootfs.debian("trainer-base", BASE_PACKAGES)
        with say.step("base image"):
            container = images.buildah("from", "scratch", quiet=True).strip()
            images.buildah("copy", "--quiet", container, str(folder), "/", quiet=True)
            images.buildah("commit", "--quiet", "--rm", container, ref, quiet=True)
    return ref


def _wheels() -> Path:
    """The folder of wheels that cluster/venv downloaded for the current locks."""
    locks = b"".join((HERE / name).read_bytes() for name in LOCKS)
    folder = paths.CACHE / f"wheels-{hashlib.sha256(locks).hexdigest()[:12]}"
    if not (folder / ".complete").exists():
        command = str(REPO / "cluster" / "venv")
        if code := subprocess.run([command], check=False, stdout=subprocess.DEVNULL).returncode:
            raise say.LabError(f"{command} ended with {code}, see above: no {folder}; run it again")
    return folder


def _build(target: str, ref: str) -> None:
    arguments = [
        *("build", "--layers", "--quiet", "--file", str(HERE / "Containerfile"), "--target", target, "--tag", ref),
        *("--build-arg", f"BASE={_base()}", "--build-arg", "PIP_ARGS=--no-index --find-links /wheels"),
        *("--volume", f"{_wheels()}:/wheels:ro", str(REPO)),
    ]
    with say.step(f"buildah: stage {target}"):
        images.buildah(*arguments, mounts=[REPO], quiet=True)


def _packages() -> str:
    """The slow layers, in buildah's store and in the node store; their tag names the lock file and how it is installed."""
    first = (HERE / "Containerfile").read_text().split("FROM packages AS final")[0]
    slow = first + "".join((HERE / name).read_text() for name in ("requirements.lock", "alone.lock"))
    key = hashlib.sha256((slow + rootfs.identity(BASE_PACKAGES)).encode())
    ref = f"{PACKAGES}:{key.hexdigest()[:12]}"
    if images.has_image(ref) is None:
        _build("packages", ref)
        with say.step("packages to the node store"):
            images.export(ref, LAYOUT)
            images.import_oci(LAYOUT, ref)
    return ref


def main() -> int:
    """Build what is missing; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packages", action="store_true", help="only the slow layers, not the image")
    asked = parser.parse_args()
    # both would write the same folders
    with locks.waiting(paths.CACHE / "trainer.lock", "another build of the trainer image runs"):
        return build(only_packages=asked.packages)


def build(only_packages: bool) -> int:
    """Build what is missing, bring it to the nodes and print the line that the role reads."""
    ref = f"{NAME}:{_digest(_sources())}"
    built = images.has_image(ref) is None
    packages = _packages() if built else ""
    if only_packages:
        return 0
    if built:
        _build("final", ref)
        with say.step("image to the node store"):
            images.export(ref, LAYOUT)
    changed = images.import_oci(LAYOUT, ref) or built
    if built:
        for kept in (ref, packages):
            images.forget_older(kept)
    print(json.dumps({"image": ref, "digest": images.has_image(ref), "changed": changed}))
    return 0


if __name__ == "__main__":
    sys.exit(ends.run(main, after="the same command goes on from here"))
