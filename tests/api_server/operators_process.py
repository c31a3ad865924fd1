"""The process that acts as OLM, GPU operator, JobSet, cert-manager and OpenShift AI; started by server.py and e2e/openshift.py."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import requests

from api_server import bundles, catalog, crds, recorded
from api_server.client import Client, NotServed
from api_server.olm import Olm
from api_server.operands import Operands

POLL_SECONDS, BUSY_POLL_SECONDS = 0.25, 1.0
NAMESPACES = (
    "openshift-marketplace",
    "openshift-monitoring",
    "openshift-config-managed",
    "openshift-cluster-csi-drivers",
)
STEP_SECONDS = 0.5


def prepare(client: Client) -> None:
    """Load what a bare OpenShift has: OLM's API, the catalogs with their packages, the storage drivers."""
    for crd in [*crds.olm(), crds.package_manifests(), catalog.drivers()]:
        client.apply(crd)
    for name in NAMESPACES:
        client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    end = time.monotonic() + 30
    for name in catalog.PACKAGES:
        while True:
            try:
                client.apply(catalog.manifest(name))
                break
            except (NotServed, requests.HTTPError):  # a new CRD is served a moment later
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)


def actors(client: Client, faults: dict[str, str], image: str, bundle: str) -> tuple[Olm, Operands]:
    """Return those who act, with the statuses of a bundle (the folder in which they are) or with ours alone."""
    read = bundles.read(Path(bundle)).__getitem__ if bundle else recorded.read
    return Olm(client, faults, STEP_SECONDS, read), Operands(client, faults, image, read)


def main(folder: Path, image: str = "") -> None:
    """Act until killed; an error of one round is printed and the next round goes on, as operators do.

    A defect of this package or of a bundle ends it, which server.py tells. With `image` on a cluster with nodes (operands.py), whose
    API server has more to do.
    """
    client = Client(folder / "kubeconfig")
    prepare(client)
    faults: dict[str, str] = {}
    bundle, acting = "", actors(client, faults, image, "")
    (folder / "ready").touch()
    while True:
        told = (folder / "faults.json").read_text(encoding="ascii")
        faults.clear()
        faults.update(json.loads(told))
        if faults.get(bundles.BUNDLE, "") != bundle:
            bundle = faults.get(bundles.BUNDLE, "")
            acting = actors(client, faults, image, bundle)
        for actor in acting:
            try:
                actor.step()
            except (requests.RequestException, NotServed) as error:
                print(f"{type(actor).__name__}: {error}", flush=True)
        (folder / "faults.done").write_text(told, encoding="ascii")
        time.sleep(BUSY_POLL_SECONDS if image else POLL_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
