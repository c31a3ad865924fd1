"""A fresh machine: a command runs in a disposable copy of a minimal Debian, in namespaces of its own, and is watched.

The machine has a clean clone of the checkout and this machine's package registry settings (registries.py), and
knows nothing else of this one. It shares the kernel. Called by the tests of this folder, which break the machine
with a short script that runs in it first.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from embedded_cluster.base import home, paths

from fresh import checkout, registries, roots, watching
from fresh.meter import Meter

MARKER = "TRAINLAB_FRESH"
"""Set in every fresh machine: `make test` in one makes no others."""
VIEW, CLONE = "fresh-view-", "fresh-clone-"
BOOT = Path(__file__).with_name("boot.sh")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOME = "/var/lib/trainlab"
"""A disk of its own there: the kernel cannot stack a cluster node's overlay on the machine's."""
OWN = {
    "TRAINLAB_CLUSTER": "fresh",
    "TRAINLAB_NODE_SUBNET": "10.246.2.0/24",
    "TRAINLAB_POD_SUBNET": "10.248.0.0/16",
    "TRAINLAB_SERVICE_SUBNET": "10.241.0.0/16",
}
"""Set, for a plain user the name alone: cgroups and network are this machine's, and a cluster with the default name is the user's."""
PARTS = Path(__file__).with_name("parts")
"""Stand-ins that a setup copies into a machine."""


def part(name: str, target: str) -> str:
    """Return the lines of a setup that write a stand-in from parts/ to `target`, as a program."""
    text = (PARTS / name).read_text(encoding="utf-8")
    return f"mkdir -p $(dirname {target})\ncat > {target} <<'PART'\n{text}PART\nchmod 755 {target}\n"


AMPLE = f"""\
sed 's/^MemAvailable:.*/MemAvailable: 33554432 kB/' /proc/meminfo > /run/meminfo
mount --bind /run/meminfo /proc/meminfo
{part("ample.py", '"$(echo /etc/python3.*)/sitecustomize.py"')}"""
"""A setup that gives the machine nominal memory and disk: what else this one stores and runs must not count."""


@dataclass(frozen=True)
class Machine:
    """What is special about a machine; the default is Debian 12 with the README's packages, used by root."""

    suite: str = "bookworm"
    user: str = "root"
    more: tuple[str, ...] = ()
    """Debian packages that were installed before."""
    setup: str = ""
    """Bash script, run in the machine as root before each command: it has to be idempotent."""
    network: bool = True
    tmp: str = "4g"
    """Size of /tmp."""
    env: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    """Variables that a login would set: HOME."""
    caches: tuple[str, ...] = ()
    """Patterns below $TRAINLAB_HOME/cache: what matches here is in the machine's cache, so not downloaded again."""

    @property
    def home(self) -> str:
        """The user's home folder."""
        return "/root" if self.user == "root" else f"/home/{self.user}"

    @property
    def repo(self) -> str:
        """Where the checkout is in it."""
        return f"{self.home}/trainlab"

    @property
    def trainlab_home(self) -> str:
        """The folder that the Makefile chooses there, or that is set."""
        return self.env.get("TRAINLAB_HOME") or (HOME if self.user == "root" else f"{self.home}/.cache/trainlab")

    @property
    def uid(self) -> int:
        """The user's uid."""
        return 0 if self.user == "root" else 1000


def why_not() -> str:
    """Return why no fresh machine can be made here, in one sentence; empty when one can."""
    if os.environ.get(MARKER):
        return "this is a fresh machine already, and none is made in one"
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a fresh machine needs Linux and root"
    if missing := [tool for tool in ("mmdebstrap", "unshare", "ip", "git") if shutil.which(tool) is None]:
        return f"a fresh machine needs {', '.join(missing)}"
    return _overlay()


@functools.cache
def _overlay() -> str:
    paths.CACHE.mkdir(parents=True, exist_ok=True)
    script = 'cd "$0" && mkdir l u w m && mount -t overlay -o lowerdir=l,upperdir=u,workdir=w none m'
    with tempfile.TemporaryDirectory(prefix="fresh-try-", dir=paths.CACHE) as folder:
        command = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "bash", "-euc", script, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    return f"a fresh machine cannot be mounted below {paths.CACHE}: {last}" if done.returncode else ""


