"""playbooks/image.yml on OpenShift: a real API server with a test-only build controller; see builds.py."""

from __future__ import annotations

import base64
import io
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import builds, crds
from api_server.harness import Cluster
from api_server.server import Server
from waiting import until

VALUES = ["values/survival.yaml", "values/local/survival.yaml"]
SPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}
PRODUCT = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "redhat-ods-applications"}}
VLLM = f"registry.redhat.io/rhaii/vllm-cuda-rhel9@sha256:{'3' * 64}"
RIGHTS = "rbac.authorization.k8s.io/v1"
TEMPLATE: dict[str, Any] = {  # as odh-model-controller of 3.5 makes it (config/runtimes/vllm/vllm-cuda-template.yaml)
    "apiVersion": "template.openshift.io/v1",
    "kind": "Template",
    "metadata": {
        "name": "vllm-cuda-runtime-template",
        "namespace": "redhat-ods-applications",
        "labels": {"opendatahub.io/dashboard": "true", "opendatahub.io/ootb": "true"},
        "annotations": {"opendatahub.io/apiProtocol": "REST", "opendatahub.io/modelServingSupport": '["single"]'},
    },
    "objects": [
        {
            "apiVersion": "serving.kserve.io/v1alpha1",
            "kind": "ServingRuntime",
            "metadata": {"name": "vllm-cuda-runtime", "labels": {"opendatahub.io/dashboard": "true"}},
            "spec": {
                "containers": [
                    {
                        "name": "kserve-container",
                        "image": VLLM,
                        "command": ["python", "-m", "vllm.entrypoints.openai.api_server"],
                        "args": ["--port=8080", "--model=/mnt/models", "--served-model-name={{.Name}}"],
                    }
                ],
                "multiModel": False,
                "supportedModelFormats": [{"name": "vLLM", "autoSelect": True}],
            },
        }
    ],
    "parameters": [],
}


