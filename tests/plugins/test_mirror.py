"""playbooks/mirror.yml: what oc-mirror has to bring to a cluster without a way out."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.trainlab.rhoai.plugins.filter.image_set import image_set

from .test_playbooks import ROOT, ansible, error_of

TABLE: dict[str, Any] = yaml.safe_load((ROOT / "roles/platform/vars/main.yml").read_text())["__platform_table"]
PLAYBOOK = ("-i", "inventory/openshift", "playbooks/mirror.yml", "-e", "platform_mirror_openshift=4.20")


@pytest.mark.rest
def test_the_documented_command_lists_operators_and_images(tmp_path: Path) -> None:
    """As the inventory names them, with the images that the other playbooks use, each by digest; and prints how to go on."""
    dest = tmp_path / "a folder" / "imageset.yaml"
    given = ("-e", json.dumps({"platform_mirror_dest": str(dest), "platform_channels": {"gpu": "v26.9"}}))
    done = ansible(*PLAYBOOK, *given)
    assert done.returncode == 0, done.stdout
    mirror = yaml.safe_load(dest.read_text())["mirror"]
    channels = {
        package["name"]: (catalog["catalog"], package["defaultChannel"], [one["name"] for one in package["channels"]])
        for catalog in mirror["operators"]
        for package in catalog["packages"]
    }
    red_hat, certified = (f"registry.redhat.io/redhat/{name}-operator-index:v4.20" for name in ("redhat", "certified"))
    assert channels["rhods-operator"] == (red_hat, "stable-3.5", ["stable-3.5"])
    assert channels["gpu-operator-certified"] == (certified, "v26.9", ["v26.9"])
    assert set(channels) == {
        TABLE[name]["package"] for name in ("nfd", "gpu", "cert_manager", "jobset", "kueue", "rhoai")
    }
    images = [one["name"] for one in mirror["additionalImages"]]
    base = yaml.safe_load((ROOT / "roles/image/defaults/main.yml").read_text())["image_base"]
    vllm = json.loads((ROOT / "charts/trainjob/defaults.json").read_text())["site"]["images"]["vllm"]
    assert images == [base, vllm] and all("@sha256:" in image for image in images)

    said = done.stdout
    (command,) = re.findall(r"^ +(oc mirror .*)$", said, re.M)
    workspace = f"file://{dest.with_suffix('')}"
    words = ["oc", "mirror", "--v2", "-c", str(dest), "--workspace", workspace, "docker://REGISTRY"]
    assert shlex.split(command) == words
    sources = json.loads(re.findall(r"platform_sources: (.*)", said)[0])
    assert (
        sources["gpu"] == "cs-certified-operator-index-v4-20" and sources["rhoai"] == "cs-redhat-operator-index-v4-20"
    )
    again = ansible(*PLAYBOOK, *given)
    assert "changed=0" in again.stdout
    refused = ansible(*PLAYBOOK[:-2])
    assert (
        error_of(refused)
        == "platform_mirror_openshift is ''; set it to the OpenShift release of the cluster, as 4.20; nothing was written"
    )


@pytest.mark.rest
def test_a_relative_file_is_where_the_command_was_started(tmp_path: Path) -> None:
    """As the default one, whose folder is made there and not beside the playbook; the printed line names it."""
    play = tmp_path / "plays" / "mirror.yml"
    play.parent.mkdir()
    play.write_bytes((ROOT / "playbooks" / "mirror.yml").read_bytes())
    inventory = ("-i", str(ROOT / "inventory" / "openshift"))
    done = ansible(*inventory, str(play), *PLAYBOOK[3:], cwd=tmp_path)
    file = tmp_path / "artifacts" / "imageset.yaml"
    assert done.returncode == 0 and file.is_file(), done.stdout + done.stderr
    assert f" -c {file} --workspace file://{file.with_suffix('')} " in done.stdout


def test_an_image_without_a_digest_is_refused() -> None:
    """A tag may be another image by the time the mirror is asked for it."""
    digest = f"registry.example.com/vllm@sha256:{'4' * 64}"
    assert image_set([digest], "4.20", TABLE, ["rhoai"], "3.4", {})["wrong"] == []
    (said,) = image_set(["registry.example.com/base:1", digest], "4.20", TABLE, ["rhoai"], "3.4", {})["wrong"]
    assert said == (
        "image registry.example.com/base:1 is named without a digest; set image_base or trainlab_site.images.vllm, whichever names "
        "it, to one with @sha256:"
    )


@pytest.mark.parametrize(
    ("operators", "openshift", "text"),
    [
        (["rhoai"], "", "platform_mirror_openshift is ''; set it to the OpenShift release of the cluster, as 4.20"),
        (["rhoai"], "4.18", "platform_mirror_openshift is 4.18, but OpenShift AI 3.4 is supported on 4.19 to 4.22"),
        (["odf"], "4.20", "platform_operators: odf: its packages depend on others"),
        (["rhaoi"], "4.20", "platform_operators: unknown operator 'rhaoi'; known: cert_manager"),
    ],
)
def test_what_cannot_be_mirrored_is_a_sentence(operators: list[str], openshift: str, text: str) -> None:
    assert text in "; ".join(image_set([], openshift, TABLE, operators, "3.4", {})["wrong"])
