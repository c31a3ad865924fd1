"""Builds of OpenShift as plain functions over objects; used by the action plugin openshift_build.

Source: openshift/api build/v1 (phases, reasons, BuildRequest, instantiatebinary) and image/v1 (status.tags of an ImageStream).
"""

from __future__ import annotations

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
