"""The two disks of a virtual machine, made without mounts and loop devices: a stock Debian, and what was built outside.

The second is shared by all machines, each of which writes to a layer of its own (qemu.py). Everything big in it is a hard
link into the cache until mke2fs reads it; the blobs of layers that are already unpacked there are holes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from embedded_cluster.base import home, paths
from embedded_cluster.builds import build, modules, rootfs
from embedded_cluster.containers import image_store
from embedded_cluster.nodes import operators
from fresh import checkout

from vm import guest

PROGRAMS = tuple(name for name, one in modules.COMPONENTS.items() if one.default)
# what a machine has, then what `make demo` installs before anything else
PACKAGES = (
    *("ca-certificates", "dbus", "initramfs-tools", "kmod", "linux-image-cloud-amd64", "procps", "python3"),
    *("systemd-sysv", "udev", "iproute2", "mmdebstrap", "openssl", "python3-venv"),
)
CHECKOUT = Path("opt/trainlab")
ROOT_SIZE, PARTS_SIZE = "4G", "40G"  # sparse: neither takes more than what is in it
UNIT = """\
[Unit]
Description=The first mile
After=basic.target

[Service]
Type=exec
Environment=TRAINLAB_PATIENCE={patience} PYTHONUNBUFFERED=1 PYTHONPATH=/{checkout}/tests
ExecStart=/usr/bin/python3 -m vm.guest
StandardOutput=file:/dev/ttyS1
StandardError=inherit
ExecStopPost=/bin/systemctl poweroff --no-block

[Install]
WantedBy=multi-user.target
"""


def trainer() -> str:
    """The reference of the trainer image in the node store; empty when there is none."""
    result = [ref for ref in image_store.refs() if ref.startswith("localhost/trainlab-trainer:")]
    return result[0] if result else ""


def missing() -> str:
    """Which parts are not built yet, in a sentence; empty when all exist."""
    programs = [name for name in PROGRAMS if not build.binary(name).exists()]
    if programs:
        return f"programs are not built: {', '.join(programs)}; `make test-vm` builds them"
    if not rootfs.folder("rootfs", rootfs.PACKAGES).exists() or not trainer():
        return "no trainer image in the node store; `make test-vm` builds it"
    return ""


def make_parts(stage: Path, disk: Path) -> None:
    """Write the disk that becomes the machine's TRAINLAB_HOME: programs, root folder, images, manifests."""
    cache = stage / "cache"
    (cache / "bin").mkdir(parents=True)
    for folder in (stage, cache):
        (folder / home.MARK).write_text(home.TAG, encoding="ascii")
    for name in PROGRAMS:
        os.link(build.binary(name), cache / "bin" / build.binary(name).name)
    for link, name in (("kubectl", "kubernetes"), ("helm", "helm")):
        (cache / "bin" / link).symlink_to(build.binary(name).name)
    operators.prepare(guest.OPERATORS)
    _hard_links(paths.CACHE / "manifests", cache / "manifests")
    _hard_links(rootfs.base(), cache / rootfs.base().name)
    store = cache / image_store.folder().name
    with image_store.lock(shared=True):
        _hard_links(image_store.folder(), store)
        for file in [*store.rglob("*.db"), store / "refs.json"]:  # written in place
            _own(file)
    for blob in (store / "root" / image_store.BLOBS).iterdir():
        if blob.stat().st_size >= image_store.LARGE:
            _hole(blob)
    _ext4(stage, disk, PARTS_SIZE)
    shutil.rmtree(stage)


def make_root(release: str, stage: Path, disk: Path, patience: float, stage_seconds: float) -> tuple[Path, Path]:
    """Write the disk with a stock Debian, this checkout and the unit; returns its kernel and initrd, outside of it."""
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}", release, str(stage)]
    command += rootfs.mirrors(release)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"mmdebstrap {release} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    checkout.clone(stage / CHECKOUT, 0)
    (stage / guest.ASKED.relative_to("/")).write_text(json.dumps({"image": trainer(), "stage_seconds": stage_seconds}))
    (stage / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 1\n/dev/vdb /var/lib/trainlab ext4 defaults 0 2\n")
    (stage / "var/lib/trainlab").mkdir()
    (stage / "etc/hostname").write_text("first-mile\n")
    (stage / "etc/hosts").write_text("127.0.0.1 localhost first-mile\n")
    (stage / "etc/resolv.conf").unlink(missing_ok=True)  # mmdebstrap's: the host's
    units = stage / "etc/systemd/system"
    (units / "first-mile.service").write_text(UNIT.format(patience=patience, checkout=CHECKOUT))
    (units / "multi-user.target.wants").mkdir(exist_ok=True)
    (units / "multi-user.target.wants" / "first-mile.service").symlink_to("../first-mile.service")
    boot = []
    for pattern in ("vmlinuz-*", "initrd.img-*"):
        file = next((stage / "boot").glob(pattern))
        boot.append(disk.with_name(f"{release}-{pattern[:6]}"))
        shutil.copyfile(file, boot[-1])
    _ext4(stage, disk, ROOT_SIZE)
    shutil.rmtree(stage)
    return boot[0], boot[1]


def _hard_links(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-al", str(source), str(target)], check=True)


def _own(file: Path) -> None:
    part = file.with_name(file.name + ".part")
    shutil.copy2(file, part)
    part.replace(file)


def _hole(file: Path) -> None:
    part = file.with_name(file.name + ".part")
    with part.open("wb") as out:
        out.truncate(file.stat().st_size)
    part.replace(file)


def _ext4(stage: Path, disk: Path, size: str) -> None:
    with disk.open("wb"):
        pass
    command = ["mke2fs", "-q", "-t", "ext4", "-m", "0", "-i", "32768", "-E", "root_owner=0:0"]
    done = subprocess.run([*command, "-d", str(stage), str(disk), size], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"mke2fs of {stage} ended with {done.returncode}:\n{done.stderr[-2000:]}")
