"""inventory/kubernetes takes somebody's own cluster from nothing to a served model and back; the image comes from a registry.

The cluster is the embedded one as anybody's: no OpenShift API, its default StorageClass, a kubeconfig of its own. The registry
is Distribution with TLS by an authority of its own and a login. What the nodes have of the image's layers already is not pulled.
What follows the first site.yml comes as Automation Platform runs it: the installed collection's playbooks in an empty folder, by the
variables of a credential and with an empty home.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import registry

from e2e import machine
from e2e.commands import KEEP, NAMESPACE, Collection, installed, objects

pytestmark = [pytest.mark.e2e, pytest.mark.tier, pytest.mark.timeout(5400)]
PHASE, SECRET = "quick", "registry"
VOLUME_SECONDS = 120
"""In which the provisioner removes the volumes of the claims that are gone."""
VOLUME = {"accessMode": "ReadWriteOnce"}
"""What any default class can do; one pod trains."""


@dataclass(frozen=True)
class Own:
    """Somebody's cluster and registry."""

    kubeconfig: Path
    registry: registry.Registry
    login: Path


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    """One node, which trusts the registry's authority."""
    if not KEEP:
        machine.cluster("down")
        machine.cluster("up", "--nodes", "1")
        machine.cluster("operators", "local-path-provisioner", "training-operator", "kserve")
    folder = tmp_path_factory.mktemp("own")
    kubeconfig = folder / "my clusters" / "kube config"
    kubeconfig.parent.mkdir()
    shutil.copy(machine.KUBECONFIG, kubeconfig)
    with registry.Registry(folder / "registry", f"{machine.NODES}.1", listen="0.0.0.0") as one:
        trust(one)
        yield Own(kubeconfig, one, one.login(folder / "auth.json"))
    if not KEEP:
        machine.cluster("down")


def trust(one: registry.Registry) -> None:
    """Give the authority to the node's containerd, docs/hosts.md there."""
    at = f"etc/containerd/certs.d/{one.host}"
    folder = machine.FOLDER / "nodes" / "n1" / "root" / at
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(one.authority, folder / "ca.crt")
    (folder / "hosts.toml").write_text(f'server = "https://{one.host}"\nca = "/{at}/ca.crt"\n', encoding="utf-8")


def test_from_a_cluster_to_a_served_model_and_back(own: Own, tmp_path: Path) -> None:
    """site.yml, site.yml again, teardown.yml: nothing is left but what was there."""
    host = own.registry.host
    given = {
        "phase": PHASE,
        "trainlab_site": {"storage": {"models": VOLUME, "runs": VOLUME}, "images": {"pullSecret": SECRET}},
        "trainlab_image_push": f"{host}/team/trainer",
        "image_push_ca": str(own.registry.authority),
        "image_push_auth_file": str(own.login),
        "image_site_file": str(tmp_path / "site.yaml"),
        "report_dest": str(tmp_path),
    }

    def played(source: Collection, name: str, connection: dict[str, str | None], **more: Any) -> str:
        values = [str(source.root / "values" / file) for file in (f"{PHASE}.yaml", f"local/{PHASE}.yaml")]
        return source.play("kubernetes", name, connection, given | {"trainlab_values": values} | more)

    machine.kubectl("create", "namespace", NAMESPACE)
    login = (f"--docker-server={host}", f"--docker-username={registry.USER}", f"--docker-password={registry.PASSWORD}")
    machine.kubectl("-n", NAMESPACE, "create", "secret", "docker-registry", SECRET, *login)
    assert "openshift.io" not in machine.kubectl("api-versions")
    before = there()

    said = played(Collection(), "site", {"KUBECONFIG": str(own.kubeconfig)})
    assert f"push to {host}/team/trainer:" in said
    assert re.search(r"Asked just now: .*?\n +base +\w.*?\n +tuned +\w", said, re.DOTALL), "the served model answers"
    image = yaml.safe_load((tmp_path / "site.yaml").read_text(encoding="utf-8"))["site"]["images"]["trainer"]
    name, _, digest = image.partition("@")
    assert name == f"{host}/team/trainer"
    _, head = own.registry.get(f"team/trainer/manifests/{digest}", method="HEAD")
    assert head["Docker-Content-Digest"] == digest
    pods = objects("pods")
    assert pods and {pod["spec"]["containers"][0]["image"] for pod in pods} == {image}, "pushed, and run"
    (run,) = tmp_path.glob(f"{PHASE}-*")
    gate = json.loads((run / "gate.json").read_text(encoding="utf-8"))
    assert gate["promoted"] and gate["verdict"] == "better", gate["reasons"]
    assert {one["spec"]["storageClassName"] for one in objects("pvc")} == {"local-path"}, "the default class"
    (server,) = objects("inferenceservices")
    assert [one["status"] for one in server["status"]["conditions"] if one["type"] == "Ready"] == ["True"]

    platform = credential(own.kubeconfig, tmp_path / "ca.crt")
    (tmp_path / "empty").mkdir()
    collection = installed(tmp_path / "empty")
    again = played(collection, "site", platform)
    assert re.findall(r"changed=(\d+)", again) == ["0"], again[-4000:]
    assert "push to" not in again and str(platform["K8S_AUTH_API_KEY"]) not in again

    played(collection, "teardown", platform, teardown_volumes=True)
    end = time.monotonic() + VOLUME_SECONDS
    while (left := there()) != before and time.monotonic() < end:
        time.sleep(1)
    assert left == before


def credential(kubeconfig: Path, authority: Path) -> dict[str, str | None]:
    """What Automation Platform's `OpenShift or Kubernetes API Bearer Token` puts into the environment, with a home that has nothing.

    ansible/awx-plugins c7fc0a10a526, module awx_plugins.credentials.injectors, lines 143 to 158.
    """
    machine.kubectl("-n", "default", "create", "serviceaccount", "robot")
    machine.kubectl(
        "create", "clusterrolebinding", "robot", "--clusterrole=cluster-admin", "--serviceaccount=default:robot"
    )
    server = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    home = authority.with_name("home")
    home.mkdir()
    authority.write_bytes(base64.b64decode(server["certificate-authority-data"]))
    return {
        "K8S_AUTH_HOST": server["server"],
        "K8S_AUTH_API_KEY": machine.kubectl("-n", "default", "create", "token", "robot", "--duration=2h").strip(),
        "K8S_AUTH_VERIFY_SSL": "True",
        "K8S_AUTH_SSL_CA_CERT": str(authority),
        "KUBECONFIG": None,
        "HOME": str(home),
    }


def there() -> list[str]:
    """Return what a playbook could leave behind, in the namespace and outside."""
    spaced = "pods,pvc,jobs,configmaps,secrets,services,serviceaccounts,roles,rolebindings,deployments,daemonsets"
    served = machine.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    kinds = [spaced, *(kind for kind in served if kind.endswith((".kubeflow.org", ".x-k8s.io", ".kserve.io")))]
    found = machine.kubectl("-n", NAMESPACE, "get", ",".join(kinds), "-o", "name")
    return sorted((found + machine.kubectl("get", "namespaces,clusterroles,pv,storageclasses", "-o", "name")).split())
