"""From where a Kubernetes API server's proxy reaches a pod, for NetworkPolicies: playbooks ask the model and people follow a training
through that proxy.

On OpenShift roles/workspace/templates/network.yaml.j2 names them by their namespaces' label instead.
"""

from __future__ import annotations

import ipaddress

from .kube import Api, ApiError

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
OF_KUBERNETES = "kubernetes.io/service-name=kubernetes"
FORBIDDEN = 403


def blocks(api: Api) -> list[str]:
    """Return the addresses behind the Service `kubernetes` as CIDR blocks; none where this user may not read them."""
    try:
        slices = api.items(SLICES, OF_KUBERNETES)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return []
    found = {address for one in slices for end in one.get("endpoints") or [] for address in end.get("addresses") or []}
    return sorted(str(ipaddress.ip_network(address)) for address in found)
