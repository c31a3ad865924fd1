"""Builds the Go programs of the cluster from their modules; called by the commands `build`, `up` and `images`.

A binary's name contains the hash of all its inputs, so one that exists is up to date and never rebuilt.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from embedded_cluster.base import children, others, paths, programs, system
from embedded_cluster.base.say import UserError, info, step
from embedded_cluster.builds import modules, prebuilt, toolchain

GOCACHE, GOMODCACHE = paths.CACHE / "go-build", paths.CACHE / "go-mod"  # not the user's own: these are removed again
GOTMPDIR = paths.CACHE / "go-tmp"
MEMORY_FOR_TWO = 12 * 2**30
"""Available bytes from which two builds run in parallel; linking Kubernetes alone takes about 3 GiB."""
ROOM_TO_SPARE = 50 * 2**30
"""Free bytes of the disk from which Go's build cache is kept."""
TRASH = "trash-"
LINES_OF_ERROR = 15
SETTINGS = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false -modcacherw"}
"""Static binaries, read-only go.mod, removable caches; part of each binary's hash, like the flags."""
COMPILED = 3750 * 2**20
"""Bytes in Go's build cache once the demo's programs are built (measured 2026-11-30)."""
GOGC = "400"  # the compilers collect garbage less often: with -dwarf=false 30 % fewer CPU seconds, some more memory
FIRST = "kubernetes"
"""Built alone where it is missing: what the others share with it they find compiled, instead of compiling it beside it."""


def binary(name: str) -> Path:
    """Return where the binary of this component is, or will be once built."""
    return paths.BIN / f"{name}-{_digest(name)}"


@functools.cache
def _digest(name: str) -> str:
    """Hash what the binary of this component is made of."""
    folder = modules.folder(name)
    without = modules.COMPONENTS[name].without if name in modules.COMPONENTS else ()
    digest = hashlib.sha256(" ".join([toolchain.go_version(), *_flags(name), *SETTINGS.values(), *without]).encode())
    for source in ("go.mod", "go.sum", "main.go"):
        file = folder / source
        if file.exists():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def build_all(names: Iterable[str]) -> bool:
    """Build those of these components that are missing.

    Returns whether anything was built. Raises UserError with go's last lines for each build that failed.
    """
    wanted = list(names)
    missing = sorted((name for name in wanted if not binary(name).exists()), key=lambda name: (name != FIRST, name))
    if not missing:
        return False
    paths.BIN.mkdir(parents=True, exist_ok=True)
    _clear_leftovers()
    prebuilt.take(map(binary, missing))
    if missing := [name for name in missing if not binary(name).exists()]:
        jobs = 2 if system.memory_available() >= MEMORY_FOR_TWO else 1
        with step(f"build {len(missing)} of {len(wanted)} programs, {jobs} at a time"):
            first = [name for name in missing if name == FIRST]
            rounds = (first, missing[len(first) :])
            if failures := [text for names in rounds for text in children.side_by_side(_build, names, jobs) if text]:
                raise UserError("\n".join(failures))
    if not (others.at_work() or paths.CLUSTER.exists()):
        drop_older()
    return True


def compiled() -> float:
    """Return the share of the demo's programs that Go has compiled, by the bytes in its build cache; 0 before it began."""
    outputs = GOCACHE.glob("[0-9a-f][0-9a-f]/*-d")
    size = 0
    for file in outputs:
        with contextlib.suppress(FileNotFoundError):
            size += file.stat().st_size
    return size / COMPILED


def drop_caches() -> None:
    """Remove Go's build cache, 4 GB, in a background process (25 s), unless the disk has room to spare: then another operator,
    or a new version of one, finds compiled what it shares. The modules stay: manifests are read from them.
    """
    if shutil.disk_usage(paths.CACHE).free > ROOM_TO_SPARE:
        return
    with contextlib.suppress(FileNotFoundError):
        GOCACHE.rename(paths.CACHE / f"{TRASH}{GOCACHE.name}-{os.getpid()}")
    trash = [str(left) for left in paths.CACHE.glob(f"{TRASH}*")]
    if trash:
        command, null = ["nice", "rm", "-rf", "--one-file-system", *trash], subprocess.DEVNULL
        # No output of ours: whoever started us reads that until no process has it open.
        subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)


def _build(name: str) -> str:
    """Build one binary; return the text of the error, empty on success."""
    component, target = modules.COMPONENTS[name], binary(name)
    try:
        folder = _trimmed(component) if component.without else modules.folder(name)
    except UserError as error:
        return str(error)
    part = target.with_name(f".{target.name}.part")
    started = time.monotonic()
    command = [*programs.with_us(), toolchain.go(), "build", *_flags(name), "-o", str(part), component.package]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n  ".join((done.stderr or done.stdout).strip().splitlines()[-LINES_OF_ERROR:])
        if not children.ended():
            info(f"{name}: FAILED after {time.monotonic() - started:.0f} s")
        return f"building {name} ({component.package}) in {folder} failed:\n  {tail}"
    part.replace(target)
    size = target.stat().st_size / 2**20
    info(f"{name} {modules.version(name) or 'own'}: {time.monotonic() - started:.0f} s, {size:.0f} MiB")
    return ""


