"""playbooks/image.yml: vLLM's image is one for the phase, CPU or GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugins.keeping import Kept
from plugins.test_playbooks import ansible, error_of

IMAGES = {"vllm-cuda-runtime-template": "vllm-cuda-rhel9", "vllm-cpu-x86-runtime-template": "vllm-cpu-rhel9"}


def template(name: str) -> dict[str, Any]:
    """A Template of OpenShift AI, as far as it is read."""
    image = f"registry.redhat.io/rhaii/{IMAGES[name]}@sha256:{'3' * 64}"
    runtime = {"kind": "ServingRuntime", "spec": {"containers": [{"image": image}]}}
    metadata = {"name": name, "namespace": "redhat-ods-applications"}
    return {"apiVersion": "template.openshift.io/v1", "kind": "Template", "metadata": metadata, "objects": [runtime]}


@pytest.mark.rest
@pytest.mark.parametrize(
    ("name", "gpus", "release", "words"),
    [
        (
            "vllm-cuda-runtime-template",
            0,
            "3.3",
            "image_vllm_template is vllm-cuda-runtime-template, but phase.serve.gpus is 0; OpenShift AI 3.3 has no Template for that: "
            "empty it and set trainlab_site.images.vllm, or phase.serve.gpus to 1; nothing was applied",
        ),
        (
            "vllm-cpu-x86-runtime-template",
            1,
            "",
            "phase.serve.gpus is 1; set it to vllm-cuda-runtime-template, or phase.serve.gpus to 0; nothing was applied",
        ),
    ],
)
def test_vllms_template_has_to_be_one_for_the_phase(
    cluster: Any, name: str, gpus: int, release: str, words: str
) -> None:
    """The values' own rule knows the image of vLLM's project only, not those of a Template."""
    Kept(cluster).keep(*map(template, IMAGES))
    given = {
        "trainlab_kubeconfig": str(cluster.kubeconfig),
        "trainlab_values": ["values/survival.yaml"],
        "trainlab_phase_overrides": {"serve": {"gpus": gpus}},
        "trainlab_site": {"images": {"trainer": "registry.example.com/trainlab/trainer:0.1.0"}},
        "trainlab_image_build": False,
        "trainlab_platform_release": release,
        "image_vllm_template": name,
        "image_site_file": "",
    }
    said = " ".join(error_of(ansible("playbooks/image.yml", "-e", json.dumps(given))).split())
    assert words in said


@pytest.mark.rest
@pytest.mark.parametrize("openshift", [True, False])
def test_a_missing_template_is_said_only_where_openshift_has_templates(cluster: Any, openshift: bool) -> None:
    kept = Kept(cluster)
    if not openshift:
        kept["/apis"]["groups"] = [one for one in kept["/apis"]["groups"] if one["name"] != "template.openshift.io"]
        del kept["/apis/template.openshift.io/v1"]
    given = {
        "trainlab_kubeconfig": str(cluster.kubeconfig),
        "trainlab_values": ["values/survival.yaml"],
        "trainlab_site": {"images": {"trainer": "registry.example.com/trainlab/trainer:0.1.0"}},
        "trainlab_image_build": False,
        "image_site_file": "",
    }
    done = ansible("playbooks/image.yml", "-e", json.dumps(given))
    assert done.returncode == 0, done.stdout + done.stderr
    said = "vllm-cuda-runtime-template is not there; vLLM is docker.io/vllm/" in " ".join(done.stdout.split())
    assert said == openshift, done.stdout
