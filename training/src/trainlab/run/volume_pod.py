"""Runs inside the short-lived pod of `trainlab put` and `get` (run/transfer.py), by `python3 -c`: reads and writes one volume.

A request is a line of JSON on stdin; after a `write` follow the bytes of its files. Each answer is a line of JSON on stdout, the last one
has the key `answer` or `error`; bytes of a `read` come between lines. Only the standard library: any image with Python 3.9 will do.
"""

import errno
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
ALIVE = 5.0  # seconds between lines while a file is hashed: a silent connection would be cut
FULL = (errno.ENOSPC, errno.EDQUOT)
Json = dict[str, Any]


class Refused(Exception):
    """What the caller is told, as a kind and its details."""

    def __init__(self, kind: str, **details: Any) -> None:
        super().__init__(kind)
        self.answer = {"error": kind, **details}


def say(**line: Any) -> None:
    """Write a line at once."""
    sys.stdout.buffer.write(json.dumps(line).encode() + b"\n")
    sys.stdout.buffer.flush()


def inside(root: str, path: str) -> Path:
    """Return the place of a path in the volume; links may not lead out of it, and the volume itself is no place."""
    place = Path(root, path)
    if Path(root).resolve() not in place.resolve().parents:
        raise Refused("outside", path=path)
    return place


def part_of(place: Path, ident: str) -> Path:
    """Return the hidden folder of what has arrived so far."""
    return place.with_name(f".{place.name}.put-{ident}")


def member(part: Path, name: str) -> Path:
    """Return a file of a part; a copy of one file has no name."""
    return part / (name or "file")


