"""`trainlab put` and `get`: copies files and folders to a PersistentVolumeClaim and back, by a short-lived pod and kubectl exec.

A copy is complete or absent: what was sent is compared by SHA-256 before it gets its name. What a dropped connection, or Ctrl-C, left
of a `put` is hidden in the target's folder, and the next attempt goes on from there; so does a `get`. Rights: create, get and delete pods,
create pods/exec, and to find volume and image get persistentvolumeclaims and jobs, all in one namespace.
"""

import argparse
import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainlab import files
from trainlab.config.types import PATH
from trainlab.errors import UserError
from trainlab.progress import note
from trainlab.run import volume_pod
from trainlab.run.put_values import values_for
from trainlab.run.transfer_pod import VOLUMES, Answered, Dropped, Json, Pod, Pods, line_of

LEFT_OUT = ("checkpoints", "best_model", "final_model")
"""Of a run: folders of whole models."""
TRIES, PAUSE = 5, 2.0  # attempts without a byte of progress, and seconds between two
EVERY = 2.0  # seconds between lines of progress


@dataclass(frozen=True)
class Place:
    """A path in a volume, as people write it: datasets/PATH, models/PATH or runs/PATH."""

    volume: str
    path: str

    def __str__(self) -> str:
        return f"{self.volume}/{self.path}"

    @classmethod
    def of(cls, text: str, option: str) -> "Place":
        """Parse it; raises UserError for a path that is outside the volume."""
        volume, __, path = text.partition("/")
        if volume not in VOLUMES:
            raise UserError(f"{option} {text}: must begin with {', '.join(f'{each}/' for each in VOLUMES)}; correct it")
        path = path.rstrip("/")
        if not re.fullmatch(PATH, path):
            raise UserError(
                f"{option} {text}: {path!r} is no path inside the volume; write names of letters, digits, ., _ and - separated by /, "
                "none of them . or .."
            )
        return cls(volume, path)


def add_arguments(parser: argparse.ArgumentParser, put: bool) -> None:
    """Add the options of `trainlab put` or `get`."""
    if put:
        parser.epilog = (
            "Example: trainlab put rows.csv datasets/mine/ -n trainlab-demo. It prints the values to use it with. Repeated after an "
            "interruption, it goes on."
        )
        parser.add_argument("source", type=Path, metavar="FILE|FOLDER", help="what to copy")
        text = "datasets/PATH or models/PATH in the volume; with / at the end, a folder to put it into"
        parser.add_argument("target", metavar="TARGET", help=text)
        parser.add_argument("--replace", action="store_true", help="replace what is there and differs")
    else:
        parser.epilog = "Example: trainlab get runs/quick-1a2b3c4d -n trainlab-demo: adapter, answers, TensorBoard files and report of a run."
        parser.add_argument("source", metavar="SOURCE", help="runs/RUN, datasets/PATH or models/PATH in the volume")
        text = "where to write it (default: its name, in this folder)"
        parser.add_argument("target", type=Path, nargs="?", metavar="DEST", help=text)
        parser.add_argument("--replace", action="store_true", help="write into a folder that is there")
        text = f"of a run, also {', '.join(LEFT_OUT)}, which are whole models"
        parser.add_argument("--all", action="store_true", help=text)
    parser.add_argument("-n", "--namespace", metavar="NS", help="namespace (default: that of the kubeconfig's context)")
    parser.add_argument("--release", metavar="NAME", help="whose volumes (default: the only release there)")
    parser.add_argument("--claim", metavar="NAME", help="PersistentVolumeClaim (default: the release's)")
    parser.add_argument("--sub-path", default="", metavar="PATH", help="folder of the claim that is the volume")
    parser.add_argument("--image", metavar="IMAGE", help="image with Python (default: the release's)")
    parser.add_argument(
        "--pod-spec", type=json.loads, default={}, metavar="JSON", help="further keys of the pod's spec"
    )
    text = "minutes after which the pod ends in any case (default %(default)s)"
    parser.add_argument("--minutes", type=int, default=120, metavar="MIN", help=text)
    text = "command that reaches the cluster [KUBECTL, else kubectl or oc]"
    parser.add_argument("--kubectl", default=os.environ.get("KUBECTL"), metavar="COMMAND", help=text)
    parser.set_defaults(call=put_from_args if put else get_from_args)


