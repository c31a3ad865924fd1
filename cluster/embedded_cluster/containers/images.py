"""Images: the components' small ones, buildah for the others, and loading both into the nodes.

Called by the commands `images`, `load` and `up` and by trainer_image.py (`buildah`, `import_oci`, `has_image`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from embedded_cluster.base import children, locks, others, paths, programs, running, say
from embedded_cluster.builds import build, modules, rootfs
from embedded_cluster.containers import image_store, oci

LAYOUTS = paths.CACHE / "images"
PAUSE = "localhost/trainlab-pause:1"
RESOLVES = "localhost/trainlab-resolves:1"
"""busybox with `resolves`; used inside ConfigMaps of two operators."""
SPARE = 2 << 30  # bytes kept free: below 1 GiB the kubelet evicts pods
# these need root: port 53, data folders of the node, certificates; their manifests say what they may do
ROOTS = ("coredns", "etcd", "kubernetes", "local-path-provisioner")


def _busybox_links(busybox: Path) -> dict[str, str]:
    """One link per applet. ash prefers its own applets to programs of the same name in /bin: use other names."""
    listed = programs.run(str(busybox), "--list").split()
    return {f"bin/{applet}": "busybox" for applet in listed if applet != "busybox"}


def recipes() -> dict[tuple[str, ...], oci.Recipe]:
    """Every small image: its references and what it is made of."""
    busybox = rootfs.base() / "usr/bin/busybox"
    shell = _busybox_links(busybox)
    sleep = ("/bin/busybox", "sleep", "infinity")
    result: dict[tuple[str, ...], oci.Recipe] = {
        (PAUSE,): oci.Recipe({"bin/busybox": busybox}, entrypoint=sleep, user="65535:65535"),
        (RESOLVES,): oci.Recipe({"bin/busybox": busybox, "bin/resolves": build.binary("resolves")}, shell),
    }
    for name, component in modules.COMPONENTS.items():
        file = build.binary(name)
        if not component.images or not file.exists():
            continue
        at = f"usr/local/bin/{name}"
        links = (
            {(component.link or "").lstrip("/"): f"/{at}"}
            if component.link and component.link.lstrip("/") != at
            else {}
        )
        if name == "kubernetes":
            links = {f"usr/local/bin/kube-{part}": name for part in ("apiserver", "controller-manager", "scheduler")}
        user = "0:0" if name in ROOTS else "65532:65532"
        start = () if name == "kubernetes" else (component.link or f"/{at}",)
        result[tuple(component.images)] = oci.Recipe({at: file}, links, entrypoint=start, user=user)
    return result


def ensure(force: bool = False) -> bool:
    """Make and import every small image that is missing or was made from other inputs; returns whether any was."""
    known = {} if force else image_store.refs()
    wanted = {
        refs: recipe
        for refs, recipe in recipes().items()
        if any(known.get(ref, {}).get("recipe") != recipe.key() for ref in refs)
    }
    if not wanted:
        return False
    shutil.rmtree(LAYOUTS, ignore_errors=True)
    sources = []
    with say.step(f"write {len(wanted)} images"):
        for refs, recipe in wanted.items():
            layout = LAYOUTS / hashlib.sha256(refs[0].encode()).hexdigest()[:12]
            oci.write(recipe, layout)
            sources.append(image_store.Source(layout, oci.manifest_of(layout), refs, recipe.key()))
    image_store.add(sources)
    for source in sources:
        _to_nodes(source)
    shutil.rmtree(LAYOUTS)  # containerd has its own links to the blobs
    return True


def has_image(ref: str) -> str | None:
    """The digest of `ref` in the image store, None when it is not there."""
    return image_store.refs().get(ref, {}).get("digest")


def import_oci(layout: Path, ref: str) -> bool:
    """Load the image of an OCI layout folder, as `ref`, into the image store and every running node.

    Only layers that a store lacks are unpacked there; blobs are hard links. Returns whether anything changed.
    """
    manifest = oci.manifest_of(layout, ref)
    source = image_store.Source(layout, manifest, (ref,))
    changed = has_image(ref) != manifest["digest"]
    nodes = running.nodes()
    stores = [image_store.folder() / "root"] * changed + [running.root(node) / "var/lib/containerd" for node in nodes]
    _room(source, stores)
    if changed:
        image_store.add([source])
    return _to_nodes(source) or changed


def load_stored(ref: str) -> bool:
    """Load an image of the image store into every running node that lacks it; returns whether any did."""
    store = image_store.folder() / "root" / image_store.BLOBS
    digest = image_store.refs()[ref]["digest"]
    manifest = store / digest.removeprefix("sha256:")
    media = json.loads(manifest.read_text()).get("mediaType", oci.MANIFEST)
    described = {"mediaType": media, "digest": digest, "size": manifest.stat().st_size}
    source = image_store.Source(store.parents[1], described, (ref,))
    _room(source, [running.root(node) / "var/lib/containerd" for node in running.nodes()])
    return _to_nodes(source)


def _room(source: image_store.Source, stores: Sequence[Path]) -> None:
    """Raise say.UserError when unpacking the layers that these content stores lack would fill the disk."""
    need = sum(oci.unpacked(source.layout, source.manifest, store / image_store.BLOBS) for store in stores)
    free = shutil.disk_usage(paths.CACHE).free
    if need and free - need < SPARE:
        raise say.UserError(
            f"{source.refs[0]}: unpacking it in {len(stores)} places takes {need / 2**30:.1f} GiB, {paths.CACHE} has "
            f"{free / 2**30:.1f} GiB free: free some, or run `down`, import it, then `up` (nodes get it as hard links)"
        )


def _to_nodes(source: image_store.Source) -> bool:
    """Load an image into every running node; blobs come from the image store. Returns whether any lacked it."""
    blobs = image_store.folder() / "root" / image_store.BLOBS

    def lacks(node: str) -> bool:
        mark = running.loaded(node)
        return any(mark.get(ref) != source.manifest["digest"] for ref in source.refs)

    def load_into(node: str) -> None:
        store = running.root(node) / "var/lib/containerd"

        def ctr(*argv: str, stdin: IO[bytes] | None = None) -> str:
            return running.ctr(node, *argv, stdin=stdin)

        image_store.announce(ctr, source, store, blobs, running.share())
        now = {ref: str(source.manifest["digest"]) for ref in source.refs}
        running.note_loaded(node, {**running.loaded(node), **now})

    nodes = [node for node in running.nodes() if lacks(node)]
    if nodes:
        with say.step(f"{source.refs[0]} to {len(nodes)} nodes"):
            children.side_by_side(load_into, nodes, len(nodes))
    return bool(nodes)


def load(archive: Path) -> bool:
    """Import an OCI archive (tar) or layout folder; its references are the names in its index."""
    if archive.is_dir():
        return _load_layout(archive)
    if not archive.is_file():
        raise say.UserError(f"{archive}: no such file or folder; give an OCI archive or an OCI layout folder")
    paths.CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="load-", dir=paths.CACHE) as folder:
        with say.step(f"read {archive}"):
            try:
                oci.extract(archive, Path(folder))
            except tarfile.TarError as error:
                raise say.UserError(f"{archive}: not a tar archive ({error})") from error
        return _load_layout(Path(folder))


def _load_layout(layout: Path) -> bool:
    changed = False
    for ref, manifest in oci.named(layout).items():
        oci.verify(layout, manifest)
        changed = import_oci(layout, ref) or changed
    return changed


def scratch() -> Path:
    """Where buildah and skopeo write layers until they are complete."""
    return paths.CACHE / "tmp" / "images"


@contextlib.contextmanager
def exclusive_build() -> Iterator[None]:
    """Let one command at a time build an image by buildah: two would write the same folders."""
    with locks.waiting(paths.CACHE / "trainer.lock", "another build of an image is running"):
        shutil.rmtree(scratch(), ignore_errors=True)  # layers that a killed build was writing
        yield


def buildah(*argv: str, mounts: Sequence[Path] = (), env: Mapping[str, str] | None = None, quiet: bool = False) -> str:
    """Run buildah in the Debian root folder; its store is CACHE/containers, its mounts vanish with the command.

    `mounts` and TRAINLAB_HOME are visible at their own paths. Returns standard output when `quiet`.
    """
    store = paths.CACHE / "containers"
    for path in (store, scratch()):
        path.mkdir(parents=True, exist_ok=True)
    settings = {"BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "overlay", "TMPDIR": str(scratch()), **(env or {})}
    command = ["buildah", "--root", str(store), "--runroot", "/run/containers", *argv]
    return rootfs.run(rootfs.base(), command, mounts=mounts, env=settings, quiet=quiet)


def in_buildahs_store(ref: str) -> bool:
    """True if buildah can build upon `ref`; the image store of the nodes is another one."""
    return bool(buildah("images", "--quiet", "--filter", f"reference={ref}", quiet=True).strip())


def forget_older(*wanted: str) -> None:
    """Remove every other tag of these images from buildah's store and from the image store, with their layers.

    An image that another cluster uses stays: its next `up` would have to rebuild it.
    """
    starts, kept = tuple(f"{ref.rpartition(':')[0]}:" for ref in wanted), {*wanted, *others.images()}

    def old(ref: str) -> bool:
        return ref.startswith(starts) and ref not in kept

    buildah("rm", "--all", quiet=True)  # left by a killed build, they hold their images; the caller is the only builder
    for ref in filter(old, buildah("images", "--format", "{{.Name}}:{{.Tag}}", quiet=True).split()):
        buildah("rmi", ref, quiet=True)
    buildah("rmi", "--prune", quiet=True)
    image_store.forget(list(filter(old, image_store.refs())))


def stored(ref: str) -> str:
    """An image of buildah's store as skopeo names it."""
    return f"containers-storage:[overlay@{paths.CACHE / 'containers'}+/run/containers]{ref}"


def export(ref: str, layout: Path) -> None:
    """Write an image of buildah's store into an OCI layout folder, for `import_oci`; existing layers are kept.

    skopeo, not `buildah push`, which compresses for this format and so rewrites every layer each time.
    """
    layout.mkdir(parents=True, exist_ok=True)
    command = ["skopeo", "copy", "--quiet", "--dest-oci-accept-uncompressed-layers", stored(ref), f"oci:{layout}:{ref}"]
    scratch().mkdir(parents=True, exist_ok=True)
    rootfs.run(rootfs.base(), command, env={"TMPDIR": str(scratch())})
    oci.keep_only(layout, ref)
