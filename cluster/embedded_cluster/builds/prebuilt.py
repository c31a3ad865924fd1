"""Programs that somebody built before, taken from $TRAINLAB_PROGRAMS by their hash only; the command `programs` writes them.

$TRAINLAB_PROGRAMS is a folder or an https address with NAME-DIGEST.gz for each program. The digest names a program's
inputs, cluster/programs.lock the SHA-256 of what is built from them: builds are bit-identical. Called by build.py.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import os
import platform
import shutil
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from embedded_cluster.base import paths
from embedded_cluster.base.say import UserError, info

VARIABLE = "TRAINLAB_PROGRAMS"
LOCK = paths.COMPONENT_MODULES / "programs.lock"
MACHINE = "x86_64"
"""The processor for which LOCK has the hashes."""
HASH = "--hash=sha256:"
SECONDS = 60.0
CHUNK = 1 << 20
ELSE = (
    f"give a folder or an https address that has the programs of this version, or unset {VARIABLE}: they are built then"
)


def locked() -> dict[str, tuple[str, int]]:
    """File name of a program -> its SHA-256 in hex and its size in bytes, as cluster/programs.lock has them."""
    lines = LOCK.read_text(encoding="ascii").splitlines() if platform.machine() == MACHINE else []
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {name: (digest.removeprefix(HASH), int(size)) for name, size, digest in rows}


def take(targets: Iterable[Path]) -> None:
    """Write those of these programs that $TRAINLAB_PROGRAMS has; nothing where it is not set.

    Raises UserError when it cannot be read, and when a program there is not, byte by byte, the one in the lock.
    """
    place = os.environ.get(VARIABLE, "")
    if not place:
        return
    known, taken = locked(), []
    for target in targets:
        source = f"{place.rstrip('/')}/{target.name}.gz"
        if target.name not in known:
            info(f"{target.name} is not in {LOCK.name} (another version, or another processor): it is built")
            continue
        stream = _open(source)
        if stream is None:
            info(f"{source} is not there: it is built")
            continue
        with stream:
            _write(stream, source, target, *known[target.name])
        taken.append(target)
    if taken:
        size = sum(target.stat().st_size for target in taken) / 2**20
        info(f"{len(taken)} programs from {place}, {size:.0f} MiB, each with the SHA-256 in {LOCK.name}")


def _open(source: str) -> IO[bytes] | None:
    """The compressed program; None when the place does not have it."""
    try:
        if source.startswith("https://"):
            answer: IO[bytes] = urllib.request.urlopen(source, timeout=SECONDS)
            return answer
        if "://" in source:
            raise UserError(f"{VARIABLE}={source.rpartition('/')[0]}: {ELSE}")
        folder = Path(source).parent
        if not folder.is_dir():
            raise UserError(f"{VARIABLE}={folder}: no such folder; {ELSE}")
        return Path(source).open("rb") if Path(source).exists() else None
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise UserError(f"{source}: the server answers {error.code} {error.reason}; {ELSE}") from error
    except OSError as error:
        raise UserError(f"{source}: {error}; {ELSE}") from error


def _write(stream: IO[bytes], source: str, target: Path, digest: str, size: int) -> None:
    part = target.with_name(f".{target.name}.part")
    have, count = hashlib.sha256(), 0
    try:
        with gzip.GzipFile(fileobj=io.BufferedReader(stream)) as data, part.open("wb") as out:  # type: ignore[type-var]
            while count <= size and (chunk := data.read(CHUNK)):
                have.update(chunk)
                count += len(chunk)
                out.write(chunk)
        if (count, have.hexdigest()) != (size, digest):
            raise UserError(
                f"{source}: {count} bytes with SHA-256 {have.hexdigest()[:16]}..., {LOCK.name} has {size} bytes with "
                f"{digest[:16]}...: it is not what these sources build; {ELSE}"
            )
        part.chmod(0o755)
        part.replace(target)
    except (EOFError, gzip.BadGzipFile, zlib.error, http.client.IncompleteRead) as error:
        raise UserError(f"{source}: not a whole gzip file ({error}); {ELSE}") from error
    finally:
        part.unlink(missing_ok=True)


def write(programs: Iterable[Path], folder: Path) -> None:
    """Write built programs into `folder`, as $TRAINLAB_PROGRAMS is read, and their hashes into cluster/programs.lock."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for program in sorted(programs):
        part = folder / f".{program.name}.part"
        with program.open("rb") as source, gzip.GzipFile(part, "wb", compresslevel=6, mtime=0) as out:
            shutil.copyfileobj(source, out, CHUNK)
        part.replace(folder / f"{program.name}.gz")
        with program.open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
        rows.append(f"{program.name} {program.stat().st_size} {HASH}{digest}\n")
    head = f"# Program, bytes, SHA-256; for {MACHINE}. `make programs` writes this file, and the programs beside it.\n"
    LOCK.write_text(head + "".join(rows), encoding="ascii")
