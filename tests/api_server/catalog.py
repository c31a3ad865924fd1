"""What the test cluster's catalogs offer: packages, channels, versions, and what each operator installs.

OpenShift AI's as in meta/releases.yml, other channels and versions as in August 2026; the rest of each PackageManifest is reduced to what the playbooks read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from api_server import crds

Json = dict[str, Any]
OWN, EVERYWHERE = "OwnNamespace", "AllNamespaces"
RELEASES: dict[str, Json] = yaml.safe_load(
    (Path(__file__).resolve().parents[2] / "meta/releases.yml").read_text("utf-8")
)


@dataclass(frozen=True)
class Package:
    """One operator: `channels` map to their newest version; `mode` is the install mode that it supports."""

    source: str
    default: str
    channels: dict[str, str]
    mode: str
    entries: dict[str, list[str]] = field(default_factory=dict)


PACKAGES: dict[str, Package] = {
    "nfd": Package(
        "redhat-operators",
        "stable",
        {"stable": "nfd.4.20.0-202510211040"},
        OWN,
        {"stable": ["nfd.4.20.0-202510211040", "nfd.4.20.0-202509150000"]},
    ),
    "gpu-operator-certified": Package(
        "certified-operators",
        "stable",
        {
            "stable": "gpu-operator-certified.v26.7.0",
            "v26.7": "gpu-operator-certified.v26.7.0",
            "v26.3": "gpu-operator-certified.v26.3.3",
            "v25.10": "gpu-operator-certified.v25.10.1",
        },
        OWN,
    ),
    "openshift-cert-manager-operator": Package(
        "redhat-operators", "stable-v1", {"stable-v1": "cert-manager-operator.v1.19.0"}, EVERYWHERE
    ),
    "job-set": Package("redhat-operators", "stable-v1.0", {"stable-v1.0": "jobset-operator.v1.0.0"}, OWN),
    "kueue-operator": Package(
        "redhat-operators",
        "stable-v1.4",
        {f"stable-v1.{minor}": f"kueue-operator.v1.{minor}.0" for minor in (2, 3, 4)},
        EVERYWHERE,
    ),
    "aws-efs-csi-driver-operator": Package(
        "redhat-operators", "stable", {"stable": "aws-efs-csi-driver-operator.v4.20.0"}, EVERYWHERE
    ),
    "odf-operator": Package(
        "redhat-operators",
        "stable-4.20",
        {f"stable-4.{minor}": f"odf-operator.v4.{minor}.1" for minor in (19, 20)},
        OWN,
    ),
    "rhods-operator": Package(
        "redhat-operators",
        "stable-3.x",
        {"stable-3.x": f"rhods-operator.{RELEASES['3.5']['version']}"}
        | {each["channels"]["rhoai"]: f"rhods-operator.{each['version']}" for each in RELEASES.values()}
        | {each["eus"]: f"rhods-operator.{each['version']}" for each in RELEASES.values() if "eus" in each},
        EVERYWHERE,
        {"stable-3.4": ["rhods-operator.3.4.4", "rhods-operator.3.4.3"]},
    ),
}


def manifest(name: str) -> Json:
    """Return the PackageManifest of a package."""
    package = PACKAGES[name]
    return {
        "apiVersion": "packages.operators.coreos.com/v1",
        "kind": "PackageManifest",
        "metadata": {
            "name": name,
            "namespace": "openshift-marketplace",
            "labels": {"catalog": package.source, "catalog-namespace": "openshift-marketplace"},
        },
        "status": {
            "catalogSource": package.source,
            "catalogSourceNamespace": "openshift-marketplace",
            "packageName": name,
            "defaultChannel": package.default,
            "channels": [
                {
                    "name": channel,
                    "currentCSV": head,
                    "entries": [{"name": each} for each in package.entries.get(channel, [head])],
                }
                for channel, head in package.channels.items()
            ],
        },
    }


def owned(package: str, csv: str) -> list[Json]:
    """Return the CRDs that this version installs."""
    if package == "nfd":
        return crds.stored("openshift/nodefeaturediscoveries.yaml")
    if package == "gpu-operator-certified":
        return crds.stored("gpu-operator/nvidia.com_clusterpolicies.yaml")
    if package == "openshift-cert-manager-operator":
        return [
            crds.reduced("operator.openshift.io", "CertManager", ["v1alpha1"], False),
            *(crds.reduced("cert-manager.io", kind, ["v1"], True) for kind in ("Certificate", "Issuer")),
        ]
    if package == "job-set":
        return crds.stored("openshift/jobset-operator.yaml")
    if package == "kueue-operator":
        # only the early kueue.operator.openshift.io/v1alpha1 is public, which no supported version serves
        return [crds.reduced("kueue.openshift.io", "Kueue", ["v1"], False)]
    if package == "aws-efs-csi-driver-operator":
        return []  # ClusterCSIDriver is OpenShift's own
    if package == "odf-operator":
        return []  # it installs the operator that brings StorageCluster
    release = release_of(csv)
    services = ["Auth"] if release == "2.25" else ["Auth", "GatewayConfig"]
    return [
        *crds.stored(
            *(
                f"rhoai-{release}/{kind}.opendatahub.io_{kind}s.yaml"
                for kind in ("datasciencecluster", "dscinitialization")
            )
        ),
        *(crds.reduced("services.platform.opendatahub.io", kind, ["v1alpha1"], False) for kind in services),
    ]


def described(crd: Json) -> Json:
    """Return how a ClusterServiceVersion lists a CRD of its own."""
    spec = crd["spec"]
    return {"name": crd["metadata"]["name"], "kind": spec["names"]["kind"], "version": spec["versions"][-1]["name"]}


def release_of(csv: str) -> str:
    """Return major and minor version of a ClusterServiceVersion: `3.4` of `rhods-operator.3.4.3`, `26.3` of `....v26.3.3`."""
    return ".".join(csv.split(".", 1)[1].removeprefix("v").split(".")[:2])


def drivers() -> Json:
    """Return the CRD with which OpenShift, with or without an EFS operator, lists storage drivers."""
    return crds.reduced("operator.openshift.io", "ClusterCSIDriver", ["v1"], False)


def examples(package: str) -> str:
    """Return the alm-examples of a package's ClusterServiceVersion, as text."""
    if package != "gpu-operator-certified":
        return "[]"
    return (crds.STORED / "gpu-operator" / "alm-examples.json").read_text(encoding="utf-8")
