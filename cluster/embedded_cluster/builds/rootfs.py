"""Debian root folders made by mmdebstrap, and running commands in them.

One folder (`base()`) holds containerd, runc, buildah and the network tools: nothing is installed on the host.
Called by images.py, image_store.py, cluster.py and by trainer_image.py for the base of its image.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from embedded_cluster.base import locks, paths, programs, say, system
from embedded_cluster.builds import apt

DAYS = 30
"""A root folder older than this is made anew, so that nodes and images get Debian's security updates."""
TRY_AGAIN_SECONDS = 3600
RELEASE, PYTHON = "bookworm", "3.11"  # Debian 12, and the Python that its root folders bring
# what a node, the image builder and the importer need; containerd 1.6 and buildah 1.28 in this release
PACKAGES = (
    "buildah",
    "busybox-static",
    "ca-certificates",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "ethtool",
    "iproute2",
    "ipset",
    "iptables",
    "kmod",
    "mount",
    "netbase",
    "nftables",
    "openssl",
    "procps",
    "runc",
    "skopeo",
    "socat",
)
# kubeadm's controller manager mounts it from the node, whose /usr is read-only
FLEXVOLUMES = "usr/libexec/kubernetes/kubelet-plugins/volume/exec"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def mirrors(release: str = RELEASE) -> list[str]:
    """mmdebstrap's arguments for the sources of a Debian release: the machine's own files where it runs that release, else
    its Debian mirrors with the release's name changed; none where it is no Debian, which is mmdebstrap's default then.
    """
    folder = Path("/etc/apt/sources.list.d")
    files = [Path("/etc/apt/sources.list"), *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))]
    own = [file for file in files if file.is_file()]
    if serving := [str(file) for file in own if _serves(file, release)]:
        return serving
    if system.release().get("ID") != "debian":
        return []
    theirs = system.release().get("VERSION_CODENAME", "")
    sources = [mirror for file in own for mirror in _debian_mirrors(file, theirs)]
    return [f"deb {address} {release}{suite.removeprefix(theirs)} main" for address, suite in dict.fromkeys(sources)]


def _debian_mirrors(file: Path, release: str) -> Iterator[tuple[str, str]]:
    """Yield (address, suite) of the release's binary packages in one of apt's source files, sources.list(5)."""
    text = "\n".join(
        line for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if not line.startswith("#")
    )
    if file.suffix == ".sources":
        for paragraph in re.split(r"\n\s*\n", text):
            fields = {
                key.lower(): value for key, value in re.findall(r"^([\w-]+):[ \t]*(.*)$", paragraph, re.MULTILINE)
            }
            if "deb" in fields.get("types", "").split():
                pairs = itertools.product(fields.get("uris", "").split(), fields.get("suites", "").split())
                yield from (pair for pair in pairs if pair[1].startswith(release))
        return
    for address, suite in re.findall(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)", text, re.MULTILINE):
        if suite.startswith(release):
            yield address, suite


def _serves(file: Path, release: str) -> bool:
    words = {
        word
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
        if not line.lstrip().startswith("#")
        for word in line.split()
    }
    return release in words and "main" in words


def identity(packages: Sequence[str]) -> str:
    """Short hash that names a root folder: release and packages."""
    return hashlib.sha256(" ".join([RELEASE, *sorted(packages)]).encode()).hexdigest()[:12]


def folder(name: str, packages: Sequence[str]) -> Path:
    """Where the root folder of these packages is or would be."""
    return paths.CACHE / f"{name}-{identity(packages)}"


def debian(name: str, packages: Sequence[str]) -> Path:
    """The root folder `name` with these Debian packages, made when it is not there (about 80 s), and anew after DAYS.

    One that is old stays as long as a node's or another program's mounts are of it, or the archive cannot be reached: it
    says so, and works as before. Raises say.UserError with mmdebstrap's last lines where there is none yet.
    """
    target = folder(name, packages)
    if _current(name, target):
        return target
    paths.CACHE.mkdir(parents=True, exist_ok=True)
    with locks.waiting(paths.CACHE / f"{name}.lock", f"another command makes the root folder {name}"):
        if not (target / "usr").is_dir():  # another command may have made it meanwhile
            _bootstrap(name, packages, target)
        elif not _current(name, target):
            _refresh(name, packages, target)
    return target


def versions(name: str, packages: Sequence[str]) -> str:
    """Short hash of what is installed in the root folder `name`: each package with its version."""
    status = (debian(name, packages) / "var/lib/dpkg/status").read_text(encoding="utf-8")
    installed = re.findall(r"^(?:Package|Version): .*$", status, re.MULTILINE)
    return hashlib.sha256("\n".join(installed).encode()).hexdigest()[:12]


_KEPT: set[Path] = set()
"""Old root folders that this process could not make anew: it tries once."""


def _current(name: str, target: Path) -> bool:
    return (target / "usr").is_dir() and (target in _KEPT or _age(target) < DAYS or _out_of_reach(name))


