"""torch without the libraries of CUDA, where there is no GPU: 2.2 GB less to download, 3.4 GB less on the disk, per copy.

PyPI has torch for CUDA only. Its libraries name those of CUDA, so they must be there when it is imported, but without a
GPU none of their functions is ever called. `lock` drops the packages that hold them from a lock file, `stubs` puts
libraries of the same names into torch's folder that define each function that torch's own name: all return 3, "not
initialized" in CUDA's terms. `check` imports torch, trains, reduces over gloo and profiles; whoever calls it installs
the full lock where it fails, as with a torch that needs more.

Run by the Containerfile and by cluster/embedded_cluster/pyenv.py, with Python's standard library only.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FAILED = "torch does not run without CUDA's libraries"
OURS = re.compile(r"lib(cu(?!da\.)|nccl|nv(?!idia-))[A-Za-z_]*\.so\.\d+")
"""Libraries of CUDA that a package on PyPI holds; libcuda.so.1 is the driver's, and torch loads it late."""
NAMES = re.compile(r"p?nccl[A-Z]|cu[A-Z]|cu(blas|dnn|fft|file|rand|solver|sparse)|nv(rtc|shmem|Jit)")
"""The functions of those among them that have no symbol versions."""
LEFT_OUT = re.compile(r"(cuda-(bindings|pathfinder|toolkit)|triton|nvidia-(?!cuda-(runtime|cupti)==)[a-z0-9-]+)==")
"""Packages that torch does without on a CPU; libcudart and libcupti, 5 MB, it calls at its start."""


def without_cuda(lock: str) -> str:
    """The text of a lock file without the packages of CUDA; it no longer holds all dependencies, so install by --no-deps."""
    entries = re.split(r"^(?=[a-zA-Z0-9])", lock, flags=re.MULTILINE)
    return "".join(entry for entry in entries if not LEFT_OUT.match(entry))


class _Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int


class _Library:
    """What the dynamic linker reads of a 64-bit little-endian ELF file (System V ABI, chapters 4 and 5)."""

    def __init__(self, file: Path) -> None:
        with file.open("rb") as data:
            header = data.read(64)
            at, size, count = struct.unpack_from("<Q10xHH", header, 40)
            data.seek(at)
            table = data.read(size * count)
            sections = [_Section(*struct.unpack_from("<4xI16xQQI", table, size * number)) for number in range(count)]

            def content(section: _Section | None) -> bytes:
                if section is None:
                    return b""
                data.seek(section.offset)
                return data.read(section.size)

            def only(kind: int) -> _Section | None:
                return next((section for section in sections if section.kind == kind), None)

            symbols, versions, needs = only(11), only(0x6FFFFFFF), only(0x6FFFFFFE)  # dynsym, versym, verneed
            dynamic = only(6)
            assert symbols is not None and dynamic is not None, file
            self._names = content(sections[symbols.link])
            self._symbols, self._versions = content(symbols), content(versions)
            self._needs, self._need_names = content(needs), content(sections[needs.link]) if needs else b""
            self._dynamic = content(dynamic)

    @staticmethod
    def _text(names: bytes, at: int) -> str:
        return names[at : names.index(b"\0", at)].decode()

    def needed(self) -> list[str]:
        """The libraries that it names."""
        entries = struct.iter_unpack("<QQ", self._dynamic)
        return [self._text(self._names, value) for tag, value in entries if tag == 1]

    def symbols(self) -> Iterator[tuple[str, bool, tuple[str, str]]]:
        """Yield (name, whether it is defined here, (library, version) that it is asked for of; empty ones for any)."""
        asked = self._asked()
        versions = [one for (one,) in struct.iter_unpack("<H", self._versions)]
        for number, (name, _, _, section, _, _) in enumerate(struct.iter_unpack("<IBBHQQ", self._symbols)):
            version = asked.get(versions[number] & 0x7FFF, ("", "")) if versions else ("", "")
            yield self._text(self._names, name), section != 0, version

    def _asked(self) -> dict[int, tuple[str, str]]:
        numbers, at = {}, 0
        while self._needs:
            _, count, file, auxiliary, following = struct.unpack_from("<HHIII", self._needs, at)
            inner = at + auxiliary
            for _ in range(count):
                _, _, number, name, step = struct.unpack_from("<IHHII", self._needs, inner)
                numbers[number] = (self._text(self._need_names, file), self._text(self._need_names, name))
                inner += step
            if not following:
                break
            at += following
        return numbers