def digest(path: Path) -> str:
    """Return a file's SHA-256, with signs of life."""
    made, reported = hashlib.sha256(), time.monotonic()
    with path.open("rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b""):
            made.update(chunk)
            if time.monotonic() - reported > ALIVE:
                reported = time.monotonic()
                say(hashing=path.name)
    return made.hexdigest()


def walk(place: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of each file, the name relative to a folder; a file has the name ""."""
    if not place.is_dir():
        yield "", place
    for folder, folders, names in os.walk(place):
        folders.sort()
        for path in (Path(folder, name) for name in sorted(names)):
            if path.is_file():
                yield path.relative_to(place).as_posix(), path


def same(place: Path, files: list[Json]) -> bool:
    """True if the place holds these files and no others."""
    paths = dict(walk(place))
    if {each["name"] for each in files} != set(paths):
        return False
    if any(paths[each["name"]].stat().st_size != each["size"] for each in files):
        return False
    return all(digest(paths[each["name"]]) == each["sha256"] for each in files)


def plan(root: str, target: str, ident: str, files: list[Json], replace: bool) -> Json:
    """Return how many bytes of each file are there already; refuse what is there and differs, and what has no room."""
    place = inside(root, target)
    if place.exists():
        if same(place, files):
            return {"same": True}
        if not replace:
            raise Refused("exists", path=target)
    part = part_of(place, ident)
    place.parent.mkdir(parents=True, exist_ok=True)
    for other in place.parent.glob(f".{place.name}.put-*"):  # of another content
        if other != part:
            shutil.rmtree(other, ignore_errors=True)
    have = {}
    for each in files:
        path = member(part, each["name"])
        size = path.stat().st_size if path.is_file() else 0
        have[each["name"]] = size if size <= each["size"] else 0
    needed, free = sum(each["size"] for each in files) - sum(have.values()), shutil.disk_usage(place.parent).free
    if needed > free:
        shutil.rmtree(part, ignore_errors=True)
        raise Refused("full", needed=needed, free=free)
    return {"have": have}


def write(root: str, target: str, ident: str, files: list[Json]) -> Json:
    """Append to parts what follows on stdin; a connection that ends early leaves them for the next attempt."""
    part = part_of(inside(root, target), ident)
    try:
        for each in files:
            path = member(part, each["name"])
            path.parent.mkdir(parents=True, exist_ok=True)
            left = each["size"] - each["offset"]
            with path.open("r+b" if path.exists() else "wb") as out:
                out.truncate(each["offset"])
                out.seek(each["offset"])
                while left:
                    chunk = sys.stdin.buffer.read(min(CHUNK, left))
                    if not chunk:
                        raise Refused("short")
                    out.write(chunk)
                    left -= len(chunk)
                out.flush()
                os.fsync(out.fileno())
    except OSError as error:
        if error.errno in FULL:
            shutil.rmtree(part, ignore_errors=True)
        raise
    return {}


def finish(root: str, target: str, ident: str, files: list[Json]) -> Json:
    """Compare the digests of all parts; only then they become the target, at once."""
    place = inside(root, target)
    part = part_of(place, ident)
    if wrong := [each["name"] for each in files if digest(member(part, each["name"])) != each["sha256"]]:
        for name in wrong:
            member(part, name).unlink()
        return {"wrong": wrong}
    for path in part.rglob("*"):  # other pods may read as another user
        path.chmod(0o755 if path.is_dir() else 0o644)
    part.chmod(0o755)
    single_file = not files[0]["name"]
    old = place.with_name(f".{place.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists() and not (single_file and place.is_file()):
        place.rename(old)
    (part / "file" if single_file else part).replace(place)
    for each in (part, old):
        shutil.rmtree(each, ignore_errors=True)
        if each.is_file():
            each.unlink()
    return {}


def drop(root: str, target: str, ident: str) -> Json:
    """Remove what an attempt left."""
    shutil.rmtree(part_of(inside(root, target), ident), ignore_errors=True)
    return {}


def names(root: str, source: str, without: Collection[str]) -> Json:
    """Return the files of a folder, or one file, with sizes; `without` are its folders or files that are left out."""
    place = inside(root, source)
    if not place.exists():
        have = sorted(each.name for each in place.parent.glob("[!.]*")) if place.parent.is_dir() else []
        raise Refused("missing", path=source, have=have[:20])
    kept, left = [], set()
    for name, path in walk(place):
        inside(root, str(path.relative_to(root)))
        first = name.partition("/")[0]
        if first in without:
            left.add(first)
        else:
            kept.append({"name": name, "size": path.stat().st_size})
    return {"files": kept, "left_out": sorted(left)}


def read(root: str, source: str, files: list[Json]) -> Json:
    """Send each file from its offset, between a line before and one with the digest of the whole file after it."""
    for each in files:
        path = inside(root, f"{source}/{each['name']}" if each["name"] else source)
        made, before = hashlib.sha256(), path.stat()
        reported = time.monotonic()
        with path.open("rb") as stream:
            while left := each["offset"] - stream.tell():
                if not (chunk := stream.read(min(CHUNK, left))):
                    break
                made.update(chunk)
                if time.monotonic() - reported > ALIVE:
                    reported = time.monotonic()
                    say(hashing=each["name"])
            say(file=each["name"])
            left = each["size"] - each["offset"]
            while left:
                # what has become shorter is filled up, as the receiver counts bytes; the digest tells
                chunk = stream.read(min(CHUNK, left)) or bytes(min(CHUNK, left))
                made.update(chunk)
                sys.stdout.buffer.write(chunk)
                left -= len(chunk)
        after = path.stat()
        same = each["size"] == after.st_size and before.st_mtime_ns == after.st_mtime_ns
        say(sha256=made.hexdigest(), changed=not same)
    return {}


CALLS: dict[str, Callable[..., Json]] = {each.__name__: each for each in (plan, write, finish, drop, names, read)}


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.buffer.readline())
    try:
        say(answer=CALLS[request.pop("call")](**request))
    except Refused as refused:
        say(**refused.answer)
    except OSError as error:
        say(error="full" if error.errno in FULL else "os", text=f"{error.filename or 'volume'}: {error.strerror}")


if __name__ == "__main__":
    main()
