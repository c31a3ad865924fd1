"""The first answer of a cold `make demo`: phase quick, trained in the trainer image's root while the programs are built.

The same image, code and values as in a pod, without a cluster: a person reads the base model's answer beside the tuned
one's minutes before the first pod. Called by trainer_image.py's command with --first-answer.
"""

from __future__ import annotations

import json
import shutil
import time

from embedded_cluster.base import paths, say
from embedded_cluster.containers import images
from embedded_cluster.tasks import alone

FOLDER = paths.CACHE / "first-answer"
PHASE = "quick"


def give(ref: str) -> None:
    """Train PHASE in the root of image `ref` and print the clearest question with both answers; once for each image."""
    done = FOLDER / "image"
    if done.exists() and done.read_text(encoding="utf-8") == ref:
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    began = time.monotonic()
    with say.step(f"first answer: phase {PHASE}, trained in the image's root"):
        _train(ref)
    (report,) = FOLDER.glob("runs/*/report.json")
    say.line("")
    for text in alone.report_lines(json.loads(report.read_text(encoding="utf-8"))):
        for line in text.split("\n"):
            say.line(line)
    say.line(f"Both models answered here; the tuned one was trained in {time.monotonic() - began:.0f} s.")
    done.write_text(ref, encoding="utf-8")
    shutil.rmtree(FOLDER / "models")


def _train(ref: str) -> None:
    values = [f"/values/{PHASE}.yaml", "-f", f"/values/local/{PHASE}.yaml"]
    container = images.buildah("from", "--pull-never", ref, quiet=True).strip()
    mounts = [word for at in (f"{paths.REPO}/values:/values:ro", f"{FOLDER}:/answer") for word in ("--volume", at)]
    common = ["run", "--user", "0", *mounts, container, "--", "trainlab"]
    try:
        images.buildah(*common, "fetch", *values, "--models", "/answer/models", mounts=[paths.REPO])
        images.buildah(
            *common,
            "run",
            *values,
            "--models",
            "/answer/models",
            "--out",
            "/answer/runs",
            mounts=[paths.REPO],
            quiet=True,
        )
    finally:
        images.buildah("rm", container, quiet=True)