@contextmanager
def booted(machine: Machine) -> Iterator[Fresh]:
    """Yield a machine to run commands in; it and all their changes are gone afterwards."""
    root = roots.debian(machine.suite, machine.more)
    _sweep()
    with tempfile.TemporaryDirectory(prefix=f"{VIEW}{os.getpid()}-", dir=paths.CACHE) as folder:
        disk = Path(folder)
        for name in ("upper", "work", "root", "home", "settings"):
            (disk / name).mkdir()
        disk.chmod(0o755)
        for path, content in registries.files(machine.suite).items():
            file = disk / "settings" / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        (disk / home.MARK).write_text(home.TAG, encoding="ascii")
        yield Fresh(machine, disk, f"{disk / 'settings'}:{_clone(machine)}:{root}")


@functools.cache
def _clones() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"{CLONE}{os.getpid()}-", dir=paths.CACHE)  # gone with this process


@functools.cache
def _sweep() -> None:
    """Remove what killed processes left behind: gigabytes each."""
    for prefix in (VIEW, CLONE):
        for folder in paths.CACHE.glob(f"{prefix}*"):
            if not Path("/proc", folder.name.removeprefix(prefix).partition("-")[0]).exists():
                shutil.rmtree(folder, ignore_errors=True)  # another process may clean up as well


def _clone(machine: Machine) -> Path:
    """The layer with the clone for this user, made once in this process."""
    layer = Path(_clones().name) / machine.user
    if not layer.exists():
        target = layer / machine.repo.lstrip("/")
        target.parent.mkdir(parents=True)
        checkout.clone(target, machine.uid)
        os.chown(target.parent, machine.uid, machine.uid)
    return layer


@dataclass(frozen=True)
class Fresh:
    """A machine that was made: its disk here, and the layers below it."""

    machine: Machine
    disk: Path
    lower: str

    def run(
        self, command: str, *, seconds: float, until: str = "", log: Path | None = None, meter: Meter | None = None
    ) -> watching.Ended:
        """Run a bash command in the checkout, to its end or, by SIGTERM, to the first line that `until` matches.

        A command that takes longer than `seconds` is killed, and AssertionError shows its output. The output is
        also written to the file `log` while it runs.
        """
        machine = self.machine
        clusters = {"TRAINLAB_CLUSTER": OWN["TRAINLAB_CLUSTER"]} if machine.uid else OWN
        own = {
            **clusters,
            "PATH": PATH,
            "HOME": machine.home,
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            MARKER: "1",
            **machine.env,
        }
        given = {key: value for key, value in own.items() if key not in machine.without} | registries.environment()
        names = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--fork",
            "--kill-child",
            "--pid",
            "--mount",
            "--uts",
            "--ipc",
        ]
        names += [] if machine.network else ["--net"]
        uid = machine.uid
        inside = ["chroot", f"--userspec={uid}:{uid}", f"--groups={uid}", "/", "env", "-i", f"--chdir={machine.repo}"]
        inside += [*(f"{key}={value}" for key, value in given.items()), "bash", "-c", command]
        read, write = os.pipe()
        settings = {
            "LOWER": self.lower,
            "DISK": str(self.disk),
            "TMP": machine.tmp,
            "NETWORK": "yes" if machine.network else "no",
            "MOUNTS": "\n".join(self._mounts()),
            "SETUP": machine.setup,
            "OWNER": str(machine.uid),
            "LEFT": str(write),
        }
        env = {"PATH": f"{os.environ['PATH']}:{PATH}", **settings}
        argv = [*names, "--propagation", "private", "bash", str(BOOT), *inside]
        return watching.watch(argv, env=env, left=(read, write), seconds=seconds, until=until, log=log, meter=meter)

    def path(self, inside: str) -> Path:
        """Where a file that a command made in the machine is here."""
        if self.machine.trainlab_home == HOME and inside.startswith(HOME):
            return self.disk / "home" / inside.removeprefix(HOME).lstrip("/")
        return self.disk / "upper" / inside.lstrip("/")

    def _mounts(self) -> Iterator[str]:
        if self.machine.trainlab_home == HOME:
            yield f"disk {self.disk / 'home'} {HOME}"
        for path in registries.folders():
            yield f"seen {path} {path}"
        if self.machine.caches:  # a cache that is neither empty nor marked belongs to someone else
            yield f"file {self.disk / home.MARK} {self.machine.trainlab_home}/cache/{home.MARK}"
        for pattern in self.machine.caches:
            for found in sorted(paths.CACHE.glob(pattern)):
                if found.is_dir() and not re.search(r"\.part$", found.name):
                    yield f"copy {found} {self.machine.trainlab_home}/cache/{found.name}"