def write_stubs(torch: Path) -> list[str]:
    """Write the libraries that torch/lib names and the environment lacks into torch/lib; returns their names.

    `torch` is the folder of the installed package.
    """
    folder = torch / "lib"
    libraries = [_Library(file) for file in sorted(folder.glob("*.so*"))]
    there = {file.name for file in [*folder.glob("*.so*"), *(torch.parent / "nvidia").glob("*/lib/*.so*")]}
    missing = sorted({name for library in libraries for name in library.needed() if OURS.fullmatch(name)} - there)
    symbols = [symbol for library in libraries for symbol in library.symbols()]
    defined = {name for name, here, _ in symbols if here}
    functions: dict[str, dict[str, str]] = {name: {} for name in missing}
    for name, _, (library, version) in symbols:
        if name in defined:
            continue
        if library in functions:
            functions[library][name] = version
        elif missing and not library and NAMES.match(name):
            functions[missing[0]][name] = ""  # without a version any loaded library may define it
    for name in missing:
        (folder / name).write_bytes(stub(name, functions[name]))
    return missing


def stub(name: str, functions: dict[str, str]) -> bytes:
    """A shared library for x86-64 Linux of this name with these functions, each returning 3; their values are their versions."""
    code = b"\xb8\x03\x00\x00\x00\xc3"  # mov eax, 3; ret
    versions = [name, *sorted({version for version in functions.values() if version})]  # the first is the file's own
    names, places = b"\0", {}
    for text in dict.fromkeys([*versions, *functions]):
        places[text] = len(names)
        names += text.encode() + b"\0"
    code_at, count = 64 + 4 * 56, len(functions) + 1
    symbols = bytes(24)
    chains = struct.pack("<III", 1, count, min(1, count - 1)) + bytes(4)  # one bucket with a chain of all
    indices = bytes(2)
    for number, (function, version) in enumerate(functions.items(), 1):
        symbols += struct.pack("<IBBHQQ", places[function], 0x12, 0, 1, code_at, len(code))
        chains += struct.pack("<I", (number + 1) % count)
        indices += struct.pack("<H", versions.index(version, 1) + 1 if version else 1)
    definitions = b""
    for number, version in enumerate(versions, 1):
        more = 0 if number == len(versions) else 28
        definitions += struct.pack("<HHHHIII", 1, number == 1, number, 1, _hash(version), 20, more)
        definitions += struct.pack("<II", places[version], 0)
    image = bytearray(bytes(code_at) + code)

    def put(part: bytes, align: int = 8) -> int:
        image.extend(bytes(-len(image) % align))
        image.extend(part)
        return len(image) - len(part)

    tags = {5: put(names), 10: len(names), 6: put(symbols), 11: 24, 4: put(chains), 14: places[name]}
    tags |= {0x6FFFFFF0: put(indices), 0x6FFFFFFC: put(definitions), 0x6FFFFFFD: len(versions), 0: 0}
    read_only = len(image)
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags.items())
    dynamic_at = put(dynamic, 4096)  # in a page of its own: the dynamic linker writes there
    segments = (
        *((1, 5, 0, read_only, 4096), (1, 6, dynamic_at, len(dynamic), 4096)),
        *((2, 6, dynamic_at, len(dynamic), 8), (0x6474E551, 6, 0, 0, 16)),
    )
    image[:64] = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    for number, (kind, flags, offset, size, align) in enumerate(segments):
        header = struct.pack("<IIQQQQQQ", kind, flags, offset, offset, offset, size, size, align)
        image[64 + 56 * number : 120 + 56 * number] = header
    return bytes(image)


def _hash(name: str) -> int:
    """The hash of a name in an ELF file (System V ABI)."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
    return value


def check() -> None:
    """Import torch, train a step, reduce over gloo and profile, as a run does; raises what fails."""
    import tempfile

    import torch
    import torch.distributed as dist
    from torch.profiler import profile

    layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True)
    optimizer = torch.optim.AdamW(layer.parameters())
    with profile(), tempfile.TemporaryDirectory() as folder:
        loss = layer(torch.randn(2, 4, 16)).pow(2).mean()
        loss.backward()
        optimizer.step()
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        dist.all_reduce(loss.detach())
        dist.destroy_process_group()
    assert torch.linalg.svd(torch.randn(8, 8)).S.isfinite().all() and not torch.cuda.is_available()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["lock", file]:
            sys.stdout.write(without_cuda(Path(file).read_text(encoding="utf-8")))
        case ["stubs", folder]:
            sys.stdout.write("".join(f"{name}\n" for name in write_stubs(Path(folder))))
        case ["check"]:
            try:
                check()
            except Exception as error:  # whatever it is: this torch needs more than a CPU has
                sys.exit(f"{FAILED}: {type(error).__name__}: {error}")
        case _:
            sys.exit("usage: cpu_only.py lock FILE | stubs TORCH | check")
