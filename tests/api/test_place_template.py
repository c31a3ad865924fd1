"""A place as a Template for user-namespace-operator: what it makes of the parameters is a place in which a user trains.

Templates are processed by OpenShift's own API server, and that operator has no package: both are played here by a replacement of
the two parameters, as rhpds/user-namespace-operator 1.0.1 has them processed.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from api_server import crds
from api_server.client import Json
from api_server.harness import Cluster
from api_server.releases import done
from api_server.training_api import free_claims
from charts.rendering import CHART, ROOT, binary
from waiting import until

pytestmark = pytest.mark.usefixtures("training")
HERE, PLACE, TEMPLATE = "user-namespace-operator", "user-nobody", "template.openshift.io/v1"
WANTED: dict[str, Any] = {
    "attendees_state": "template",
    "attendees_image_namespace": "",
    "attendees_cluster_queue": "nvidia-pool",
}


def spaces(*names: str) -> list[Json]:
    """Return namespaces."""
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]


def test_a_user_trains_in_what_the_template_makes(cluster: Cluster) -> None:
    crd = crds.reduced("template.openshift.io", "Template", ["v1"], True)
    for one in (crd, *spaces(HERE, PLACE)):
        cluster.client.apply(one)
    until(lambda: "Template" in cluster.client.resources(TEMPLATE, fresh=True))
    first = cluster.playbook("attendees", **WANTED)
    assert first.code == 0, first.text
    assert "oc patch usernamespaceconfig default" in first.text
    second = cluster.playbook("attendees", **WANTED)
    assert (second.code, second.changed) == (0, 0), second.text

    (made,) = cluster.client.items(TEMPLATE, "Template", HERE)
    assert [each["name"] for each in made["parameters"]] == ["PROJECT_NAME", "PROJECT_ADMIN_USER"]
    text = json.dumps(made["objects"])
    processed = json.loads(text.replace("${PROJECT_NAME}", PLACE).replace("${PROJECT_ADMIN_USER}", "nobody"))
    assert processed and {each["metadata"]["namespace"] for each in processed} == {PLACE}, "nothing of the cluster"
    for one in processed:
        cluster.client.apply(one)

    env = {"PATH": os.environ["PATH"], "HOME": str(cluster.server.folder), "KUBECONFIG": str(cluster.server.nobody)}
    line = [str(binary("helm")), "install", "quick", str(CHART), "-n", PLACE, "-f", str(ROOT / "values" / "quick.yaml")]
    done(subprocess.run(line, env=env, capture_output=True, text=True, check=False))
    (job,) = cluster.client.items("kubeflow.org/v1", "PyTorchJob", PLACE)
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "trainlab"

    gone = cluster.playbook("attendees", attendees_state="absent")
    assert gone.code == 0, gone.text
    assert cluster.client.items(TEMPLATE, "Template", HERE) == []
    for one in (*spaces(HERE, PLACE), crd):
        cluster.client.delete(one)
    until(lambda: (free_claims(cluster.client), not cluster.client.look("v1", "Namespace", PLACE))[1])
    until(lambda: "Template" not in cluster.client.resources(TEMPLATE, fresh=True))


def test_a_volume_of_models_is_refused(cluster: Cluster) -> None:
    error = cluster.playbook("attendees", **WANTED, attendees_models_claim="shared/models").error
    assert "attendees_models_claim needs a volume for each namespace" in error and "nothing was applied" in error
