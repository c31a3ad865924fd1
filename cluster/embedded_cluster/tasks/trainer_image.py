"""Builds the trainer image with buildah and loads it into the embedded cluster's nodes; the command `trainer-image`.

With --push it goes to somebody's registry instead (push.py).
The tag is a hash of all inputs: an image that exists already is never rebuilt.
The last line is JSON: {"image": reference, "digest": "sha256:...", "changed": true|false}. Called by the role `image`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from embedded_cluster.base import children, paths, say
from embedded_cluster.builds import pyenv, rootfs
from embedded_cluster.containers import images
from embedded_cluster.nodes import proxies
from embedded_cluster.tasks import push

NAME = "localhost/trainlab-trainer"
PACKAGES = "localhost/trainlab-packages"
BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")
LAYOUT = paths.CACHE / "trainer-layout"
VLLM = "localhost/trainlab-vllm"
VLLM_SOURCES = tuple(paths.REPO / "images" / "vllm" / name for name in ("Containerfile", "vllm.lock"))
VLLM_LAYOUT = paths.CACHE / "vllm-layout"
GPU_SUFFIX, TRACKING_SUFFIX = "-gpu", "-tracking"
TRACKING_LOCK = pyenv.TRAINER / "tracking.lock"
SLOW = (pyenv.CPU_ONLY.name, "requirements.lock", "alone.lock")
LOCKS = tuple(file.name for file in pyenv.TRAINER_LOCKS)
# uv instead of the image's own pip: six times as fast, wheels only; frequently imported modules are compiled later.
INSTALL = "/installer/uv pip install --python /opt/trainlab/venv/bin/python --no-cache"


def vllm_reference(packages: str) -> str:
    """Return the name of vLLM's image over these slow layers (vllm_image.py); its tag identifies them and all inputs of its build."""
    key = hashlib.sha256("\0".join([packages, INSTALL]).encode())
    for source in VLLM_SOURCES:
        key.update(source.read_bytes())
    return f"{VLLM}:{key.hexdigest()[:12]}"


