"""Where the real CustomResourceDefinitions come from, and the reduced ones of APIs that have none.

OLM's and JobSet's come from their Go modules, those that no registry serves from tests/crds. PackageManifest is an
aggregated API without a CRD, and some operators publish nothing: for these there are reduced CRDs that accept every field.
"""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml
from embedded_cluster.builds import build, modules, toolchain

from charts import upstream

Json = dict[str, Any]
STORED = Path(__file__).resolve().parents[1] / "crds"
OLM_MODULE = "github.com/operator-framework/api@v0.34.0"
OLM_SUM = "h1:REiEaYhG1CWmDoajdcAdZqtgoljWG+ixMY59vUX5pFI="
OPENSHIFT = "github.com/openshift/api@v0.0.0-20251015095338-264e80a2b6e7"
OPENSHIFT_SUM = "h1:Ot2fbEEPmF3WlPQkyEW/bUCV38GMugH/UmZvxpWceNc="
CONSOLE = (
    "helm/v1beta1/zz_generated.crd-manifests/00_projecthelmchartrepositories.crd.yaml",
    "console/v1/zz_generated.crd-manifests/00_consolelinks.crd.yaml",
    "console/v1/zz_generated.crd-manifests/00_consolequickstarts.crd.yaml",
)
WORKLOADS = ("kueue", "config/components/crd/bases/kueue.x-k8s.io_workloads.yaml")
OLM_KINDS = ("subscriptions", "clusterserviceversions", "installplans", "operatorgroups", "catalogsources")


@functools.cache
def _module(name: str) -> tuple[Path, str]:
    """Return (folder, checksum) of a Go module, downloaded once."""
    done = subprocess.run(
        [toolchain.go(), "mod", "download", "-json", name],
        cwd="/",
        env=build.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"go mod download {name}: {done.stdout} {done.stderr}")
    found = json.loads(done.stdout)
    return Path(found["Dir"]), found["Sum"]


@functools.cache
def _parsed(file: Path) -> list[Json]:
    with file.open(encoding="utf-8") as stream:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return [one for one in yaml.load_all(stream, loader) if one]


def read(file: Path) -> list[Json]:
    """Return the CRDs of a file, to be changed at will."""
    return copy.deepcopy(_parsed(file))


def olm() -> list[Json]:
    """Return OLM's CRDs, from its Go module."""
    folder, checksum = _module(OLM_MODULE)
    if checksum != OLM_SUM:
        raise RuntimeError(f"{OLM_MODULE} has checksum {checksum}, expected {OLM_SUM}")
    return [one for kind in OLM_KINDS for one in read(folder / "crds" / f"operators.coreos.com_{kind}.yaml")]


def console() -> list[Json]:
    """Return the CRDs of what OpenShift's console shows, from its Go module."""
    folder, checksum = _module(OPENSHIFT)
    if checksum != OPENSHIFT_SUM:
        raise RuntimeError(f"{OPENSHIFT} has checksum {checksum}, expected {OPENSHIFT_SUM}")
    return [one for file in CONSOLE for one in read(folder / file)]


def jobset() -> list[Json]:
    """Return JobSet's CRD, from the Go module of the version in cluster/jobset."""
    folder, _ = _module(f"sigs.k8s.io/jobset@{modules.version('jobset')}")
    return read(folder / "config" / "components" / "crd" / "bases" / "jobset.x-k8s.io_jobsets.yaml")


def kueue() -> list[Json]:
    """Return Kueue's CRDs, from its Go module."""
    return [newest_stored(bare(upstream.from_module(*one))) for one in (*upstream.QUEUES.values(), WORKLOADS)]


def bare(text: str) -> Json:
    """Return an upstream project's CRD without the conversion webhook that nothing serves here, and with its dates as text."""
    plain: Json = json.loads(_bare(text))
    return plain


@functools.cache
def _bare(text: str) -> str:
    found = yaml.load(text, yaml.CSafeLoader)
    found["spec"].pop("conversion", None)
    return json.dumps(found, default=str)


def serving(crd: Json, versions: Collection[str]) -> Json:
    """Return a CRD that serves only these of its versions, and stores the last of them, as its project's newer releases do."""
    each = crd["spec"]["versions"]
    last = [one["name"] for one in each if one["name"] in versions][-1]
    changed = [one | {"served": one["name"] in versions, "storage": one["name"] == last} for one in each]
    return crd | {"spec": crd["spec"] | {"versions": changed}}


def newest_stored(crd: Json) -> Json:
    """Return a CRD with its newest served version as the stored one: no webhook converts here, and an older one drops newer fields."""
    return serving(crd, [each["name"] for each in crd["spec"]["versions"] if each["served"]])


def shortened(text: str) -> str:
    """Return a file of CRDs without what only describes: as tests/crds has those of others."""
    documents = [_undescribed(one) for one in yaml.load_all(text, yaml.CSafeLoader)]
    return str(yaml.dump_all(documents, Dumper=yaml.CSafeDumper, sort_keys=False, width=120))


def _undescribed(part: Any, names: bool = False) -> Any:
    """`names`: the keys are a schema's properties, of which one may be called description."""
    if isinstance(part, list):
        return [_undescribed(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        key: _undescribed(value, key == "properties" and not names)
        for key, value in part.items()
        if names or key != "description"
    }


def stored(*files: str) -> list[Json]:
    """Return CRDs of tests/crds, without the conversion webhooks that nothing serves here."""
    result = [one for file in files for one in read(STORED / file)]
    for one in result:
        one["spec"].pop("conversion", None)
    return result


def reduced(group: str, kind: str, versions: list[str], namespaced: bool, plural: str = "") -> Json:
    """Return a CRD that accepts every field; the last version is the stored one."""
    plural = plural or f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, tests only"},
        },
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[-1],
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
                for version in versions
            ],
        },
    }


def package_manifests() -> Json:
    """Return the stand-in for the aggregated API packages.operators.coreos.com."""
    result = reduced("packages.operators.coreos.com", "PackageManifest", ["v1"], namespaced=True)
    del result["spec"]["versions"][0]["subresources"]  # its status is the catalogs' content, written at once
    return result


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(shortened(Path(name).read_text(encoding="utf-8")), encoding="utf-8")
