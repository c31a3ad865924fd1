"""Skips the tests in virtual machines, with the reason, when this machine cannot run one or the parts are not built."""

import os
import platform
import shutil

import pytest
from embedded_cluster.base import system

from vm import disks, qemu

TOOLS = {qemu.PROGRAM: "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs"}
DISK_GIB = 16  # both disks, the folders of the hard links, and what the machine writes


def reason() -> str:
    """Why no virtual machine can be made here; empty when one can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64" or os.geteuid() != 0:
        return "a virtual machine is made on Linux, x86_64, as root (mmdebstrap, hard links of the cache)"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    if absent := sorted(package for tool, package in TOOLS.items() if shutil.which(tool, path=path) is None):
        return f"missing tools: apt-get install {' '.join(absent)}"
    if absent := disks.missing():
        return absent
    memory, needed = system.memory_available() / 2**30, (qemu.MEMORY_MIB + 1024) / 1024
    if memory < needed:
        return f"memory available: {memory:.1f} GiB, a virtual machine needs {needed:.0f} GiB: end other programs"
    free = shutil.disk_usage(disks.paths.CACHE).free / 2**30
    if free < DISK_GIB:
        return f"disk at {disks.paths.CACHE}: {free:.1f} GiB free, {DISK_GIB} GiB needed: free some"
    return ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the tests of this folder as skipped, never as passed, when there can be no machine."""
    ours = [item for item in items if item.get_closest_marker("vm")]
    if not ours or "not vm" in config.getoption("markexpr", ""):
        return
    if why := reason():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=why))
