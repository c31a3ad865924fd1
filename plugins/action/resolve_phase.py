"""Action plugin resolve_phase: see plugins/modules/resolve_phase.py."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import yaml
from ansible.errors import AnsibleActionFail
from ansible.utils.vars import merge_hash

from ..plugin_utils import kueue
from ..plugin_utils.documented import DocumentedAction
from ..plugin_utils.kube import FORBIDDEN, Api, ApiError, Json, connect, wrong_cluster
from ..plugin_utils.playbooks import short

COLLECTION = Path(__file__).resolve().parents[2]
SOURCES = COLLECTION / "training" / "src"
INVENTORY = "inventory (trainlab_site, trainlab_phase_overrides)"
CHECK_SECONDS = 60
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
OF_KUBERNETES = "kubernetes.io/service-name=kubernetes"
DNS_SERVICES, OF_DNS = "/api/v1/namespaces/kube-system/services", "k8s-app=kube-dns"
LINK_LOCAL = "169.254.0.0/16"
CA = "trainlab-trusted-ca"
"""ConfigMap that roles/workspace/templates/trust.yaml.j2 makes, and OpenShift fills."""
PROXY = "/apis/config.openshift.io/v1/proxies/cluster"
NAMES = {"httpProxy": "HTTP_PROXY", "httpsProxy": "HTTPS_PROXY", "noProxy": "NO_PROXY"}
PORTS = {"http": 80, "https": 443}
REMEDY = "set trainlab_cluster_proxy: false, and trainlab_site.env and workspace_egress_ports to what pods need"


class ActionModule(DocumentedAction):
    """Checks the values and the connection and sets the fact `trainlab_resolved` for all later roles."""

    def run_on_controller(self, args: Json) -> Json:
        """Return kubectl and ansible_facts; AnsibleActionFail with the CLI's sentences, or with why the connection failed."""
        if not args["files"]:
            api, _version = _connected(args)
            helm = api.connection.command("helm", args["helm"])
            return {"changed": False, "kubectl": api.kubectl, "helm": helm, "kueue": kueue.served(api)}
        proxy: Json = {"site": {}, "ports": []}
        connected = None
        if args["cluster_proxy"]:
            connected = _connected(args)
            proxy = cluster_proxy(connected[0], args["site"])
        own = {"site": merge_hash(args["site"], proxy["site"])}
        if args["phase_overrides"]:
            own["phase"] = args["phase_overrides"]
        for file in map(Path, args["files"]):
            if not file.is_file():
                raise AnsibleActionFail(_missing(file))
        with tempfile.TemporaryDirectory() as folder:
            overlay = Path(folder) / "inventory.yaml"
            overlay.write_text(yaml.safe_dump(own), encoding="utf-8")
            files = [*(short(file) for file in args["files"]), str(overlay)]
            resolved = _check(files)
            plan = _plan(files)
        api, version = connected or _connected(args)
        openshift = api.get("/apis/config.openshift.io/v1") is not None
        slices = [] if openshift else api_server_slices(api)
        context = {
            "phase": resolved["phase"],
            "site": resolved["site"],
            "run": f"{args['release']}-{resolved['hash']}",  # as the chart names it
            "world_size": resolved["world_size"],
            "protocol": resolved["protocol"],
            "claims": {  # as the chart's trainjob.claims
                name: resolved["site"]["storage"][name]["existing"] or f"{args['release']}-{name}"
                for name in resolved["volumes"]
            },
            "plan": plan,
            "proxy": proxy,
            "server": api.server,
            "kubectl": api.kubectl,
            "helm": api.connection.command("helm", args["helm"]),
            "kubernetes": version.get("gitVersion", ""),
            "openshift": openshift,
            "api_servers": api_server_blocks(slices),
            "api_ports": api_server_ports(slices),
            "dns_servers": [] if openshift else dns_blocks(api),
        }
        return {
            "changed": False,
            "kubectl": api.kubectl,
            "helm": context["helm"],
            "ansible_facts": {"trainlab_resolved": context},
        }


def _connected(args: Json) -> tuple[Api, Json]:
    """Return the connection and the API server's version; AnsibleActionFail for another cluster."""
    api, version = connect(args["kubeconfig"], args["kube_context"])
    if wrong := wrong_cluster(api, args["cluster_id"]):
        raise AnsibleActionFail(f"nothing was applied: {wrong}")
    return api, version


def _missing(file: Path) -> str:
    known = ", ".join(sorted(each.stem for each in file.parent.glob("*.yaml")))
    return f"trainlab_values: {file}: no such file; set -e phase=NAME or trainlab_values to files that exist" + (
        f"; phases there: {known}" if known else ""
    )


def _check(files: list[str]) -> Json:
    """Validate the files with `trainlab check`, the inventory's part last; return the resolved values."""
    done = _trainlab("check", files)
    try:
        answer: Json = json.loads(done.stdout)
    except ValueError:
        text = done.stderr.strip() or done.stdout.strip()
        raise AnsibleActionFail(f"`trainlab check` could not run: {text[-800:]}") from None
    if not answer.get("ok"):
        raise AnsibleActionFail("\n".join(answer["errors"]).replace(files[-1], INVENTORY))
    return answer