@pytest.fixture
def builder(server: Server, cluster: Cluster, tmp_path: Path) -> Iterator[builds.Builder]:
    """The build controller, and a namespace for the image; all of it is gone afterwards."""
    builds.serve(cluster.client)
    cluster.client.apply(SPACE)
    cluster.client.apply(PRODUCT)
    cluster.client.apply(TEMPLATE)
    one = builds.Builder(server.kubeconfig, tmp_path)
    yield one
    one.close()
    things = [*builds.definitions(), SPACE, PRODUCT]
    for thing in things:
        cluster.client.delete(thing)
    named = [(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in things]
    until(lambda: not any(cluster.client.look(*each) for each in named), 60)


def given(builder: builds.Builder, **more: Any) -> dict[str, Any]:
    """The variables of a run."""
    return {
        "trainlab_kubeconfig": str(builder.kubeconfig),
        "trainlab_namespace": "demo",
        "trainlab_release": "survival",
        "trainlab_values": VALUES,
        "trainlab_image_source": "checkout",
        "image_base": "registry.example.com/base:1",
        "image_timeout": 60,
    } | more


def test_checkout_is_sent_built_and_its_digest_written(
    cluster: Cluster, builder: builds.Builder, tmp_path: Path
) -> None:
    """Check mode builds nothing; the digest is handed on; the second run builds nothing; a failure shows the log's end."""
    site = tmp_path / "image.yaml"
    read = {"image_vllm_template": "vllm-cuda-runtime-template"}
    relative = os.path.relpath(site, os.environ["PWD"])
    wanted = given(builder, image_site_file=relative, image_pull_namespaces=["other"], **read)
    planned = cluster.playbook("image", "--check", **wanted)
    assert planned.code == 0, planned.text
    assert builder.started == 0
    assert cluster.client.items(builds.BUILD, "BuildConfig") == []

    first = cluster.playbook("image", **wanted)
    assert first.code == 0, first.text
    assert builder.started == 1
    assert {"images/trainer/Containerfile", "training/src/trainlab/run/launch.py", "training/pyproject.toml"} <= set(
        builder.sent[0]
    )
    assert not any("__pycache__" in each or each.startswith("training/tests") for each in builder.sent[0])
    text = site.read_text(encoding="utf-8")
    images = yaml.safe_load(text)["site"]["images"]
    assert re.fullmatch(rf"{builds.REGISTRY}/demo/trainlab-trainer@sha256:[0-9a-f]{{64}}", images["trainer"])
    assert images["vllm"] == VLLM, "of the release's own Template"
    config = cluster.client.look(builds.BUILD, "BuildConfig", "trainlab-trainer", "demo")
    assert config
    assert config["spec"]["mountTrustedCA"] is True, "builds trust what the cluster trusts"
    resources = config["spec"]["resources"]
    assert resources["requests"] == {"cpu": "1", "memory": "4Gi", "ephemeral-storage": "30Gi"}
    assert resources["limits"] == {"memory": "8Gi"}
    docker = config["spec"]["strategy"]["dockerStrategy"]
    assert docker["dockerfilePath"] == "images/trainer/Containerfile"
    assert {"name": "BASE", "value": "registry.example.com/base:1"} in docker["buildArgs"]
    pull = cluster.client.look(RIGHTS, "RoleBinding", "trainlab-trainer-pull-demo", "demo")
    assert pull and [each["name"] for each in pull["subjects"]] == ["system:serviceaccounts:other"]

    second = cluster.playbook("image", **wanted)
    assert (second.code, second.changed) == (0, 0), second.text
    assert builder.started == 1

    builder.fault = "build-failed"
    wanted["image_base"] = "registry.example.com/base:2"
    failed = cluster.playbook("image", **wanted)
    error = failed.error
    assert "build demo/trainlab-trainer-2: Failed (DockerBuildFailed: Dockerfile build strategy has failed.)" in error
    assert "ERROR: no matching distribution" in error
    assert "STEP 10 " not in error, "only the end of the log"
    assert {"name": "PIP_ARGS", "value": ""} in docker["buildArgs"], "no proxy, no authority of its own"
    builder.fault = ""
    kind = crds.reduced("config.openshift.io", "Proxy", ["v1"], False, "proxies")
    proxy = {"apiVersion": "config.openshift.io/v1", "kind": "Proxy", "metadata": {"name": "cluster"}}
    cluster.client.apply(kind)
    until(lambda: cluster.client.path("config.openshift.io/v1", "Proxy", "cluster") is not None)
    cluster.client.apply(proxy | {"spec": {"trustedCA": {"name": "user-ca-bundle"}}})
    cluster.client.status(proxy, {"httpsProxy": "http://proxy.example.com:3128"})
    more = {"image_pip_args": "--retries=9", "image_tracking": True}
    last = cluster.playbook("image", **wanted, trainlab_cluster_proxy=True, **more)
    assert last.code == 0, last.text
    assert builder.started == 3
    config = cluster.client.look(builds.BUILD, "BuildConfig", "trainlab-trainer", "demo")
    pip = {"name": "PIP_ARGS", "value": "--retries=9 --cert=/etc/pki/tls/certs/ca-bundle.crt"}
    tracking = {"name": "TRACKING", "value": "yes"}
    assert config and {str(pip), str(tracking)} < {
        str(each) for each in config["spec"]["strategy"]["dockerStrategy"]["buildArgs"]
    }
    assert tracking not in docker["buildArgs"], "only on request"
    cluster.client.delete(kind)
    assert site.read_text(encoding="utf-8") != text


def test_vllm_is_that_of_the_installed_release_unless_the_site_names_one(
    cluster: Cluster, builder: builds.Builder, tmp_path: Path
) -> None:
    """The phase at full scale, which vLLM serves; without the Template the play says which image there is."""
    site = tmp_path / "image.yaml"
    trainer = {"trainer": "registry.example.com/trainer:1"}
    wanted = given(builder, trainlab_values=VALUES[:1], trainlab_image_source="none", image_site_file=str(site))

    def images(**named: str) -> tuple[str, dict[str, str]]:
        done = cluster.playbook("image", **wanted, trainlab_site={"images": trainer | named})
        assert done.code == 0, done.text
        found: dict[str, str] = yaml.safe_load(site.read_text(encoding="utf-8"))["site"]["images"]
        return " ".join(done.text.split()), found

    assert images()[1] == trainer | {"vllm": VLLM}
    assert images(vllm="registry.example.com/vllm:2")[1] == trainer | {"vllm": "registry.example.com/vllm:2"}
    cluster.client.delete(TEMPLATE)
    said, found = images()
    assert found == trainer
    assert (
        "Template redhat-ods-applications/vllm-cuda-runtime-template is not there; vLLM is docker.io/vllm/vllm-openai@sha256:"
        in said
    )


def test_cut_off_and_git_and_wrong_input(cluster: Cluster, builder: builds.Builder) -> None:
    """A repeated run continues its build; git needs no upload; what cannot work is reported before any change."""
    wrong: dict[str, tuple[dict[str, Any], str]] = {
        "base": ({"image_base": ""}, "image_base is empty; name an image with Python 3.11 to 3.13"),
        "address": ({"trainlab_image_source": "git"}, "image_git_uri is empty"),
        "template": (
            {"image_vllm_template": "vllm-cpu"},
            "Template redhat-ods-applications/vllm-cpu was not found; name one that meta/releases.yml has",
        ),
        "two": ({"trainlab_image_build": True}, "trainlab_image_build and trainlab_image_source ask for two builds"),
        "push": (
            {"trainlab_image_push": "r.example.com/x"},
            "trainlab_image_push and trainlab_image_source ask for two",
        ),
        "login": (
            {"image_pip_args": "--index-url=https://user:token@index.example.com/simple"},
            "image_pip_args has an address with a login, which everybody could read",
        ),
        "uri": (
            {"trainlab_image_source": "git", "image_git_uri": "https://user:token@git.example.com/x.git"},
            "image_git_uri has a login, which everybody could read who may see the build",
        ),
        "namespace": ({"image_namespace": "nowhere"}, "run playbooks/workspace.yml first, or set image_namespace"),
    }
    errors = cluster.refusals("image", {what: variables for what, (variables, _) in wrong.items()}, **given(builder))
    assert {what: error for what, error in errors.items() if wrong[what][1] not in error} == {}
    assert cluster.client.items(builds.BUILD, "BuildConfig") == []

    builder.fault = "hang"
    git = given(
        builder, trainlab_image_source="git", image_git_uri="https://git.example.com/trainlab.git", image_git_ref="v1"
    )
    cut = cluster.playbook("image", **git | {"image_timeout": 4})
    assert "is not done after 4 s" in cut.error
    builder.fault = ""
    again = cluster.playbook("image", **git)
    assert again.code == 0, again.text
    assert builder.started == 1
    assert builder.sent == []
    config = cluster.client.look(builds.BUILD, "BuildConfig", "trainlab-trainer", "demo")
    assert config and config["spec"]["source"]["git"] == {"uri": "https://git.example.com/trainlab.git", "ref": "v1"}
    moved = cluster.playbook("image", **git | {"image_again": True})
    assert moved.code == 0, moved.text
    assert builder.started == 2


def test_inline_source_is_all_that_the_cluster_needs(cluster: Cluster, builder: builds.Builder) -> None:
    """Nothing is sent; the ConfigMap holds what the Dockerfile copies; again nothing is built; the undo takes both."""
    wanted = given(builder, trainlab_image_source="inline")
    first = cluster.playbook("image", **wanted)
    assert first.code == 0, first.text
    assert builder.sent == [] and builder.started == 1
    config = cluster.client.look(builds.BUILD, "BuildConfig", "trainlab-trainer", "demo")
    assert config and config["spec"]["source"]["type"] == "Dockerfile"
    assert config["spec"]["source"]["configMaps"] == [{"configMap": {"name": "trainlab-trainer-source"}}]
    held = cluster.client.look("v1", "ConfigMap", "trainlab-trainer-source", "demo")
    assert held
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(held["binaryData"]["context.tar.gz"]))) as archive:
        names = set(archive.getnames())
    copied = re.findall(r"COPY --from=context /context/(\S+)", config["spec"]["source"]["dockerfile"])
    assert {"data", "training"} <= set(copied)
    for path in copied:
        assert any(name == path or name.startswith(f"{path}/") for name in names), path
    second = cluster.playbook("image", "-v", **wanted)
    assert (second.code, second.changed) == (0, 0), second.text
    assert builder.started == 1


