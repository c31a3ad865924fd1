"""Atomic writes (a file is complete or absent) and digests; used by every module that writes to a volume."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from trainlab.errors import UserError

CHUNK = 1 << 20


def slug(name: str) -> str:
    """Return a name as one of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lower()


def write_text(path: Path, text: str) -> None:
    """Write `text` (UTF-8) to `path` so that readers see the old file or the new one, never a partial one."""
    with atomic_write(path) as stream:
        stream.write(text.encode("utf-8"))


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Yield a stream whose bytes replace `path` if the block succeeds; until then and on failure `path` is unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)  # mkstemp gives 0600; the server's pod may run as another user
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Return the JSON in `path`; a missing or invalid file raises UserError with its name."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; has the run that writes it finished?") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON: {error}") from None


def link_or_copy(source: Path | str, target: Path | str) -> None:
    """Make `target` the same file as `source`, a copy where the volume has no hard links or the file is another user's."""
    try:
        if Path(source).stat().st_uid != os.geteuid():
            raise PermissionError
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _sync(path: Path) -> None:
    """Let the volume write a file, or the names of a folder, which some network volumes cannot be asked for."""
    number = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
            os.fsync(number)
    finally:
        os.close(number)


def remove_leftovers(parent: Path, name: str = "") -> None:
    """Remove what a killed atomic_folder left in `parent`, for any target or that of a name; only where nobody else writes there."""
    left = re.compile(rf"\.{re.escape(name) or '.+'}\.[a-z0-9_]{{8}}")  # as tempfile.mkdtemp ends names
    for path in parent.iterdir() if parent.is_dir() else ():
        if left.fullmatch(path.name) and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def atomic_folder(target: Path, *, resume: bool = False) -> Iterator[Path]:
    """Yield an empty folder next to `target` that replaces `target` if the block succeeds, else is deleted.

    With `resume` it stays, also after a kill, and is what the next block gets; the caller then holds a lock.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if resume:
        work = target.with_name(f".{target.name}.part")
        work.mkdir(exist_ok=True)
    else:
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        work.chmod(0o755)
        yield work
        for path in work.rglob("*"):  # safetensors writes 0600; other pods may read as another user
            path.chmod(0o755 if path.is_dir() else 0o644)
            _sync(path)  # a node that is lost later must not leave empty files below the final name
        _sync(work)
        old = target.with_name(f".{target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        work.rename(target)
        _sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        if not resume:
            shutil.rmtree(work, ignore_errors=True)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def folder_sha256(folder: Path, pattern: str = "**/*", without: str = "") -> str:
    """Return one SHA-256 over names and contents of the files in `folder` that match `pattern` and are not named `without`."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.glob(pattern) if p.is_file() and p.name != without):
        digest.update(f"{path.relative_to(folder).as_posix()} {sha256(path)}\n".encode())
    return digest.hexdigest()


def free_text(path: Path) -> str:
    """Return the free space of the volume that holds `path`, or will once it exists, for error messages."""
    exists = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    return f"{megabytes(shutil.disk_usage(exists).free)} free"


def megabytes(count: float) -> str:
    """Return a number of bytes in MB."""
    return f"{count / 1e6:,.0f} MB"