def _plan(files: list[str]) -> Json:
    """Return what `trainlab plan --json` says about valid files.

    A plan that cannot be computed is a refusal, like one that cannot work.
    """
    done = _trainlab("plan", files)
    try:
        answer: Json = json.loads(done.stdout)
    except ValueError:
        text = (done.stderr.strip() or done.stdout.strip())[-800:].removeprefix("error: ").replace(files[-1], INVENTORY)
        finding = {"level": "refuse", "code": "not-planned", "key": "", "text": text}
        return {
            "ok": False,
            "verdict": "not planned",
            "findings": [finding | {"line": f"REFUSED [not-planned] {text}"}],
        }
    return answer


def _trainlab(command: str, files: list[str]) -> subprocess.CompletedProcess[str]:
    """Run `trainlab COMMAND --json` on values files, from this collection and without the shell's own settings."""
    call = [sys.executable, "-m", "trainlab.cli", command, "--json", files[0]]
    for file in files[1:]:
        call += ["-f", file]
    # the shell's EPOCHS and the like steer a training process, never a release
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    env["PYTHONPATH"] = os.pathsep.join([str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])
    env["TRAINLAB_DATA"] = str(COLLECTION / "data")  # the rows of builtin: sources, for values files in other places
    return subprocess.run(call, capture_output=True, text=True, check=False, env=env, timeout=CHECK_SECONDS)


def api_server_slices(api: Api) -> list[Json]:
    """Return what stands behind the Service `kubernetes`; nothing where this user may not read it."""
    try:
        return api.items(SLICES, OF_KUBERNETES)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return []


def api_server_ports(slices: list[Json]) -> list[int]:
    """Return the TCP ports on which the API servers listen; a NetworkPolicy judges a connection to the Service by these."""
    return sorted({int(port["port"]) for each in slices for port in each.get("ports") or [] if port.get("port")})


def api_server_blocks(slices: list[Json]) -> list[str]:
    """Return the API servers' addresses as CIDR blocks.

    From there its proxy reaches pods, for NetworkPolicies: playbooks ask the model through it, and people follow a training. On
    OpenShift roles/workspace/templates/network.yaml.j2 names them by their namespaces' label instead.
    """
    addresses = {
        address
        for endpoint_slice in slices
        for end in endpoint_slice.get("endpoints") or []
        for address in end.get("addresses") or []
    }
    return sorted(str(ipaddress.ip_network(address)) for address in addresses)


def dns_blocks(api: Api) -> list[str]:
    """Return the addresses at which pods find NodeLocal DNSCache, no pod that a NetworkPolicy could select, as CIDR blocks.

    It listens on its node: on a link-local address, and on that of DNS's Service (github.com/kubernetes/kubernetes,
    cluster/addons/dns/nodelocaldns), which is left out where this user may not read it. OpenShift has none.
    """
    try:
        services = api.items(DNS_SERVICES, OF_DNS)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        services = []
    addresses = {
        address for service in services for address in service["spec"].get("clusterIPs") or [] if address != "None"
    }
    return [LINK_LOCAL, *sorted(str(ipaddress.ip_network(address)) for address in addresses)]


def cluster_proxy(api: Api, site: Json) -> Json:
    """Return what `site` lacks of OpenShift's Proxy `cluster` (env, caConfigMap), and `ports`, the TCP ports to reach it; both may be empty.

    Pods get nothing of that proxy by themselves; builds do, and so do operators that OLM installs. What `site` has itself is left alone.
    AnsibleActionFail where it cannot be read, or would put a password into the values.
    """
    try:
        proxy = api.get(PROXY) or {}
    except ApiError as error:
        raise AnsibleActionFail(
            f"Proxy cluster of OpenShift cannot be read: {error}; {REMEDY}; nothing was applied"
        ) from error
    status = proxy.get("status") or {}
    proxies = {name: status[key] for key, name in NAMES.items() if status.get(key)}
    addresses = [urlsplit(value) for name, value in proxies.items() if name != "NO_PROXY"]
    if not addresses:
        return {"site": {}, "ports": []}
    if any(each.password for each in addresses):
        raise AnsibleActionFail(
            f"Proxy cluster of OpenShift has an address with a password, which would stand in the values of the release; {REMEDY}, "
            "with a proxy that asks pods for none; nothing was applied"
        )
    missing: Json = {name: value for name, value in proxies.items() if name not in (site.get("env") or {})}
    block: Json = {"env": missing} if missing else {}
    if ((proxy.get("spec") or {}).get("trustedCA") or {}).get("name") and not site.get("caConfigMap"):
        block["caConfigMap"] = CA
    return {"site": block, "ports": sorted({_port(each) for each in addresses})}


def _port(address: SplitResult) -> int:
    return address.port or PORTS.get(address.scheme, PORTS["http"])
