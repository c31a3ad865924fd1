"""Upstream's manifests with our overlay, as one file per operator in the cache; called by operators.

Upstream's files come from the Go module that the operator is built from, so image and manifests have the same version.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from embedded_cluster.base import paths
from embedded_cluster.base.say import UserError
from embedded_cluster.builds import build, modules
from embedded_cluster.containers import images

RENDERED = paths.CACHE / "manifests"
AFTER = "after"
"""Subfolder of an overlay whose objects need the operator to be running."""
ANYWHERE = "anywhere"
"""Subfolder of an overlay with what another cluster gets: nothing of this cluster's pods and images, and upstream's own image."""


@dataclass(frozen=True)
class Operator:
    """What to install: `source` is the folder in the Go module, `image` the name that upstream gives its image, and `released` the
    place of its releases if it is another one.

    Operators of one `stream` are applied one after the other, the streams in parallel.
    """

    name: str
    source: str
    namespace: str
    deployment: str
    image: str | None = None
    released: str | None = None
    default: bool = True
    stream: int = 0


def digest(operator: Operator) -> str:
    """Return a hash of all inputs of the rendered manifests."""
    state = hashlib.sha256(repr((operator, modules.module(operator.name), _images(operator))).encode())
    for folder in (paths.MANIFESTS / "common", *_overlays(operator)):
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            state.update(f"{file.relative_to(paths.MANIFESTS)}\0".encode() + file.read_bytes())
    return state.hexdigest()[:16]


def render(operator: Operator, part: str = "") -> str:
    """Return the manifests of an operator, or those of a part of it (AFTER; empty when it has none).

    Raises UserError when kustomize fails or an image is not the one that modules.py names.
    """
    target = RENDERED / f"{operator.name}{'-' if part else ''}{part}-{digest(operator)}.yaml"
    if target.exists():
        return target.read_text(encoding="utf-8")
    if not (paths.MANIFESTS / operator.name / part).exists():
        return ""
    RENDERED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RENDERED) as work:
        text = _kustomize(operator, Path(work), part)
        if not part:
            _check_images(operator, text)
        fresh = Path(work) / "rendered.yaml"
        fresh.write_text(text, encoding="utf-8")
        for old in RENDERED.glob(f"{operator.name}{'-' if part else ''}{part}-{'[0-9a-f]' * 16}.yaml"):
            old.unlink()
        fresh.replace(target)
    return text


def _overlays(operator: Operator) -> list[Path]:
    """Return the folders of an operator's overlay: ours, and over it what the older leg has instead."""
    folders = [paths.MANIFESTS / operator.name]
    differing = paths.MANIFESTS / modules.OLDER / operator.name
    return [*folders, differing] if modules.older() and differing.exists() else folders


def _images(operator: Operator) -> tuple[str, ...]:
    return modules.COMPONENTS[operator.name].images


def _kustomize(operator: Operator, work: Path, part: str) -> str:
    overlay = work / operator.name
    shutil.copytree(paths.MANIFESTS / "common", work / "common")
    for folder in _overlays(operator):
        shutil.copytree(folder, overlay, dirs_exist_ok=True)
    # Copied because kustomize accepts no absolute path; without modes because the module cache is read-only.
    shutil.copytree(build.download(operator.name) / operator.source, overlay / "up", copy_function=shutil.copyfile)
    for inner, __, __ in os.walk(overlay):
        Path(inner).chmod(0o755)
    name, tag = _images(operator)[0].rsplit(":", 1)
    new = operator.released if part == ANYWHERE and operator.released else name
    top = {
        "resources": [str(Path(operator.name) / part)],
        "images": [{"name": operator.image or name, "newName": new, "newTag": tag}],
        "patches": [] if part else [{"target": {"kind": "Deployment"}, "patch": json.dumps(_made_from(operator))}],
    }
    (work / "kustomization.yaml").write_text(json.dumps(top), encoding="ascii")
    # The restriction would keep after/ from reading up/ next to it.
    command = [*_kubectl(), "kustomize", "--load-restrictor=LoadRestrictionsNone"]
    done = subprocess.run([*command, str(work)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(f"{paths.MANIFESTS / operator.name}: kustomize failed: {done.stderr.strip()}")
    return done.stdout


def _kubectl() -> list[str]:
    """Return the command of our own kubectl, or of the machine's where that is not built, as on macOS."""
    built, installed = build.binary("kubernetes"), shutil.which("kubectl")
    if built.exists():
        return [str(built), "kubectl"]
    if not installed:
        raise UserError("kubectl is missing: put one into the PATH, or build it with `make binaries` (Linux)")
    return [installed]


def _made_from(operator: Operator) -> dict[str, object]:
    """A patch by which the operator's pod is replaced when its manifests change: it reads its ConfigMap only at its start."""
    template = {"metadata": {"annotations": {"trainlab.dev/manifests": digest(operator)}}}
    return {"kind": "Deployment", "metadata": {"name": operator.deployment}, "spec": {"template": template}}


def _check_images(operator: Operator, text: str) -> None:
    used = set(re.findall(r"^ *(?:- )?image: ([^\s{]+)$", text, re.MULTILINE)) - {images.RESOLVES}
    if used != set(_images(operator)):
        raise UserError(
            f"{paths.MANIFESTS / operator.name}: the manifests use {sorted(used)}, "
            f"cluster/embedded_cluster/builds/modules.py makes {sorted(_images(operator))}"
        )
