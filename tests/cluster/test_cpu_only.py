"""torch without CUDA's libraries: the lock that is left, and libraries that the dynamic linker takes for theirs."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from embedded_cluster.builds import pyenv

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the libraries are for x86-64")


@pytest.fixture(scope="module")
def cpu_only() -> ModuleType:
    return pyenv.cpu_only()


def test_the_lock_loses_cuda_and_nothing_else(cpu_only: ModuleType) -> None:
    text = pyenv.TRAINER_LOCKS[0].read_text(encoding="utf-8")
    names = re.compile(r"^([a-z0-9-]+)==", re.MULTILINE)
    all_names, left = set(names.findall(text)), set(names.findall(cpu_only.without_cuda(text)))
    gone = all_names - left
    assert {"triton", "nvidia-cudnn-cu13", "nvidia-nccl-cu13", "cuda-bindings"} <= gone
    assert all(re.match(r"nvidia-|cuda-|triton$", name) for name in gone)
    assert {"torch", "nvidia-cuda-runtime", "nvidia-cuda-cupti", "setuptools"} <= left
    assert cpu_only.without_cuda(text).count("--hash") == sum(
        entry.count("--hash")
        for entry in re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)
        if entry.split("==")[0] in left
    )


def test_the_linker_takes_them(cpu_only: ModuleType, tmp_path: Path) -> None:
    """Each function by its version, in a process of its own: a bad file would end this one."""
    file = tmp_path / "libcublas.so.13"
    file.write_bytes(
        cpu_only.stub(file.name, {"cublasCreate_v2": file.name, "cublasDestroy_v2": "OTHER", "ncclInit": ""})
    )
    code = f"""
import ctypes
library = ctypes.CDLL({str(file)!r})
print([library[name]() for name in ("cublasCreate_v2", "cublasDestroy_v2", "ncclInit")])
dlvsym = ctypes.CDLL(None).dlvsym
dlvsym.restype, dlvsym.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
print([bool(dlvsym(library._handle, name, version)) for name, version in (
    (b"cublasCreate_v2", b"libcublas.so.13"), (b"cublasDestroy_v2", b"OTHER"), (b"cublasDestroy_v2", b"libcublas.so.13"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[3, 3, 3]", "[True, True, False]"], done.stderr


def test_a_library_says_what_it_needs(cpu_only: ModuleType) -> None:
    """Against what the dynamic linker itself knows of a library that every Python has."""
    library = cpu_only._Library(Path(_mapped("libm.so.6")))
    assert "libc.so.6" in library.needed()
    symbols = list(library.symbols())
    assert ("cos", True) in {(name, here) for name, here, _ in symbols}
    assert {asked[0] for _, here, asked in symbols if asked[1].startswith("GLIBC_") and not here} >= {"libc.so.6"}


def _mapped(name: str) -> str:
    ctypes.CDLL(name)
    lines = Path("/proc/self/maps").read_text(encoding="ascii").splitlines()
    return next(line.split()[-1] for line in lines if line.endswith(f"/{name}"))


@pytest.mark.rest
def test_this_environment_passes_the_check() -> None:
    """The one that these tests run in: without CUDA's libraries where there is no GPU."""
    assert pyenv._fails(Path(sys.prefix)) == ""
    installed = importlib.util.find_spec("triton") is not None
    assert installed == pyenv.cuda(pyenv.DRIVER.exists())


@pytest.mark.parametrize("broken", ["libcublas.so.13", "libnvshmem_host.so.3"])
def test_a_torch_that_needs_more_is_noticed(broken: str, cpu_only: ModuleType, tmp_path: Path) -> None:
    """A library that lacks a function, as with a torch that asks for a new one: told in one line, by the check."""
    folder = Path(importlib.util.find_spec("torch").submodule_search_locations[0])  # type: ignore[union-attr, index]
    if not (folder / "lib" / broken).exists():
        pytest.skip("this environment has CUDA's own libraries")
    copy = tmp_path / "torch"
    subprocess.run(["cp", "-as", f"{folder}/.", str(copy)], check=True)  # links: 1 GB
    (copy / "lib" / broken).unlink()
    (copy / "lib" / broken).write_bytes(cpu_only.stub(broken, {}))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}  # before the installed one
    command = [sys.executable, str(pyenv.CPU_ONLY), "check"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"{pyenv.FAILED}: "), done.stderr
