"""The image store, a containerd root: every image is unpacked once, and nodes get hard links to it.

Called by images.py (imports) and cluster.py (links it into a node). `refs.json` next to it lists its content. Blobs are
hard-linked from an OCI layout into containerd's content store and only announced to it: it unpacks, but never copies.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from embedded_cluster.base import files, locks, paths, patience, programs, say
from embedded_cluster.builds import rootfs
from embedded_cluster.containers import oci

FORMAT = 1  # increment it when the meaning of the folder's content changes
BLOBS = Path("io.containerd.content.v1.content/blobs/sha256")
START_SECONDS = 30.0
STOP_SECONDS = 10.0
# containerd sweeps unknown blobs 0.1 s after its start (plugin gc, startup_delay): link later than that
SWEEP_SECONDS = 0.5
LINK_TRIES = 3
ARCHIVE = "import-{}.tar"
LARGE = 64 << 20  # bytes from which a blob is linked instead of sent


class Ctr(Protocol):
    """Runs containerd's `ctr` with these arguments and returns its output."""

    def __call__(self, *argv: str, stdin: IO[bytes] | None = None) -> str:
        """Raises say.UserError with ctr's message."""


@dataclass(frozen=True)
class Source:
    """An image in an OCI layout and the names it gets."""

    layout: Path
    manifest: dict[str, Any]
    refs: tuple[str, ...]
    recipe: str = ""


def folder() -> Path:
    """The folder of the image store; its name changes with the root folder, that is, with containerd's version."""
    containerd_of = rootfs.folder("rootfs", rootfs.PACKAGES).name  # which is not made to look into the store
    return paths.CACHE / f"image-store-{hashlib.sha256(f'{FORMAT} {containerd_of}'.encode()).hexdigest()[:12]}"


def refs() -> dict[str, dict[str, str]]:
    """What the image store holds: reference -> digest and recipe key."""
    try:
        result: dict[str, dict[str, str]] = json.loads((folder() / "refs.json").read_text())
    except FileNotFoundError:
        return {}
    return result


def lock(shared: bool = False) -> contextlib.AbstractContextManager[None]:
    """Lock the image store: exclusively to write, shared to link from it."""
    return locks.waiting(paths.CACHE / "image-store.lock", "another command is using the image store", shared)


@contextlib.contextmanager
def containerd() -> Iterator[Ctr]:
    """A containerd on the image store in namespaces of its own; yields a function that runs `ctr` against it."""
    root, base = folder(), rootfs.base()
    root.mkdir(parents=True, exist_ok=True)
    config, socket, log = root / "containerd.toml", root / "containerd.sock", root / "containerd.log"
    config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
    socket.unlink(missing_ok=True)
    flags = ["--config", str(config), "--root", str(root / "root"), "--state", "/run/containerd", "-a", str(socket)]
    with log.open("wb") as out:
        daemon = subprocess.Popen(
            rootfs.command(base, ["containerd", *flags]),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            process_group=0,
        )

        def ctr(*argv: str, stdin: IO[bytes] | None = None) -> str:
            return rootfs.run(base, ["ctr", "--address", str(socket), "--namespace", "k8s.io", *argv], stdin=stdin)

        try:
            _answers(ctr, daemon, log)
            yield ctr
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself, which is what is told
                os.killpg(daemon.pid, 15)
            try:
                daemon.wait(patience.seconds(STOP_SECONDS))
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, 9)
                daemon.wait()
            socket.unlink(missing_ok=True)