def test_no_registry_and_no_openshift(cluster: Cluster, builder: builds.Builder) -> None:
    """A registry in state Removed is detected before a build is started."""
    builder.fault = "no-registry"
    error = cluster.playbook("image", **given(builder)).error
    assert "image registry is Removed or has no storage" in error
    assert builder.started == 0
    for definition in builds.definitions():
        cluster.client.delete(definition)
    error = cluster.playbook("image", **given(builder)).error
    assert "does not serve build.openshift.io/v1" in error


def test_undo(cluster: Cluster, builder: builds.Builder) -> None:
    """What was created for a build goes, what others created stays; where nothing was built nothing is done."""
    built = cluster.playbook("image", **given(builder, trainlab_image_source="inline", image_pull_namespaces=["other"]))
    assert built.code == 0, built.text
    others = {
        "apiVersion": builds.IMAGE,
        "kind": "ImageStream",
        "metadata": {"name": "others", "namespace": "demo", "labels": {"app.kubernetes.io/managed-by": "trainlab"}},
    }
    cluster.client.apply(others)
    wanted = {
        "ACTION": "remove",
        "ocp4_workload_trainlab_kubeconfig": str(builder.kubeconfig),
        "ocp4_workload_trainlab_namespace": "demo",
        "ocp4_workload_trainlab_steps": ["image"],
    }
    marks = {"app.kubernetes.io/part-of": "trainlab", "app.kubernetes.io/instance": "survival-compare"}
    user = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "survival-compare-1", "namespace": "demo", "labels": marks},
    }
    cluster.client.apply(user)
    kept = cluster.playbook("ocp4_workload", **wanted)
    assert (kept.code, kept.changed) == (0, 0) and "others run it (survival-compare-1)" in " ".join(
        kept.text.split()
    ), kept.text
    cluster.client.delete(user)
    team = {
        "apiVersion": RIGHTS,
        "kind": "RoleBinding",
        "metadata": {
            "name": "trainlab-trainer-pull-team",
            "namespace": "demo",
            "labels": {"app.kubernetes.io/component": "image-pull", "app.kubernetes.io/instance": "team"},
        },
        "roleRef": {"apiGroup": RIGHTS.partition("/")[0], "kind": "ClusterRole", "name": "system:image-puller"},
    }
    cluster.client.apply(team)
    for other in (False, True):
        undone = cluster.playbook("ocp4_workload", **wanted)
        assert undone.code == 0 and (undone.changed == 0) is other, undone.text
        assert "others run it (trainlab-trainer-pull-team)" in " ".join(undone.text.split())
        assert cluster.client.look(builds.BUILD, "BuildConfig", "trainlab-trainer", "demo")
        assert cluster.client.look(RIGHTS, "RoleBinding", "trainlab-trainer-pull-demo", "demo") is None
    cluster.client.delete(team)
    planned = cluster.playbook("ocp4_workload", "--check", **wanted)
    assert planned.code == 0 and planned.changed > 0, planned.text
    assert cluster.client.look(builds.BUILD, "BuildConfig", "trainlab-trainer", "demo")
    undone = cluster.playbook("ocp4_workload", **wanted)
    assert undone.code == 0 and undone.changed > 0, undone.text
    assert cluster.client.items(builds.BUILD, "BuildConfig") == []
    assert cluster.client.look("v1", "ConfigMap", "trainlab-trainer-source", "demo") is None
    assert [each["metadata"]["name"] for each in cluster.client.items(builds.IMAGE, "ImageStream")] == ["others"]
    assert cluster.client.look(RIGHTS, "RoleBinding", "trainlab-trainer-pull-demo", "demo") is None
    for definition in builds.definitions():
        cluster.client.delete(definition)
    again = cluster.playbook("ocp4_workload", **wanted)
    assert (again.code, again.changed) == (0, 0), again.text
