"""The components of the cluster: which Go package, which image names; read by build, images and operators.

Versions are pinned once, in cluster/<name>/go.mod, and read from there; with TRAINLAB_LEG=older in cluster/older/<name>/go.mod
where that exists: the oldest versions that a supported release of OpenShift AI brings, as near as they can be built.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from embedded_cluster.base import paths
from embedded_cluster.base.say import UserError

OWN_MAIN = {
    "kubernetes": "k8s.io/kubernetes",
    "coredns": "github.com/coredns/coredns",
    "registry": "github.com/distribution/distribution/v3",
}
"""The components whose main is cluster/<name>/main.go, in the module that contains the rest of them."""
WHOLLY_OWN = ("resolves",)
"""The components that use nothing but Go's standard library, and have no version."""
LEG = "TRAINLAB_LEG"
"""The variable that chooses the versions of the operators: `today`, the default, or `older`."""
OLDER = "older"


@dataclass(frozen=True)
class Component:
    """One program: `package` to build, the `images` that hold it and where an image's entrypoint is expected.

    One that is not `default` is built with `build --all`; a `rare` one only when it is asked for by name.
    `without` are files of its own module, relative to it, that are left out: no package that it needs, needs them.
    `tags` are build tags.
    """

    name: str
    package: str
    images: tuple[str, ...] = ()
    link: str | None = None
    default: bool = True
    rare: bool = False
    without: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def older() -> bool:
    """Return whether $TRAINLAB_LEG chooses the older versions; UserError for a leg that there is not."""
    leg = os.environ.get(LEG) or "today"
    if leg not in ("today", OLDER):
        raise UserError(f"{LEG}={leg}: give today or {OLDER}, or unset it")
    return leg == OLDER


def folder(name: str) -> Path:
    """Return the folder of the Go module that pins this component; `older/NAME` is that of the older leg whatever leg is chosen."""
    pinned = paths.COMPONENT_MODULES / OLDER / name
    return pinned if older() and pinned.is_dir() else paths.COMPONENT_MODULES / name


@functools.cache
def module(name: str) -> tuple[str, str]:
    """Return (module path, version) of what cluster/<name>/go.mod pins for this component."""
    file = folder(name) / "go.mod"
    text = file.read_text(encoding="utf-8")
    tool = re.search(r"^tool (\S+)$", text, re.MULTILINE)
    package = tool.group(1) if tool else OWN_MAIN[name]
    owners = [(path, version) for path, version in _required(text) if f"{package}/".startswith(f"{path}/")]
    if not owners:
        raise UserError(f"{file}: no `require` line for {package}; add it with `go get -tool {package}`")
    return max(owners, key=lambda owner: len(owner[0]))


def required(name: str, path: str) -> str:
    """Return the version of module `path` that cluster/<name>/go.mod names."""
    return dict(_required((folder(name) / "go.mod").read_text(encoding="utf-8")))[path]


def _required(text: str) -> list[tuple[str, str]]:
    """Return (module path, version) of each `require` line of a go.mod."""
    return re.findall(r"^(?:require )?\s*(\S+) (v\S+)(?: // indirect)?$", text, re.MULTILINE)


def version(name: str) -> str:
    """Return the pinned version of this component, e.g. `v1.34.4`; empty for one that is wholly our own."""
    return "" if name in WHOLLY_OWN else module(name)[1]


def _components() -> dict[str, Component]:
    """Return all components; the image names are those that kubeadm and the upstream manifests ask for."""
    kubernetes, staging = version("kubernetes"), "us-central1-docker.pkg.dev/k8s-staging-images"
    control_plane = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    return {
        component.name: component
        for component in (
            Component(
                "kubernetes",
                ".",
                tuple(f"registry.k8s.io/{part}:{kubernetes}" for part in control_plane),
            ),
            Component(
                "etcd",
                "go.etcd.io/etcd/server/v3",
                # The -0 is the revision of upstream's image, constants.DefaultEtcdVersion in kubeadm.
                (f"registry.k8s.io/etcd:{version('etcd').removeprefix('v')}-0",),
                "/usr/local/bin/etcd",
            ),
            Component(
                "coredns",
                ".",
                (f"registry.k8s.io/coredns/coredns:{version('coredns')}",),
                "/coredns",
            ),
            Component("resolves", "."),
            # both take the same commands; Helm 3, whose security fixes end in February 2027, is the smaller build
            Component("helm", "helm.sh/helm/v3/cmd/helm"),
            Component("helm4", "helm.sh/helm/v4/cmd/helm", default=False),
            Component(
                "local-path-provisioner",
                "github.com/rancher/local-path-provisioner",
                (f"docker.io/rancher/local-path-provisioner:{version('local-path-provisioner')}",),
                "/usr/bin/local-path-provisioner",
            ),
            Component(
                "training-operator",
                "github.com/kubeflow/training-operator/cmd/training-operator.v1",
                # Upstream tags the image by commit, not by version: overlays/standalone.
                ("ghcr.io/kubeflow/training-v1/training-operator:v1-93c5489",),
                "/manager",
            ),
            Component("jobset", "sigs.k8s.io/jobset", (f"{staging}/jobset/jobset:{version('jobset')}",), "/manager"),
            Component(
                "trainer",
                "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
                (f"ghcr.io/kubeflow/trainer/trainer-controller-manager:{version('trainer')}",),
                "/manager",
            ),
            Component(
                "kserve",
                "github.com/kserve/kserve/cmd/manager",
                (f"docker.io/kserve/kserve-controller:{version('kserve')}",),
                "/manager",
                # For a list of four URL prefixes, which provider.go beside them has, every importer of KServe's API types
                # compiles the SDKs of S3, Google Storage and Azure: 41 MB of source for the manager's 6.
                without=()
                if older()
                else tuple(f"pkg/agent/storage/{file}.go" for file in ("azure", "gcs", "https", "s3", "utils")),
            ),
            Component(
                "kueue",
                "sigs.k8s.io/kueue/cmd/kueue",
                (f"{staging}/kueue/kueue:{version('kueue')}",),
                "/manager",
                # Behind a gate that is off by default; with it all of the Kubernetes scheduler is compiled.
                tags=("exclude_scheduler_library",),
            ),
            Component(
                "kwok",
                "sigs.k8s.io/kwok/cmd/kwok",
                (f"registry.k8s.io/kwok/kwok:{version('kwok')}",),
                "/usr/local/bin/kwok",
                default=False,
            ),
            # For the tests of a push to somebody's registry.
            Component("registry", ".", default=False),
            # `ct lint`, as repositories of charts run it.
            Component("chart-testing", "github.com/helm/chart-testing/v3/ct", default=False),
            # For the test that NetworkPolicies keep attendees apart, which enforces them; 190 CPU-seconds for one slow test.
            Component(
                "kube-router",
                "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
                default=False,
                rare=True,
            ),
            # For the test that an Ingress leads to a model; 640 CPU-seconds for one slow test.
            Component("traefik", "github.com/traefik/traefik/v3/cmd/traefik", default=False, rare=True),
        )
    }


COMPONENTS: dict[str, Component] = _components()
