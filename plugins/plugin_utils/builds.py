"""Builds of OpenShift as plain functions over objects; used by the action plugin openshift_build.

Source: openshift/api build/v1 (phases, reasons, BuildRequest, instantiatebinary) and image/v1 (status.tags of an ImageStream).
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
import tarfile
from pathlib import Path

from ansible.errors import AnsibleActionFail

from .kube import Json

BUILD_API, IMAGE_API = "build.openshift.io/v1", "image.openshift.io/v1"
BUILDS, IMAGES = f"/apis/{BUILD_API}", f"/apis/{IMAGE_API}"
FAILED = {"Failed", "Error", "Cancelled"}
COMPLETE = "Complete"
REMEDIES = {
    "OutOfMemoryKilled": "raise image_build_resources.limits.memory",
    "BuildPodEvicted": "the node ran out of disk: free some, or build on another node",
    "FetchSourceFailed": "image_git_uri, image_git_ref or image_git_secret is wrong, or the cluster cannot reach it",
    "InvalidContextDirectory": "the repository at image_git_ref has no images/trainer",
    "PullBuilderImageFailed": "image_base cannot be pulled: correct it, or let an administrator allow it",
    "PushImageToRegistryFailed": "see the registry: oc get configs.imageregistry.operator.openshift.io cluster -o yaml",
    "DockerBuildFailed": "the last lines show which step failed",
}
LEFT_OUT = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
DIGITS = 12
ARCHIVE = "context.tar.gz"
CONFIG_MAP_BYTES = 1 << 20
"""Source: the API server's limit for all data of a ConfigMap (MaxSecretSize of k8s.io/api/core/v1)."""


def image_of(stream: Json | None, tag: str) -> str:
    """Return REPOSITORY@DIGEST of a tag of an ImageStream; empty while nothing was pushed to it."""
    status = (stream or {}).get("status") or {}
    for each in status.get("tags") or []:
        items = each.get("items") or []
        if each.get("tag") == tag and items:
            return f"{status['dockerImageRepository']}@{items[0]['image']}"
    return ""


def phase(build: Json | None) -> str:
    """Return the phase of a build, New before it has one."""
    return str(((build or {}).get("status") or {}).get("phase") or "New")


def says(build: Json) -> str:
    """Return phase, reason and message in one line."""
    status = build.get("status") or {}
    more = ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
    return f"{phase(build)} ({more})" if more else phase(build)


def remedy(build: Json) -> str:
    """Return the remedy for a build that failed for a known reason."""
    reason = str((build.get("status") or {}).get("reason") or "")
    return REMEDIES.get(reason, "fix it and run the playbook again")


def makes(build: Json, stream: str, tag: str) -> bool:
    """Tell whether a build is on its way to this tag."""
    target = (build["spec"].get("output") or {}).get("to") or {}
    return target.get("name") == f"{stream}:{tag}" and phase(build) not in FAILED | {COMPLETE}


def files_of(root: Path, paths: list[str]) -> list[Path]:
    """Return all files below these paths of `root`, sorted; AnsibleActionFail names a path that does not exist."""
    files: list[Path] = []
    for name in paths:
        path = root / name
        if not path.exists():
            raise AnsibleActionFail(
                f"{path}: no such file; the image is built from a checkout or the installed collection"
            )
        files += [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sorted(each for each in files if not LEFT_OUT & set(each.relative_to(root).parts))


def packed(root: Path, paths: list[str]) -> bytes:
    """Return a tar.gz of these paths, independent of times, owners and umask."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in files_of(root, paths):
            entry = tarfile.TarInfo(str(file.relative_to(root)))
            entry.size, entry.mode = file.stat().st_size, 0o755 if file.stat().st_mode & 0o100 else 0o644
            with file.open("rb") as stream:
                archive.addfile(entry, stream)
    return gzip.compress(raw.getvalue(), mtime=0)


def inlined(containerfile: str) -> str:
    """Return a Containerfile that takes what it copies out of an archive, the one file of an inline source.

    ADD unpacks a local archive: the image of the first FROM gets it in a stage of its own, from which each COPY of the
    build context then copies. AnsibleActionFail for one without a FROM.
    """
    before, mark, after = containerfile.partition("\nFROM ")
    if not mark:
        raise AnsibleActionFail("the Containerfile has no FROM; it cannot be built from an inline source")
    base = after.split(maxsplit=1)[0]
    stage = f"\nFROM {base} AS context\nUSER 0\nADD {ARCHIVE} /context/\n"
    copied = re.sub(r"(?m)^COPY (?!--)(.+) (\S+)$", _from_context, after)
    return f"{before}{stage}{mark}{copied}"


def _from_context(copy: re.Match[str]) -> str:
    sources = " ".join(f"/context/{source}" for source in copy[1].split())
    return f"COPY --from=context {sources} {copy[2]}"


def carried(name: str, archive: bytes) -> dict[str, str]:
    """Return the archive as the binaryData of ConfigMap `name`; AnsibleActionFail if one cannot hold it."""
    if len(archive) > CONFIG_MAP_BYTES:  # the API server counts what the base64 of its JSON holds
        raise AnsibleActionFail(
            f"the sources take {len(archive) / 1024:.0f} KiB, a ConfigMap ({name}) holds {CONFIG_MAP_BYTES // 1024}; set trainlab_image_source "
            "to checkout or git"
        )
    return {ARCHIVE: base64.b64encode(archive).decode()}


def tag(*parts: bytes) -> str:
    """Return the tag of an image built from these parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:DIGITS]
