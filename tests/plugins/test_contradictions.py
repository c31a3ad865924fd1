"""What one inventory cannot request at the same time: each contradiction is reported with variable and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.contradictions import contradictions
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.olm_plan import Wanted, releases

ROOT = Path(__file__).resolve().parents[2]
CRDS = ROOT / "tests" / "crds"
VARS: dict[str, Any] = yaml.safe_load((ROOT / "roles/platform/vars/main.yml").read_text(encoding="utf-8"))
RELEASES = releases()


def said(operators: list[str] | None = None, release: str = "3.4", **more: Any) -> str:
    """Return all objections to an inventory as one text."""
    wanted = Wanted(
        table=VARS["__platform_table"],
        releases=RELEASES,
        operators=["gpu", "rhoai"] if operators is None else operators,
        release=release,
        channels={},
        sources={},
        versions={},
        approval="Automatic",
        **more,
    )
    return "\n".join(contradictions(wanted))


def off(*names: str) -> dict[str, Any]:
    """Return components that are Removed."""
    return {name: {"managementState": "Removed"} for name in names}


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"operators": ["rhoai"], "gpu_shares": 4}, ["platform_gpu_shares is set", "add gpu to platform_operators"]),
    ({"operators": ["rhoai"], "gpu_policy": {"driver": {}}}, ["platform_gpu_policy is set", "add gpu"]),
    ({"operators": ["gpu"], "components": off("ray")}, ["platform_components is set", "add rhoai"]),
    ({"gpu_shares": 0}, ["platform_gpu_shares is 0", "set it to 1"]),
    (
        {"gpu_shares": 2, "gpu_policy": {"devicePlugin": {"config": {"name": "mine"}}}},
        ["platform_gpu_shares is 2", "platform_gpu_policy.devicePlugin.config", "remove one"],
    ),
    (
        {"gpu_shares": 2, "gpu_policy": {"devicePlugin": {"enabled": False}}},
        ["platform_gpu_policy.devicePlugin.enabled is false", "platform_gpu_shares to 1"],
    ),
    ({"release": "2.25", "components": off("trainer")}, ["platform_components.trainer", "2.25", "3.3, 3.4, 3.5, 3.6"]),
    ({"components": off("trainingOperator")}, ["no component 'trainingOperator'", "trainingoperator"]),
    ({"components": {"ray": {"managementState": "managed"}}}, ["platform_components.ray", "'managed'", "Managed, Rem"]),
    ({"components": {"ray": "Managed"} | off("x")}, ["platform_components.ray is 'Managed'", "platform_components.x"]),
    ({"components": {"ray": {"managementState": "Unmanaged"}}}, ["'Unmanaged'", "Managed, Removed"]),
    ({"components": {"kueue": {"managementState": "Managed"}}}, ["exclude each other", "set it to Unmanaged"]),
    ({"components": off("trainer", "trainingoperator")}, ["platform_components.trainer", "leave one of them"]),
    ({"release": "2.25", "components": off("trainingoperator")}, ["platform_components.trainingoperator", "Managed"]),
    (
        {"release": "2.25", "training_api": "trainjob"},
        ["trainlab_site.trainingApi is trainjob", "2.25", "has no TrainJob", "to pytorchjob or auto", "3.3, 3.4"],
    ),
    (
        {"training_api": "trainjob", "components": off("trainer")},
        ["platform_components.trainer.managementState is Removed", "to pytorchjob or auto"],
    ),
    ({"training_api": "pytorchjob", "components": off("trainingoperator")}, ["to trainjob or auto"]),
    # gone in 3.6, whose API server and operator refuse it
    (
        {"release": "3.6", "training_api": "pytorchjob"},
        [
            "trainlab_site.trainingApi is pytorchjob",
            "3.6",
            "has no PyTorchJob",
            "to trainjob or auto",
            "2.25, 3.3, 3.4, 3.5",
        ],
    ),
    (
        {"release": "3.6", "components": {"trainingoperator": {"managementState": "Managed"}}},
        ["release 3.6 of OpenShift AI has no component 'trainingoperator' (2.25, 3.3, 3.4, 3.5 have it"],
    ),
    (
        {"release": "3.6", "components": off("trainer", "trainingoperator")},
        ["platform_components.trainer: none is Managed"],
    ),
    ({"storage": {"kind": "ceph"}}, ["platform_storage.kind is 'ceph'", "efs, odf, nfs"]),
    ({"storage": {"fileSystemId": "fs-1"}}, ["platform_storage.kind is None"]),
    ({"storage": {"kind": "nfs", "server": "a"}}, ["platform_storage.share is empty, but nfs needs it"]),
    (
        {"storage": {"kind": "odf", "size": "1Ti"}},
        ["platform_storage.size: unknown for odf", "deviceClass, deviceSize"],
    ),
]


@pytest.mark.parametrize(("given", "words"), WRONG, ids=lambda value: str(value)[:60])
def test_it_is_told(given: dict[str, Any], words: list[str]) -> None:
    text = said(**given)
    for word in words:
        assert word in text, text


GOOD: list[dict[str, Any]] = [
    {},
    {"operators": []},
    {"operators": ["nfd"]},
    {"gpu_shares": 4, "gpu_policy": {"driver": {"version": "580.95.05"}, "devicePlugin": {"enabled": True}}},
    {"components": off("trainer"), "training_api": "pytorchjob"},
    {"components": {"ray": {"managementState": "Managed"}, "kserve": {"rawDeploymentServiceConfig": "Headless"}}},
    {"components": off("kueue")},
    {"release": "3.6", "training_api": "trainjob", "components": off("trainingoperator")},
    {"release": "2.25", "training_api": "pytorchjob", "components": {"codeflare": {"managementState": "Managed"}}},
    {"training_api": "trainjob"},
    {"storage": {"kind": "efs", "fileSystemId": "fs-1"}},
    {"storage": {"kind": "odf"}},
]


@pytest.mark.parametrize("given", GOOD, ids=str)
def test_nothing_is_told_of_what_goes_together(given: dict[str, Any]) -> None:
    assert said(**given) == ""


@pytest.mark.parametrize("release", RELEASES)
def test_the_known_components_are_those_of_the_crd(release: str) -> None:
    text = (CRDS / f"rhoai-{release}" / "datasciencecluster.opendatahub.io_datascienceclusters.yaml").read_text(
        encoding="utf-8"
    )
    crd = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    schemas = {each["name"]: each["schema"]["openAPIV3Schema"] for each in crd["spec"]["versions"]}
    spec = schemas.get("v2", schemas["v1"])["properties"]["spec"]
    entry = RELEASES[release]
    known = spec["properties"]["components"]["properties"]
    assert {*entry["components"], *entry["optional"]} == set(known)
    obsolete = {name for name, each in known.items() if "is obsolete" in str(each.get("x-kubernetes-validations"))}
    assert {name for name, each in entry["components"].items() if each["managementState"] == "Removed"} == obsolete
