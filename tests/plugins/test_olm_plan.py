"""Which release of OpenShift AI will be reached, from what is installed: upgrades are, downgrades and other people's are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.trainlab.rhoai.plugins.action.platform_plan import _second_kueue
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.olm_plan import Seen, Wanted, decide, releases
from api_server import catalog

ROOT = Path(__file__).resolve().parents[2]
VARS: dict[str, Any] = yaml.safe_load((ROOT / "roles/platform/vars/main.yml").read_text(encoding="utf-8"))
PACKAGE = "rhods-operator"


def objections(release: str, installed: str, ours: bool = True, pin: str = "") -> str:
    """Return what is said against a release where a Subscription has installed this version."""
    wanted = Wanted(
        table=VARS["__platform_table"],
        releases=releases(),
        operators=["rhoai"],
        release=release,
        channels={},
        sources={},
        versions={"rhoai": pin} if pin else {},
        approval="Automatic",
    )
    subscription: dict[str, Any] = {
        "ours": ours,
        "metadata": {"name": PACKAGE, "namespace": "redhat-ods-operator"},
        "spec": {"channel": f"stable-{release}", "source": "redhat-operators"},
        "status": {"installedCSV": f"{PACKAGE}.{installed}", "state": "AtLatestKnown"},
    }
    errors: list[str] = []
    decide(wanted, "rhoai", Seen(manifest=catalog.manifest(PACKAGE), subscription=subscription), errors, [])
    return "\n".join(errors)


@pytest.mark.parametrize(
    ("release", "installed", "more", "words"),
    [
        ("3.4", "3.3.6", {}, ""),
        ("3.4", "3.4.2", {}, ""),
        ("3.4", "3.4.9", {}, ""),
        (
            "3.3",
            "3.4.3",
            {},
            "'3.3' is wanted but rhods-operator.3.4.3 is installed, and OLM installs no older version",
        ),
        ("3.4", "3.3.6", {"ours": False}, "rhods-operator.3.3.6 is installed; set trainlab_platform_release to '3.3'"),
        ("3.4", "3.3.5", {"pin": f"{PACKAGE}.3.3.6"}, "rhods-operator.3.3.6 is what channel 'stable-3.4' installs"),
    ],
)
def test_the_release_is_that_of_the_version_that_will_be_reached(
    release: str, installed: str, more: dict[str, Any], words: str
) -> None:
    """Not the one that is being replaced."""
    said = objections(release, installed, **more)
    assert words in said if words else not said, said


NFD_CRD = "nodefeaturediscoveries.nfd.openshift.io"
BY_OLM = {"operators.coreos.com/nfd.openshift-nfd": ""}


def crd(**labels: str) -> dict[str, Any]:
    """Node Feature Discovery's CustomResourceDefinition."""
    return {"metadata": {"name": NFD_CRD, "labels": labels}}


def csv(*owned: str) -> dict[str, Any]:
    """A ClusterServiceVersion that brings these CustomResourceDefinitions."""
    return {"spec": {"customresourcedefinitions": {"owned": [{"name": name} for name in owned]}}}


@pytest.mark.parametrize(
    ("seen", "versions", "state", "words"),
    [
        (None, [], "new", ""),
        (crd(), [], "external", "exists without a Subscription of nfd"),
        (crd(**BY_OLM), [csv(NFD_CRD)], "external", "exists without a Subscription of nfd"),
        (
            crd(**BY_OLM),
            [csv("others.nfd.openshift.io"), {"spec": {}}],
            "new",
            "left over from an earlier installation",
        ),
        (crd(**{"operators.coreos.com/nfd-hub.x": ""}), [], "new", "left over from an earlier installation"),
    ],
)
def test_an_api_that_an_uninstalled_operator_left_is_no_operator(
    seen: dict[str, Any] | None, versions: list[dict[str, Any]], state: str, words: str
) -> None:
    """OLM never deletes a CustomResourceDefinition, and its label stays on it; without one somebody installed it another way."""
    wanted = Wanted(VARS["__platform_table"], releases(), ["nfd"], "", {}, {}, {}, "Automatic")
    drift: list[str] = []
    found = Seen(manifest=catalog.manifest("nfd"), crd=seen, versions=versions)
    assert decide(wanted, "nfd", found, [], drift)["state"] == state
    assert words in "".join(drift) if words else not drift


class Clusters:
    """An API server with one DataScienceCluster of this version."""

    def __init__(self, version: str, state: str, labels: dict[str, str], upstream: str = "") -> None:
        self.upstream = upstream
        spec = {"components": {"kueue": {"managementState": state}}}
        self.version, self.found = version, {"metadata": {"name": "theirs", "labels": labels}, "spec": spec}

    def path(self, api_version: str, _kind: str) -> str | None:
        return "/clusters" if api_version.endswith(f"/{self.version}") else None

    def look(self, _api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        if kind == "Service":
            return {} if (name, namespace) == ("kueue-webhook-service", self.upstream) else None
        service = {"name": "kueue-webhook-service", "namespace": self.upstream or "removed"}
        return {"spec": {"conversion": {"webhook": {"clientConfig": {"service": service}}}}}

    def items(self, path: str) -> list[dict[str, Any]]:
        assert path == "/clusters"
        return [self.found]


@pytest.mark.parametrize(
    ("version", "state", "labels", "plan", "refused"),
    [
        ("v1", "Managed", {}, "new", True),
        ("v2", "Managed", {}, "new", True),
        ("v2", "Unmanaged", {}, "new", False),
        ("v2", "Managed", {}, "found", False),
        ("v2", "Managed", {"trainlab.dev/owner": "platform"}, "new", False),
    ],
)
def test_a_second_kueue_is_not_installed_beside_somebody_elses(
    version: str, state: str, labels: dict[str, str], plan: str, refused: bool
) -> None:
    said = _second_kueue(Clusters(version, state, labels), [{"name": "kueue", "state": plan}])  # type: ignore[arg-type]
    assert bool(said) == refused and all("DataScienceCluster theirs is not trainlab's" in line for line in said)


@pytest.mark.parametrize(
    ("namespace", "refused"), [("kueue-system", True), ("redhat-ods-applications", False), ("", False)]
)
def test_nor_beside_upstreams(namespace: str, refused: bool) -> None:
    """CustomResourceDefinitions that a removed one has left refuse nothing."""
    said = _second_kueue(Clusters("v2", "Unmanaged", {}, namespace), [{"name": "kueue", "state": "new"}])  # type: ignore[arg-type]
    assert bool(said) == refused and all("runs in namespace kueue-system" in line for line in said)
