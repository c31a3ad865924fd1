"""Every folder and file of the embedded cluster, in one place; imported by all other modules of the package.

cache/ is kept and shared by all clusters (binaries, images, root file system), cluster/ is the running cluster
(cluster-NAME/ if its name is not the default) and is gone after `down`.
"""

from __future__ import annotations

import os
from pathlib import Path

from embedded_cluster.base import identity
from embedded_cluster.base.say import UserError


def _default() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/trainlab")
    try:
        return Path.home() / ".cache" / "trainlab"
    except RuntimeError:
        raise UserError(
            f"this machine has no home directory for uid {os.geteuid()}: set HOME or TRAINLAB_HOME"
        ) from None


HOME = Path(os.environ.get("TRAINLAB_HOME") or _default()).absolute()
CACHE = HOME / "cache"
BIN = CACHE / "bin"
CLUSTER = HOME / f"cluster{identity.SUFFIX}"
KUBECONFIG = CLUSTER / "admin.conf"
LOCK = HOME / f"lock{identity.SUFFIX}"

PACKAGE = Path(__file__).resolve().parents[1]
COMPONENT_MODULES = PACKAGE.parent
MANIFESTS = COMPONENT_MODULES / "manifests"
REPO = COMPONENT_MODULES.parent