def _digest(files: Iterator[Path] | list[Path], also: str) -> str:
    """Hash over names and contents, and `also`, 12 hex digits."""
    digest = hashlib.sha256(also.encode())
    for file in sorted(files):
        digest.update(f"{file.relative_to(paths.REPO)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def _sources() -> Iterator[Path]:
    """The Containerfile and everything that it copies."""
    yield from (pyenv.TRAINER / name for name in ("Containerfile", pyenv.CPU_ONLY.name, TRACKING_LOCK.name, *LOCKS))
    for folder in (paths.REPO / "data", paths.REPO / "charts", paths.REPO / "training" / "src"):
        yield from (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    yield paths.REPO / "training" / "pyproject.toml"


def _base() -> str:
    """The Debian base image made from packages; its tag identifies each with its version."""
    ref = f"localhost/trainlab-base:{_debian()}"
    if not images.in_buildahs_store(ref):
        folder = rootfs.debian("trainer-base", BASE_PACKAGES)
        with say.step("base image"):
            container = images.buildah("from", "scratch", quiet=True).strip()
            images.buildah("copy", "--quiet", container, str(folder), "/", quiet=True)
            images.buildah("commit", "--quiet", "--rm", container, ref, quiet=True)
    return ref


def _debian() -> str:
    """Hash of the base's packages with their versions."""
    return rootfs.versions("trainer-base", BASE_PACKAGES)


def build_stage(
    target: str,
    ref: str,
    context: Path = paths.REPO,
    file: str = "images/trainer/Containerfile",
    gpu: bool = False,
    tracking: bool = False,
) -> None:
    """Build a stage of the Containerfile `file` in `context` as `ref`, from the base and the packages of this machine.

    With `gpu` it has the libraries of CUDA, and what a GPU's kernels are compiled with, which is installed from Debian; with
    `tracking` the clients of site.reportTo.
    """
    build_args = {"BASE": _base(), "GPU": "yes" if gpu else "no", "PIP_ARGS": "--no-index --find-links /wheels"}
    build_args |= {"TRACKING": "yes"} if tracking else {}
    options = ("--layers", "--target", target)
    with say.step(f"buildah: stage {target}"):
        wheels = _tracking_wheels(gpu) if tracking else pyenv.wheels(gpu)
        build_image(ref, context / file, build_args, wheels, *options, context=context, online=gpu)


def build_image(
    ref: str,
    file: Path,
    build_args: Mapping[str, str],
    wheels: Path,
    *options: str,
    context: Path = paths.REPO,
    online: bool = False,
) -> None:
    """Build `ref` from the Containerfile `file` with these build arguments and options, and INSTALL for the packages of `wheels`.

    Packages come from /wheels; with `online` its commands get the user's proxies, too.
    """
    arguments = [
        *("build", *options, "--quiet", "--tag", ref, "--file", str(file)),
        *(
            word
            for key, value in {**build_args, "INSTALL": INSTALL}.items()
            for word in ("--build-arg", f"{key}={value}")
        ),
        *("--volume", f"{wheels}:/wheels:ro", "--volume", f"{pyenv.installer() / 'bin'}:/installer:ro", str(context)),
    ]
    images.buildah(*arguments, mounts=[context], env=proxies.handed_on(os.environ) if online else None, quiet=True)


def _packages_ref(gpu: bool) -> str:
    """The name of the slow layers; its tag identifies the lock files and their installation."""
    first = (pyenv.TRAINER / "Containerfile").read_text().split("FROM packages AS final")[0]
    slow = first + "".join((pyenv.TRAINER / name).read_text() for name in SLOW)
    key = hashlib.sha256((slow + INSTALL + _debian() + GPU_SUFFIX * gpu).encode())
    return f"{PACKAGES}:{key.hexdigest()[:12]}"


def _downloads(gpu: bool) -> None:
    """Fetch root folders and wheels in parallel: each mostly waits for the network."""
    wanted = (rootfs.base, lambda: rootfs.debian("trainer-base", BASE_PACKAGES), lambda: pyenv.wheels(gpu))
    children.side_by_side(lambda make: make(), wanted, jobs=len(wanted))


def _tracking_wheels(gpu: bool) -> Path:
    """The folder of the wheels, with those of TRACKING_LOCK; called by one build at a time."""
    target = pyenv.wheels(gpu)
    complete = target / f".{_digest([TRACKING_LOCK], '')}"
    if not complete.exists():
        pyenv.download([*pyenv.tags(), "-r", TRACKING_LOCK], target, "downloading the clients of MLflow and W&B")
        complete.touch()
    return target


def packages(gpu: bool) -> str:
    """Return the name of the slow layers, in buildah's and the node store; built where they are missing."""
    ref = _packages_ref(gpu)
    if images.has_image(ref) is None:
        _downloads(gpu)
        build_stage("packages", ref, gpu=gpu)
        with say.step("packages to the node store"):
            images.export(ref, LAYOUT)
            images.import_oci(LAYOUT, ref)
    return ref


def build(answer: bool = False, tracking: bool = False) -> None:
    """Build what is missing, load it into the nodes and print the line that the role reads.

    With `answer` a model is trained in its root first, and answers; `tracking` puts in the clients of site.reportTo.
    """
    with images.exclusive_build():
        outcome = _outcome(tracking)
        if answer:
            from embedded_cluster.tasks import first_answer

            first_answer.give(str(outcome["image"]))
    sys.stdout.write(f"{json.dumps(outcome)}\n")


def build_and_push(to: push.Target, gpu: bool, tracking: bool = False) -> None:
    """Push the image to a registry that lacks its tag, building what is missing, and print the line that the role reads.

    `gpu` puts in the compiler that Triton calls on a GPU, `tracking` the clients of site.reportTo.
    """
    ref = _name(gpu, tracking)
    tag = ref.rpartition(":")[2]
    with say.step(f"ask {to.host}"):
        digest = push.digest_of(to, tag)
    changed = not digest
    if changed:
        with images.exclusive_build():
            _in_buildahs_store(ref, gpu, tracking)
            digest = push.push(to, tag, images.stored(ref))
    outcome = {"image": f"{to.repository}@{digest}", "digest": digest, "changed": changed}
    sys.stdout.write(f"{json.dumps(outcome)}\n")


def _in_buildahs_store(ref: str, gpu: bool, tracking: bool) -> None:
    """Build `ref` where it is missing; the node store of the embedded cluster does not get it."""
    if images.in_buildahs_store(ref):
        return
    _downloads(gpu)
    build_stage("packages", _packages_ref(gpu), gpu=gpu)
    build_stage("final", ref, gpu=gpu, tracking=tracking)


def _outcome(tracking: bool) -> dict[str, object]:
    """Make the image, without CUDA's libraries unless torch does not run without them, which the build tries."""
    gpu = pyenv.cuda()
    try:
        return _made(gpu, tracking)
    except say.UserError as error:
        reason = next((line for line in str(error).splitlines() if pyenv.FAILED in line), "")
        if gpu or not reason:
            raise
        pyenv.use_cuda(reason.partition(pyenv.FAILED)[2].strip(" :"))
        return _made(True, tracking)


def _made(gpu: bool, tracking: bool) -> dict[str, object]:
    if not rootfs.folder("rootfs", rootfs.PACKAGES).is_dir():
        _downloads(gpu)  # before has_image, which would make the first of them without the others
    ref = _name(gpu, tracking)
    built = images.has_image(ref) is None
    if built:
        slow = packages(gpu)
        build_stage("final", ref, gpu=gpu, tracking=tracking)
        with say.step("image to the node store"):
            images.export(ref, LAYOUT)
            images.import_oci(LAYOUT, ref)
    changed = built or images.load_stored(ref)  # LAYOUT may hold another's image
    if built:
        over = vllm_reference(slow)
        images.forget_older(_name(gpu), _name(gpu, tracking=True), slow, over)
        if images.has_image(over) is None:
            shutil.rmtree(VLLM_LAYOUT, ignore_errors=True)  # of an image over other slow layers
    return {"image": ref, "digest": images.has_image(ref), "changed": changed}


def _name(gpu: bool, tracking: bool = False) -> str:
    """The image's name; its tag identifies all its inputs."""
    return f"{NAME}:{_digest(_sources(), _debian())}{GPU_SUFFIX * gpu}{TRACKING_SUFFIX * tracking}"