def put_from_args(args: argparse.Namespace) -> int:
    """Copy to the volume and print how to use it."""
    print(put(args.source, args.target, Pods.of(args), args.replace))
    return 0


def get_from_args(args: argparse.Namespace) -> int:
    """Copy from the volume and print what is there now."""
    print(get(args.source, args.target, Pods.of(args), args.replace, () if args.all else LEFT_OUT))
    return 0


def put(source: Path, target: str, pods: Pods, replace: bool = False) -> str:
    """Copy a file or folder; return what is there and how a values file names it. Raises UserError."""
    place = Place.of(target + source.resolve().name if target.endswith("/") else target, "TARGET")
    if place.volume == "runs":
        raise UserError(f"TARGET {target}: runs are written by jobs alone; put it into datasets/ or models/")
    sent = _local(source)
    states = {each["name"]: _state(_at(source, each["name"])) for each in sent}
    for each in sent:
        each["sha256"] = files.sha256(_at(source, each["name"]))
    digest = hashlib.sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()
    common = {"root": "/volume", "target": place.path, "ident": digest[:12]}
    size = sum(each["size"] for each in sent)

    def changed() -> None:
        for name, state in states.items():
            path = _at(source, name)
            if not path.exists() or _state(path) != state:
                raise UserError(
                    f"{path}: changed while it was copied; nothing was kept: run the same again once nobody writes it"
                )

    with pods.running(place.volume) as pod:
        meter = Bar(f"put {source.name}", size)

        def attempt() -> bool:
            """Send what is missing; True when it was there before."""
            remote = pod.ask({"call": "plan", **common, "files": sent, "replace": replace})
            if remote.get("same"):
                return True
            have = remote["have"]
            meter.begin(sum(have.values()))
            missing = [
                {**each, "offset": have[each["name"]]}
                for each in sent
                if have[each["name"]] < each["size"] or not each["size"]
            ]

            def send(stream: IO[bytes]) -> None:
                for each in missing:
                    for chunk in _chunks(_at(source, each["name"]), each["offset"], each["size"]):
                        stream.write(chunk)
                        meter.add(len(chunk))

            if missing:
                pod.ask({"call": "write", **common, "files": missing}, send=send)
            changed()
            if wrong := pod.ask({"call": "finish", **common, "files": sent}).get("wrong"):
                raise Dropped(f"{', '.join(map(str, wrong))}: other bytes arrived than were sent")
            return False

        try:
            before = _repeated(attempt, meter, f"put {source}")
        except Answered as error:
            raise UserError(_refused(error.answer, place, pod)) from None
        except UserError:
            with suppress(Dropped, Answered):
                if any(
                    not _at(source, name).exists() or _state(_at(source, name)) != state
                    for name, state in states.items()
                ):
                    pod.ask({"call": "drop", **common})
            raise
    verb = "is there already" if before else "is there now"
    text = f"{place} {verb}, in claim {pod.claim}: {_count(sent)}, {size:,} bytes, sha256 {digest if sent[0]['name'] else sent[0]['sha256']}"
    return "\n".join([text, *values_for(source, place.volume, place.path)])


