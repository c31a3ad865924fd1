"""The CRDs in the tests are the real ones, each with its source, and every release of OpenShift AI has its own."""

import re

import pytest
from api_server import catalog, crds


@pytest.mark.parametrize("package", ["gpu-operator-certified", "nfd", "job-set", "rhods-operator"])
def test_crds_are_the_true_ones(package: str) -> None:
    for channel in catalog.PACKAGES[package].channels.values():
        for crd in catalog.owned(package, channel):
            if crd["spec"]["group"] == "services.platform.opendatahub.io":  # reduced: no role reads what is in them
                continue
            for version in crd["spec"]["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                assert schema["properties"]["spec"] and "x-kubernetes-preserve-unknown-fields" not in schema


def test_every_folder_has_its_source() -> None:
    told = re.findall(
        r"^\| `([a-z0-9.-]+)` .* ([0-9a-f]{7,12}) \|$", (crds.STORED / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert {name for name, _ in told} == {path.name for path in crds.STORED.iterdir() if path.is_dir()}
