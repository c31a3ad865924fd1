"""Every folder and file of the lab, in one place; imported by all other files of cluster/lab.

cache/ is kept between clusters (binaries, images, root file system), cluster/ is the running cluster and
is gone after `down`.
"""

from __future__ import annotations

import os
from pathlib import Path

_DEFAULT = Path("/var/lib/trainlab") if os.geteuid() == 0 else Path.home() / ".cache" / "trainlab"
HOME = Path(os.environ.get("TRAINLAB_HOME") or _DEFAULT).absolute()
CACHE = HOME / "cache"
BIN = CACHE / "bin"
CLUSTER = HOME / "cluster"
KUBECONFIG = CLUSTER / "admin.conf"
LOCK = HOME / "lock"

LAB = Path(__file__).resolve().parent
COMPONENT_MODULES = LAB.parent
MANIFESTS = COMPONENT_MODULES / "manifests"
REPO = COMPONENT_MODULES.parent