def get(source: str, target: Path | None, pods: Pods, replace: bool = False, without: Sequence[str] = LEFT_OUT) -> str:
    """Copy from the volume; return what is there now. Raises UserError."""
    place = Place.of(source, "SOURCE")
    dest = target or Path(Path(place.path).name)
    if dest.exists() and not replace:
        raise UserError(f"{dest}: exists; name another place, or write into it with --replace")
    part = dest.absolute().with_name(f".{dest.name}.get")
    left_out: list[str] = []
    with pods.running(place.volume) as pod:
        try:
            skipped = [*without] if place.volume == "runs" else []
            answer = pod.ask({"call": "names", "root": "/volume", "source": place.path, "without": skipped})
            listed, left_out = answer["files"], answer["left_out"]
            for each in listed:
                if each["name"].startswith("/") or ".." in Path(each["name"]).parts:
                    raise UserError(
                        f"{place}: holds a file named {each['name']!r}, which is outside of it; remove it there"
                    )
            if not listed:
                raise UserError(f"{place}: holds no file; correct the name")
            if dest.is_dir() and [each["name"] for each in listed] == [""]:
                raise UserError(
                    f"{dest}: is a folder, and {place} a file; name the file to write, such as {dest / Path(place.path).name}"
                )
            _room(part, listed)
            meter = Bar(f"get {place}", sum(each["size"] for each in listed))
            done: set[str] = set()
            _repeated(lambda: _receive(pod, place, listed, part, meter, done), meter, f"get {place}")
        except Answered as error:
            raise UserError(_refused(error.answer, place, pod)) from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                shutil.rmtree(part, ignore_errors=True)
                raise UserError(
                    f"{dest}: this machine's disk is full ({files.free_text(dest)}); nothing was kept: free space, or name another DEST"
                ) from None
            raise
    for each in listed:
        final = dest / each["name"] if each["name"] else dest
        final.parent.mkdir(parents=True, exist_ok=True)
        _at(part, each["name"] or "file").replace(final)
    shutil.rmtree(part, ignore_errors=True)
    size = sum(each["size"] for each in listed)
    text = f"{dest} is there: {_count(listed)}, {size:,} bytes"
    return "\n".join([text, *([f"left out: {', '.join(left_out)} (--all gets them)"] if left_out else [])])


def _receive(pod: Pod, place: Place, listed: Sequence[Json], part: Path, meter: "Bar", done: set[str]) -> bool:
    wanted = []
    for each in listed:
        if each["name"] in done:
            continue
        path = _at(part, each["name"] or "file")
        path.parent.mkdir(parents=True, exist_ok=True)
        have = path.stat().st_size if path.exists() else 0
        wanted.append({**each, "offset": have if have <= each["size"] else 0})
    meter.begin(sum(each["size"] for each in listed if each["name"] in done) + sum(each["offset"] for each in wanted))

    def take(stream: IO[bytes]) -> None:
        for each in wanted:
            path = _at(part, each["name"] or "file")
            line_of(stream, "file")
            with path.open("r+b" if path.exists() else "wb") as out:
                out.truncate(each["offset"])
                out.seek(each["offset"])
                left = each["size"] - each["offset"]
                while left:
                    if not (chunk := stream.read(min(volume_pod.CHUNK, left))):
                        raise Dropped("the connection ended")
                    out.write(chunk)
                    left -= len(chunk)
                    meter.add(len(chunk))
            end = line_of(stream, "sha256")
            if end["changed"]:
                path.unlink()
                raise UserError(
                    f"{place}/{each['name']}: changed while it was copied; run the same again once nobody writes it (a run: once it has ended)"
                )
            if files.sha256(path) != end["sha256"]:
                path.unlink()
                raise Dropped(f"{each['name'] or place}: other bytes arrived than were sent")
            done.add(each["name"])

    if wanted:
        pod.ask({"call": "read", "root": "/volume", "source": place.path, "files": wanted}, take=take)
    return False


def _repeated(attempt: Callable[[], bool], meter: "Bar", what: str) -> bool:
    """Call until it is through; raises UserError after attempts that brought nothing new."""
    idle = 0
    while True:
        before = meter.moved
        try:
            return attempt()
        except Dropped as error:
            idle = 0 if meter.moved > before else idle + 1
            if idle >= TRIES:
                raise UserError(
                    f"{what}: the connection to the pod drops again and again ({error}); the next attempt goes on where this one ended"
                ) from None
            note(f"{what}: the connection dropped ({error}); going on from there")
            time.sleep(PAUSE)