def _answers(ctr: Ctr, daemon: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until containerd answers."""
    limit = patience.seconds(START_SECONDS)
    end = time.monotonic() + limit
    while True:
        try:
            ctr("version")
        except say.UserError:
            if daemon.poll() is not None:
                raise say.UserError(f"containerd exited with {daemon.returncode}; its log is {log}") from None
            if time.monotonic() > end:
                raise say.UserError(
                    f"containerd does not answer after {limit:.0f} s; {patience.hint()}; its log is {log}"
                ) from None
            time.sleep(0.1)
        else:
            time.sleep(SWEEP_SECONDS)
            return


def link(blob: Path, store: Path) -> None:
    """Hard-link a blob into a content store, or copy it across file systems."""
    file = store / BLOBS / blob.name
    file.parent.mkdir(parents=True, exist_ok=True)
    files.link(blob, file)


def announce(ctr: Ctr, source: Source, store: Path, blobs: Path, where: Path) -> None:
    """Register the image with a running containerd of content store `store`, which unpacks it; `where`: archive folder.

    `ctr images import` hashes every byte it is given, so a large blob is linked and then announced by `content ingest`
    with its digest and size: containerd finds the file and reads nothing from its input, a hole of that size
    (metadata/content.go, `shared`). Blobs that exist already are not sent. If that fails, everything is sent.
    """
    digests = oci.blobs_of(source.layout, source.manifest)
    for digest in digests:
        if not (blobs / digest).is_file():
            raise say.UserError(f"{blobs}/{digest}: missing, the image layout is incomplete: build it again")
    entry = {key: source.manifest[key] for key in ("mediaType", "digest", "size")}
    names = dict.fromkeys(source.refs, entry)
    file = where / ARCHIVE.format(f"{os.getpid()}-{threading.get_ident()}")
    try:
        # containerd's garbage collector, which runs after every import, may sweep a file between link and announcement
        for __ in range(LINK_TRIES):
            missing = [blobs / digest for digest in digests if not (store / BLOBS / digest).exists()]
            try:
                for blob in missing:
                    if blob.stat().st_size >= LARGE:
                        link(blob, store)
                        _ingest(ctr, blob, file)
                oci.archive(file, names, [blob for blob in missing if blob.stat().st_size < LARGE])
                ctr("images", "import", str(file))
                return
            except say.UserError as error:
                reason = str(error).splitlines()[-1]
            time.sleep(SWEEP_SECONDS)
        say.info(f"{source.refs[0]}: import by hard links failed, sending everything ({reason})")
        oci.archive(file, names, [blobs / digest for digest in digests])
        ctr("images", "import", str(file))
    finally:
        file.unlink(missing_ok=True)


def _ingest(ctr: Ctr, blob: Path, hole_file: Path) -> None:
    size = blob.stat().st_size
    with hole_file.open("w+b") as hole:
        hole.truncate(size)
        flags = ("--expected-digest", f"sha256:{blob.name}", "--expected-size", str(size))
        ctr("content", "ingest", *flags, f"link-{blob.name}", stdin=hole)


def add(sources: list[Source]) -> None:
    """Import images into the image store and record them in refs.json."""
    if not sources:
        return
    with lock(), containerd() as ctr:
        for left in folder().glob(ARCHIVE.format("*")):  # by an import that was killed
            left.unlink()
        for source in sources:
            with say.step(f"import {source.refs[0]}"):
                announce(ctr, source, folder() / "root", source.layout / "blobs" / "sha256", folder())
        known = refs()
        for source in sources:
            known.update({ref: {"digest": source.manifest["digest"], "recipe": source.recipe} for ref in source.refs})
        write_refs(known)


def forget(names: Sequence[str]) -> None:
    """Remove images and all that no other one needs; running nodes keep theirs through hard links of their own."""
    if not names:
        return
    with lock(), containerd() as ctr, say.step(f"remove {', '.join(names)}, which nothing uses any more"):
        ctr("images", "rm", "--sync", *names)  # --sync waits for the garbage collector, which ends with this containerd
        write_refs({ref: entry for ref, entry in refs().items() if ref not in names})


def write_refs(known: dict[str, dict[str, str]]) -> None:
    """Replace refs.json."""
    part = folder() / "refs.json.part"
    part.write_text(json.dumps(known, indent=1, sort_keys=True))
    part.replace(folder() / "refs.json")


def link_into(node_root: Path) -> None:
    """Give a node its containerd root: hard links (copies on another disk), but real copies of the databases, which are written in place."""
    source, target = folder() / "root", node_root / "var/lib/containerd"
    with lock(shared=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        same = source.stat().st_dev == target.parent.stat().st_dev
        programs.run(*programs.with_us(), "cp", "-al" if same else "-a", str(source), str(target))
        for database in [*source.glob("*.db"), *source.glob("*/*.db")]:
            copy = target / database.relative_to(source)
            copy.unlink()
            shutil.copy2(database, copy)
