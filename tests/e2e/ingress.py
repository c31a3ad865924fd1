"""An ingress controller, which the embedded cluster has not: Traefik in its first node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from e2e import node_programs
from e2e.commands import kubectl

PROGRAM, NODE = "traefik", "n1"
CLASS = "of-the-tests"
INGRESS_CLASS = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "IngressClass",
    "metadata": {"name": CLASS},
    "spec": {"controller": "traefik.io/ingress-controller"},
}
ENTRIES = (
    "--entrypoints.web.address=:80",
    "--entrypoints.websecure.address=:443",
    "--entrypoints.websecure.http.tls=true",
)
"""As its own chart sets them."""
QUIET = ("--global.checknewversion=false", "--global.sendanonymoususage=false")
"""It would call its makers."""


@contextmanager
def controller(log: Path) -> Iterator[str]:
    """Serve the Ingresses of CLASS at ports 80 and 443; yield the address of the node."""
    line = ("env", f"KUBECONFIG={node_programs.KUBECONFIG}", node_programs.inside(PROGRAM), *ENTRIES, *QUIET)
    kubectl("apply", "-f", "-", given=yaml.safe_dump(INGRESS_CLASS))
    try:
        with node_programs.running(PROGRAM, {NODE: (*line, "--providers.kubernetesingress=true")}, log):
            where = '{.status.addresses[?(@.type=="InternalIP")].address}'
            yield kubectl("get", "node", NODE, "-o", f"jsonpath={where}")
    finally:
        kubectl("delete", "ingressclass", CLASS)