def _tried(name: str) -> Path:
    """The file whose time is that of the last try that did not reach the archive."""
    return paths.CACHE / f"{name}.tried"


def _out_of_reach(name: str) -> bool:
    """Whether a command could not reach the archive a moment ago, so that the next ones need not wait for it."""
    try:
        return 0 <= time.time() - _tried(name).stat().st_mtime < TRY_AGAIN_SECONDS
    except FileNotFoundError:
        return False


def _age(target: Path) -> float:
    """Days since the packages were installed."""
    try:
        return (time.time() - (target / "var/lib/dpkg/status").stat().st_mtime) / 86400
    except FileNotFoundError:
        return DAYS


def _refresh(name: str, packages: Sequence[str], target: Path) -> None:
    """Put a new root folder in the place of `target`, or say why the old one stays."""
    why = "a cluster uses it; the first command after that is gone makes it anew" if _mounted(target) else ""
    fresh = target.with_name(f"{target.name}.new")
    try:
        if not why:
            _bootstrap(name, packages, fresh)
    except say.UserError as error:
        why = str(error).splitlines()[0]
        _tried(name).touch()
    if why:
        _KEPT.add(target)
        say.line(f"the Debian packages in {target} are {_age(target):.0f} days old and stay: {why}")
        return
    old = target.with_name(f"{target.name}.old")
    target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old)


def _mounted(target: Path) -> bool:
    """Whether any process, such as a node's first one, has the folder's /usr as its own or a mount of something in it.

    A node's table of mounts names the folder as its file system does, without the place where that is mounted here.
    """
    usr = (target / "usr").stat()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            if str(target) in (process / "mountinfo").read_text(encoding="utf-8", errors="replace"):
                return True
            if os.path.samestat((process / "root" / "usr").stat(), usr):
                return True
    return False


def _bootstrap(name: str, packages: Sequence[str], target: Path) -> None:
    for left in paths.CACHE.glob(f"{name}-*.*"):  # of a killed one
        shutil.rmtree(left)
    part = target.with_name(target.name + ".part")
    log = paths.CACHE / f"{name}.log"
    command = [
        *programs.isolated(),
        *("mmdebstrap", "--mode=root", "--variant=apt", "--include=" + ",".join(packages)),
        *(f"--dpkgopt=path-exclude=/usr/share/{junk}/*" for junk in ("doc", "man", "locale")),
        *('--aptopt=APT::Install-Recommends "false"', RELEASE, str(part), *mirrors()),
    ]
    with say.step(f"Debian {RELEASE} root folder with {len(packages)} packages"), log.open("wb") as out:
        english = {**os.environ, "LC_ALL": "C.UTF-8"}  # its reasons are looked for below
        done = subprocess.run(
            command, env=english, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False
        )
        if done.returncode:
            output = log.read_text(errors="replace")
            if "E: Failed to fetch" in output:
                raise say.UserError(
                    f"{apt.UNREACHED}: mmdebstrap: {apt.reason(output)}; {apt.REMEDY} (whole log: {log})"
                )
            last = "\n".join(output.splitlines()[-8:])
            raise say.UserError(f"mmdebstrap failed (exit {done.returncode}, whole log: {log}):\n{last}")
        part.replace(target)


def base() -> Path:
    """The root folder of nodes, containerd and buildah."""
    root = debian("rootfs", PACKAGES)
    (root / FLEXVOLUMES).mkdir(parents=True, exist_ok=True)
    return root


def command(
    root: Path,
    argv: Sequence[str],
    *,
    mounts: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
    cwd: str = "/",
) -> list[str]:
    """The argument list that runs `argv` in `root`; TRAINLAB_HOME and `mounts` are visible at their own paths.

    The namespaces die with the calling process (setpriv): a kill -9 leaves neither processes nor mounts.
    """
    linked = [path.resolve() for path in (paths.CACHE, paths.CLUSTER) if path.is_symlink()]  # to another disk
    variables = {"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", **(env or {})}
    return [
        *(*programs.with_us(), "unshare", "--fork", "--kill-child", "--pid", "--mount"),
        *("--propagation", "private", "bash", str(paths.PACKAGE / "rootfs.sh"), str(root), cwd),
        *(str(path) for path in (paths.HOME, *linked, *mounts)),
        *("--", "env", "-i", *(f"{key}={value}" for key, value in variables.items()), *argv),
    ]


def run(
    root: Path,
    argv: Sequence[str],
    *,
    mounts: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
    cwd: str = "/",
    quiet: bool = True,
    stdin: IO[bytes] | None = None,
) -> str:
    """Run `argv` in `root` and return its standard output; `quiet=False` lets the output through instead.

    Raises say.UserError with the command's last lines when it fails.
    """
    done = subprocess.run(
        command(root, argv, mounts=mounts, env=env, cwd=cwd),
        stdin=stdin or subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.PIPE if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join(((done.stdout or "") + (done.stderr or "")).splitlines()[-12:])
        raise say.UserError(f"{' '.join(argv[:4])} failed (exit {done.returncode}):\n{last}")
    return done.stdout or ""
