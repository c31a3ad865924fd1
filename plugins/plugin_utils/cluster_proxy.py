"""OpenShift's cluster-wide proxy (config.openshift.io/v1 Proxy `cluster`), as what the pods and NetworkPolicies of a release need of it.

Pods get nothing of it by themselves. Builds do (their environment from the build controller, its CA by `mountTrustedCA`), and so do
operators that OLM installs.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from ansible.errors import AnsibleActionFail

from .kube import Api, ApiError, Json

CA = "trainlab-trusted-ca"
"""ConfigMap that roles/workspace/templates/trust.yaml.j2 makes, and OpenShift fills."""
PATH = "/apis/config.openshift.io/v1/proxies/cluster"
NAMES = {"httpProxy": "HTTP_PROXY", "httpsProxy": "HTTPS_PROXY", "noProxy": "NO_PROXY"}
PORTS = {"http": 80, "https": 443}
REMEDY = "set trainlab_cluster_proxy: false, and trainlab_site.env and workspace_egress_ports to what pods need"


def of_cluster(api: Api, site: Json) -> Json:
    """Return `site`, what the block lacks of it (env, caConfigMap), and `ports`, the TCP ports to reach it; both empty without a proxy.

    What `site` has itself is left alone. AnsibleActionFail where it cannot be read, or would put a password into the values.
    """
    try:
        found = api.get(PATH) or {}
    except ApiError as error:
        raise AnsibleActionFail(
            f"Proxy cluster of OpenShift cannot be read: {error}; {REMEDY}; nothing was applied"
        ) from error
    status = found.get("status") or {}
    said = {name: status[key] for key, name in NAMES.items() if status.get(key)}
    addresses = [urlsplit(value) for name, value in said.items() if name != "NO_PROXY"]
    if not addresses:
        return {"site": {}, "ports": []}
    if any(each.password for each in addresses):
        raise AnsibleActionFail(
            f"Proxy cluster of OpenShift has an address with a password, which would stand in the values of the release; {REMEDY}, "
            "with a proxy that asks pods for none; nothing was applied"
        )
    missing: Json = {name: value for name, value in said.items() if name not in (site.get("env") or {})}
    block: Json = {"env": missing} if missing else {}
    if ((found.get("spec") or {}).get("trustedCA") or {}).get("name") and not site.get("caConfigMap"):
        block["caConfigMap"] = CA
    return {"site": block, "ports": sorted({_port(each) for each in addresses})}


def _port(address: SplitResult) -> int:
    return address.port or PORTS.get(address.scheme, PORTS["http"])