def _refused(answer: Json, place: Place, pod: Pod) -> str:
    """Return the sentence for what the pod answered."""
    kind = answer["error"]
    if kind == "outside":
        return f"{place}: leads out of claim {pod.claim}, by a link in the volume; name another place"
    if kind == "exists":
        return f"{place}: is there already and differs; name another place, or replace it with --replace"
    if kind == "missing":
        have = f"; there is {', '.join(answer['have'])}" if answer["have"] else ""
        return f"{place}: nothing there in claim {pod.claim}{have}; correct the name"
    if kind == "full":
        sizes = (
            f" ({files.megabytes(answer['needed'])} are needed, {files.megabytes(answer['free'])} are free)"
            if "needed" in answer
            else ""
        )
        return (
            f"{place}: the volume of claim {pod.claim} is full{sizes}; nothing was kept: enlarge it or remove something"
        )
    return f"{place}: {answer.get('text', kind)}; correct the volume's rights or the name"


def _local(source: Path) -> list[Json]:
    """Return name and size of a file (its name is empty) or of each file in a folder; raises UserError for what cannot be copied."""
    if not source.exists():
        raise UserError(f"{source}: no such file or folder; correct the path")
    entries = []
    for name, path in volume_pod.walk(source):
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(f"{path!r}: its name is not UTF-8; rename it") from None
        if not os.access(path, os.R_OK):
            raise UserError(f"{path}: cannot be read; correct its rights")
        entries.append({"name": name, "size": Path(path).stat().st_size})
    if not entries:
        raise UserError(f"{source}: holds no file; put something into it")
    return entries


def _at(root: Path, name: str) -> Path:
    return root / name if name else root


def _state(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _chunks(path: Path, offset: int, size: int) -> Iterator[bytes]:
    """Yield the bytes from `offset` to `size`; what has become shorter is filled up, and found by its digest."""
    with path.open("rb") as stream:
        stream.seek(offset)
        while offset < size:
            chunk = stream.read(min(volume_pod.CHUNK, size - offset)) or b"\0" * min(volume_pod.CHUNK, size - offset)
            yield chunk
            offset += len(chunk)


def _room(part: Path, listed: Sequence[Json]) -> None:
    have = sum(path.stat().st_size for path in part.rglob("*") if path.is_file()) if part.exists() else 0
    needed = sum(each["size"] for each in listed) - have
    exists = next(parent for parent in part.parents if parent.exists())
    if needed > (free := shutil.disk_usage(exists).free):
        raise UserError(
            f"{exists}: {files.megabytes(needed)} are needed, {files.megabytes(free)} are free; free space, or name another DEST"
        )


def _count(listed: Sequence[Json]) -> str:
    return f"{len(listed)} file{'s' * (len(listed) != 1)}"


class Bar:
    """Says how far a copy is, at most every two seconds."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._done, self._reported, self._began, self._first = 0, 0.0, time.monotonic(), 0
        self.moved = 0

    def begin(self, remote: int) -> None:
        """Begin an attempt at so many bytes."""
        if remote:
            note(f"{self._what}: {files.megabytes(remote)} of {files.megabytes(self._total)} are there")
        self._done, self._first, self._began, self._reported = remote, remote, time.monotonic(), time.monotonic()

    def add(self, count: int) -> None:
        """Count bytes."""
        self._done += count
        self.moved += count
        now = time.monotonic()
        if now - self._reported >= EVERY:
            self._reported = now
            rate = (self._done - self._first) / (now - self._began)
            left = (self._total - self._done) / rate
            note(
                f"{self._what}: {files.megabytes(self._done)} of {files.megabytes(self._total)}, {files.megabytes(rate)}/s, {left:.0f} s left"
            )