def _trimmed(component: modules.Component) -> Path:
    """Return a folder that pins this component as its own does, with a copy of upstream's module that lacks `without`.

    A copy, because Go takes no `-overlay` of a file in the module cache; beside it, because the program's build
    information has the path from one to the other, and a program has to be the same wherever it is built.
    """
    path, version = modules.module(component.name)
    work = GOMODCACHE / "trimmed" / component.name
    shutil.rmtree(work, ignore_errors=True)
    source, folder = download(component.name), work / "main"
    for package in {Path(file).parts[0] for file in component.without} | {
        Path(component.package.removeprefix(path + "/")).parts[0]
    }:
        shutil.copytree(source / package, work / "upstream" / package, copy_function=shutil.copyfile)
    for file in ("go.mod", "go.sum"):
        shutil.copyfile(source / file, work / "upstream" / file)
    for left_out in component.without:
        if not (work / "upstream" / left_out).exists():
            raise UserError(f"{path}@{version} has no {left_out}: correct `without` in {modules.__file__}")
        (work / "upstream" / left_out).unlink()
    shutil.copytree(modules.folder(component.name), folder)
    programs.run(
        toolchain.go(), "-C", str(folder), "mod", "edit", f"-replace={path}@{version}=../upstream", env=environment()
    )
    return folder


def download(name: str) -> Path:
    """Return the folder of this component's module in Go's cache, downloaded when missing; UserError with go's words."""
    path, version = modules.module(name)
    done = subprocess.run(
        [toolchain.go(), "mod", "download", "-json", f"{path}@{version}"],
        cwd=modules.folder(name),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise UserError(f"{path}@{version}: cannot read the Go module: {done.stderr.strip() or done.stdout.strip()}")
    return Path(json.loads(done.stdout)["Dir"])


def environment() -> dict[str, str]:
    """Return the environment of all go commands: static binaries, read-only go.mod, removable caches."""
    env = dict(os.environ)
    for variable in ("GOARCH", "GOOS", "GOARM64", "GOEXPERIMENT", "GOFIPS140", "GOROOT"):
        env.pop(variable, None)  # the user's would change what is built, and not its name
    env["GOAMD64"] = "v1"
    env.update(SETTINGS, GOWORK="off", GOTOOLCHAIN="local", GOGC=GOGC, GOCACHE=str(GOCACHE), GOMODCACHE=str(GOMODCACHE))
    GOTMPDIR.mkdir(parents=True, exist_ok=True)
    env["GOTMPDIR"] = str(GOTMPDIR)  # not /tmp, which a killed build would fill
    return env


def _flags(name: str) -> list[str]:
    """Return the flags of `go build`: no debug information, which -s -w would strip after it was compiled."""
    tags = modules.COMPONENTS[name].tags if name in modules.COMPONENTS else ()
    return [
        "-trimpath",
        "-gcflags=all=-dwarf=false",
        "-ldflags",
        _ldflags(name),
        *(["-tags", ",".join(tags)] if tags else []),
    ]


def _ldflags(name: str) -> str:
    flags = ["-s", "-w"]
    if name == "kubernetes":
        version = modules.version(name)
        major, minor = version.removeprefix("v").split(".")[:2]
        # kubeadm refuses to run when it does not know its own version.
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += [f"-X {package}.gitVersion={version}", f"-X {package}.gitMajor={major}"]
            flags += [f"-X {package}.gitMinor={minor}", f"-X {package}.gitTreeState=clean"]
    if name == "helm":  # without them it takes the cluster for Kubernetes 1.20 whenever it asks none (its own Makefile)
        major, minor, __ = modules.required(name, "k8s.io/client-go").removeprefix("v").split(".")
        for package in ("chartutil", "lint/rules"):
            flags += [f"-X helm.sh/helm/v3/pkg/{package}.k8sVersionMajor={int(major) + 1}"]
            flags += [f"-X helm.sh/helm/v3/pkg/{package}.k8sVersionMinor={minor}"]
    return " ".join(flags)


def _clear_leftovers() -> None:
    """Remove what a killed build left behind; the caller holds the cluster's lock, so nothing is writing it."""
    for part in paths.BIN.glob(".*.part"):
        part.unlink()
    shutil.rmtree(GOTMPDIR, ignore_errors=True)


def drop_older() -> None:
    """Remove the binaries of other versions; a running cluster uses its own, so callers check for one.

    Not in the older leg: today's would have to be built again for it.
    """
    if modules.older():
        return
    for name in modules.COMPONENTS:
        for file in paths.BIN.glob(f"{name}-{'[0-9a-f]' * 12}"):
            if file != binary(name):
                file.unlink()
