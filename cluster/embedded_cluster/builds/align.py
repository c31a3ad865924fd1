"""Aligns the versions that the cluster's Go modules share; called by the command `align` after a version change.

Go compiles a package once for all programs that use the same version of it and of all its dependencies. Without this
the ten programs compile six versions of Kubernetes' client libraries: 360 MB of source instead of 220 MB. Versions only
rise, to the highest that a member of the family requires.

What `make demo` compiles is one family, on Kubernetes 1.34: KServe 0.19, and 0.20 by its own replaces, has no newer libraries
(KEDA 2.18). Trainer 2.3 and Kueue 0.19 need those of 1.36, Trainer 2.3 not those of 1.37 (no corev1.PodStatusResult).
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from embedded_cluster.base.say import UserError, step
from embedded_cluster.builds import build, modules, toolchain

FAMILIES = (
    (
        *("kubernetes", "etcd", "coredns", "helm", "local-path-provisioner"),
        *("training-operator", "kserve", "older/kueue", "older/trainer", "older/jobset"),
    ),
    ("kueue", "trainer", "jobset"),
    ("helm4", "kwok"),
)
"""Programs that compile with each other's versions: of the cluster, of queues and TrainJobs, and those that only tests use.

older/kserve is alone: 0.15.2 compiles with Kubernetes' libraries of 1.32 only (its copy of PodSpec), and rising versions would end in 0.19.
"""
ROUNDS = 5
_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)(.*)")


def required(name: str) -> tuple[dict[str, str], set[str]]:
    """Return the version of every module that cluster/<name>/go.mod requires, and which of them it replaces by a version
    of its own choice (its replacement is the version here).
    """
    parsed = json.loads(_go(name, "mod", "edit", "-json"))
    versions = {requirement["Path"]: requirement["Version"] for requirement in parsed["Require"]}
    replaced = {
        replacement["Old"]["Path"]: replacement["New"]["Version"] for replacement in parsed.get("Replace") or ()
    }
    return versions | replaced, set(replaced)


def differences() -> Iterator[tuple[str, str, str, str]]:
    """Yield (component, module, its version, the family's version) for every module whose versions differ."""
    for family in FAMILIES:
        mine = {name: required(name) for name in family}
        highest: dict[str, str] = {}
        for versions, __ in mine.values():
            for path, version in versions.items():
                highest[path] = max(highest.get(path, version), version, key=_rank)
        for name, (versions, replaced) in mine.items():
            for path, version in versions.items():
                if version != highest[path] and path not in replaced:
                    yield name, path, version, highest[path]


def _rank(version: str) -> tuple[int, int, int, bool, str]:
    match = _VERSION.fullmatch(version)
    if match is None:
        raise UserError(f"{version}: not a Go module version")
    extra = match[4].removesuffix("+incompatible")
    return int(match[1]), int(match[2]), int(match[3]), not extra, extra


def align() -> bool:
    """Update the go.mod and go.sum files until they agree; returns whether one changed."""
    changed = False
    for number in range(1, ROUNDS + 1):
        wanted: dict[str, list[str]] = {}
        for name, path, __, version in differences():
            wanted.setdefault(name, []).append(f"-require={path}@{version}")
        if not wanted:
            break
        changed = True
        count = sum(len(edits) for edits in wanted.values())
        with step(f"round {number}: {count} versions to raise in {len(wanted)} modules"):
            for name, edits in wanted.items():
                _go(name, "mod", "edit", *edits)
                _go(name, "mod", "tidy")
    else:
        raise UserError(f"the modules do not agree after {ROUNDS} rounds; `cluster/python cluster align` continues")
    with step("every program finds its packages"):
        for family in FAMILIES:
            for name in family:
                _go(name, "list", "-deps", "-mod=readonly", modules.COMPONENTS[Path(name).name].package)
    return changed


def _go(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [toolchain.go(), *arguments],
        cwd=modules.folder(name),
        env=build.environment() | {"GOFLAGS": "-mod=mod -buildvcs=false -modcacherw"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise UserError(f"go {' '.join(arguments[:2])} in {modules.folder(name)}: {done.stderr.strip()[-800:]}")
    return done.stdout
