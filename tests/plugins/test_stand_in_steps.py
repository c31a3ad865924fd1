"""The stand-ins for operators, without a server: they report what their files say, and what a bundle says in the place of these."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import observing
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import platform_ready as ready
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.gpu_inventory import NVIDIA_LABELS, judge_gpus
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.recording import Place, Recording, Seen, still
from api_server import bundles, catalog, olm, recorded
from api_server.harness import node
from api_server.memory import Memory
from api_server.operands import Operands
from api_server.policies import Policies

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
TABLES = yaml.safe_load((ROOT / "roles/platform/vars/main.yml").read_text(encoding="utf-8"))
ROUNDS = 40
GPU, GPUS = {NVIDIA_LABELS[0]: "true", "feature.node.kubernetes.io/system-os_release.ID": "rhel"}, "nvidia.com/gpu"
GENERAL = ("ProvisioningProgress", "ModulesReady")
REMOVED = {"managementState": "Removed"}
CSV = "ClusterServiceVersion"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Webhooks are the API server's; test_stand_ins.py has them."""
    monkeypatch.setattr(Policies, "step", lambda *_args: None)
    yield


class Clusters:
    """A cluster in memory on which operators are installed and their resources made, as the role does."""

    def __init__(self, read: Callable[[str], Json] = recorded.read) -> None:
        """With the statuses that `read` returns."""
        self.client, self.faults = Memory(), dict[str, str]()
        self._actors = (
            olm.Olm(self.client, self.faults, 0, read),  # type: ignore[arg-type]
            Operands(self.client, self.faults, "", read),  # type: ignore[arg-type]
        )

    def install(self, package: str, channel: str, succeeds: bool = True) -> str:
        """Subscribe; return the ClusterServiceVersion once it has succeeded, nothing where it does not."""
        place = {"name": package, "namespace": package}
        targets = {"targetNamespaces": [package]} if catalog.PACKAGES[package].mode == catalog.OWN else {}
        spec = {"name": package, "channel": channel, "source": catalog.PACKAGES[package].source}
        self.client.apply(
            {"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup", "metadata": place, "spec": targets}
        )
        self.client.apply({"apiVersion": olm.OLM, "kind": "Subscription", "metadata": place, "spec": spec})
        self.rounds()
        if not succeeds:
            return ""
        found = self.client.look(olm.OLM, "Subscription", package, package) or {}
        csv = str(found["status"]["installedCSV"])
        assert (self.client.look(olm.OLM, CSV, csv, package) or {})["status"]["phase"] == "Succeeded"
        return csv

    def rounds(self, count: int = ROUNDS) -> None:
        """Let everybody act."""
        for _round in range(count):
            for actor in self._actors:
                actor.step()

    def said(self, kind: str, name: str = "") -> list[Json]:
        """Return the statuses and labels that an object reported, in their order, equal ones once."""
        return [thing for one, _space, own, thing in self.client.told if one == kind and name in ("", own)]

    def bring(self, operator: str, release: str = "") -> None:
        """Install an operator and make its resource, as the role does."""
        entry = TABLES["__platform_table"][operator]
        channels = catalog.PACKAGES[entry["package"]].channels
        fitting = [name for name, csv in channels.items() if release in ("", catalog.release_of(csv))]
        csv = self.install(entry["package"], fitting[-1])
        resource = (
            TABLES["__platform_queued"][0] if operator == "kueue" else TABLES["__platform_resources"].get(operator)
        )
        if resource:
            spec: Json = {}
            version = resource["apiVersion"]
            if operator == "rhoai":
                own = catalog.release_of(csv)
                spec, version = {"components": catalog.RELEASES[own]["components"]}, dsc(own)
            self.client.apply(
                {"apiVersion": version, "kind": resource["kind"], "spec": spec}
                | {"metadata": {"name": resource["name"], "namespace": resource.get("namespace", "")}}
            )
        self.rounds()


def dsc(release: str) -> str:
    """Return the version of OpenShift AI's API."""
    return f"datasciencecluster.opendatahub.io/{'v1' if release == '2.25' else 'v2'}"


OPERATORS = {"gpu-operator": "gpu", "cert-manager": "cert_manager"}
"""Those whose file is not named like them in the role."""
FILES = sorted(path.stem for path in recorded.FOLDER.glob("*.yaml") if path.stem != "olm")
NEEDS = {"gpu": ["nfd"], "jobset": ["cert_manager"], "kueue": ["cert_manager"]}


@functools.cache
def cluster(file: str, situation: str = "", read: Callable[[str], Json] = recorded.read) -> Clusters:
    """Return a cluster in which a file's operator was brought up, in the situation that the name of a sequence ends with; to be read."""
    stem, _dash, release = file.rpartition("-")
    operator, one = OPERATORS.get(stem, stem), Clusters(read)
    for name, vendor in ({"cpu-1": "1d0f"} | ({} if situation == "no GPU nodes" else {"gpu-1": "10de"})).items():
        one.client.apply(node(name, vendor))
    one.faults |= {"nfd": "no-worker"} if situation == "no worker" else {}
    needs = NEEDS.get(operator, [])
    if operator == "rhoai":
        needs = ["cert_manager", "kueue"] + (["jobset"] if release != "2.25" else [])
    if situation in ("no cert-manager", "no NFD labels", "nothing else"):
        needs = []
    for other in needs:
        one.bring(other)
    one.client.told.clear()
    one.bring(operator, release)
    return one


def bare(thing: Json) -> Json:
    """Without what the API wants besides."""
    conditions = [
        {key: value for key, value in condition.items() if key != "lastTransitionTime" and value != ""}
        for condition in thing.get("conditions", [])
    ]
    return thing | ({"conditions": conditions} if "conditions" in thing else {})


def steps_of(file: str, sequence: str) -> list[Json]:
    """Return what an object says at each step, what stays from the steps before included, equal ones once."""
    said: Json = {}
    found: list[Json] = []
    for step in recorded.read(file)["sequences"][sequence]:
        parts = {key: bare(step[key]) for key in ("status", "labels") if step.get(key)}
        said = {key: said.get(key, {}) | parts.get(key, {}) for key in said.keys() | parts.keys()}
        found.append(said)
    return changes([step for step in found if step])


def changes(steps: list[Json]) -> list[Json]:
    """Without what is equal to its predecessor."""
    return [step for at, step in enumerate(steps) if at == 0 or steps[at - 1] != step]


SEQUENCES = [
    (file, title)
    for file in FILES
    for title in recorded.read(file)["sequences"]
    if title
    not in ("DataScienceCluster", "DataScienceCluster, not acknowledged", "ClusterServiceVersion of odf-operator")
]


@pytest.mark.parametrize(("file", "title"), SEQUENCES)
def test_every_step_of_a_file_is_reported_in_its_order(file: str, title: str) -> None:
    """By the stand-in for the operator, once the role's resource is there; nothing else is."""
    kind, _comma, situation = title.partition(", ")
    name = {"Node": "cpu-1", "Node, NVIDIA GPU": "gpu-1"}.get(title, "")
    if file.startswith("gpu-operator"):
        name = {"Node": "gpu-1"}.get(title, "")
    one, wanted = cluster(file, situation), steps_of(file, title)
    mine = {key: {name for step in wanted for name in step.get(key, {})} for key in ("status", "labels")}
    seen = [
        {key: part for key in mine if (part := {name: value for name, value in said[key].items() if name in mine[key]})}
        for said in one.said(kind, name)
    ]
    assert changes([{key: bare(part) for key, part in step.items()} for step in seen]) == wanted


def judge(kind: str, thing: Json) -> ready.Verdict:
    """Judge an object as the role does; of a ClusterPolicy's nodes each offers its GPU."""
    if kind == CSV:
        return ready.judge_csv(thing)
    if kind == "ClusterPolicy":
        return judge_gpus(thing, [{"metadata": {"name": "n", "labels": GPU}, "status": {"allocatable": {GPUS: "1"}}}])
    entries = [*TABLES["__platform_resources"].values(), *TABLES["__platform_brings"].values()]
    entries += [*TABLES["__platform_queued"], TABLES["__platform_initialization"]]
    entry, *same = [one for one in entries if one["kind"] == kind]
    assert all(one == entry for one in same)
    return ready.judge(thing, entry["ready"])


ENDLESS = ("no worker", "no cert-manager", "no NFD labels", "no GPU nodes", "no OperatorGroup", "two OperatorGroups")
ENDLESS += ("another mode", "no retry", "deadline exceeded", "upgraded")
"""Situations that end when something else is mended; OLM's last two belong to the fault and to the next version."""
JUDGED = [
    (file, title)
    for file, title in [*SEQUENCES, *(("olm", title) for title in recorded.read("olm")["sequences"])]
    if not title.startswith(("Node", "Subscription"))
    if (file, title) != ("cert-manager-1.19", "ClusterServiceVersion of cert-manager-operator")
]


@pytest.mark.parametrize(("file", "title"), JUDGED)
def test_nothing_is_ready_before_its_last_step(file: str, title: str) -> None:
    """By the role's own judge; a ClusterPolicy says Ready at first, too, as DaemonSets without pods count as ready."""
    kind, _comma, situation = title.partition(", ")
    said = [judge(kind, step | {"metadata": {"generation": 1}}).state for step in steps_of(file, title)]
    if kind == "ClusterPolicy" and not situation:
        assert said.pop(0) == ready.READY
    last = ready.READY
    if situation in ENDLESS:
        last = ready.FAILED if situation == "no retry" else ready.WAITING
    assert len(said) > (situation not in ENDLESS), "it begins unready"
    assert said == [ready.WAITING] * (len(said) - 1) + [last]


@pytest.mark.parametrize("release", catalog.RELEASES)
def test_a_data_science_cluster_comes_up_in_the_steps_of_its_release(release: str) -> None:
    """Each step's components lag with the file's words, and no other; without their operators they say so and nothing is ready."""
    one = cluster(f"rhoai-{release}")
    file = recorded.read(f"rhoai-{release}")
    said = [step for step in changes(one.said("DataScienceCluster")) if step["status"].get("phase")]
    wanted = [(step["lags"], step.get("conditions", [])) for step in file["sequences"]["DataScienceCluster"]]
    managed = {name for name, entry in catalog.RELEASES[release]["components"].items() if entry != REMOVED}
    for step, (lags, own) in zip(said, changes(wanted), strict=True):
        conditions = {each["type"].removesuffix("Ready").lower(): each for each in step["status"]["conditions"]}
        bad = {name for name in managed & conditions.keys() if conditions[name]["status"] != "True"}
        assert bad == lags.keys() & managed
        assert [bare({"conditions": [each]}) for each in own] == [
            bare({"conditions": [each]}) for each in step["status"]["conditions"] if each["type"] in GENERAL
        ]
        assert all(conditions[name]["reason"] == lags[name].get("reason", "") for name in bad)
    states = [judge("DataScienceCluster", step | {"metadata": {"generation": 1}}).state for step in said]
    assert states == [ready.WAITING] * (len(said) - 1) + [ready.READY]

    (missing,) = file["missing"]
    last = cluster(f"rhoai-{release}", "nothing else").said("DataScienceCluster")[-1]
    words = [each["message"] for each in last["status"]["conditions"] if each.get("reason") == missing["reason"]]
    told = {name: text for name, text in missing["messages"].items() if name in managed}
    assert told and sorted(words) == sorted(told.values()) and last["status"]["phase"] == "Not Ready"


def test_an_upgrade_that_nobody_acknowledged_stops_and_says_what() -> None:
    """That to 3.5, where somebody has put up a gate for this version; the role's wait names it, and goes on once it is acknowledged."""
    one = cluster.__wrapped__("rhoai-3.4")
    release, version = "3.5", catalog.RELEASES["3.5"]["version"]
    gate, place = f"ack-{version}-storage", {"namespace": "rhods-operator"}
    labels = {"platform.opendatahub.io/upgrade-gate": "true"}
    one.client.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": place | {"name": "gates", "labels": labels}}
        | {"data": {gate: "models move to another storage", "ack-1.0.0-old": "of another version"}}
    )
    entry = TABLES["__platform_resources"]["rhoai"]["ready"] | {"said_by": f"rhods-operator.{version}"}
    one.bring("rhoai", release)
    stopped = ready.judge(one.client.look(dsc(release), "DataScienceCluster", "default-dsc"), entry)
    assert (stopped.state, stopped.turns, stopped.reason) == (ready.WAITING, ready.FAILED, "AdminAckRequired")
    assert f"ProvisioningProgress=False (AdminAckRequired: Upgrade gates not acknowledged: {gate})" in stopped.text
    asked = one.client.look("v1", "ConfigMap", "odh-upgrade-acks", "rhods-operator")
    assert asked and asked["data"] == {gate: "models move to another storage"}

    one.client.merge(asked | {"apiVersion": "v1", "kind": "ConfigMap"}, {"data": {gate: "true"}})
    one.rounds()
    assert ready.judge(one.client.look(dsc(release), "DataScienceCluster", "default-dsc"), entry).state == ready.READY


@pytest.mark.parametrize(
    ("package", "fault", "sequence"),
    [
        ("nfd", "", "ClusterServiceVersion"),
        ("gpu-operator-certified", "", "ClusterServiceVersion, reinstalled"),
        ("nfd", "csv-failed", "ClusterServiceVersion, deadline exceeded"),
        ("nfd", "csv-hopeless", "ClusterServiceVersion, no retry"),
        ("nfd", "", "Subscription, resolution is retried"),
        ("nfd", "resolution-failed", "Subscription, nothing satisfies"),
    ],
)
def test_every_step_of_olm_is_reported_in_its_order(package: str, fault: str, sequence: str) -> None:
    """Installations that come up, come up late, fail; and what is said before there is a plan."""
    one = Clusters()
    one.faults |= {package: fault} if fault else {}
    one.install(package, next(iter(catalog.PACKAGES[package].channels)), succeeds=not fault)
    kind = sequence.partition(", ")[0]
    wanted = steps_of("olm", sequence)
    mine = {name for step in wanted for name in step["status"]}
    seen = [
        {"status": bare({name: said["status"][name] for name in mine & said["status"].keys()})}
        for said in one.said(kind)
    ]
    if kind == CSV:
        assert changes(seen) == wanted
    else:
        assert changes(seen)[: len(wanted)] == formatted(wanted, package)


def formatted(steps: list[Json], package: str) -> list[Json]:
    """Put the package into OLM's messages."""
    channel = next(iter(catalog.PACKAGES[package].channels))
    text = json.dumps(steps).replace("{package}", package).replace("{channel}", channel)
    result: list[Json] = json.loads(text)
    return result


BUNDLE = "trainlab-collect-3f2a1b9c-20261124T223000Z"


def recorded_in(told: list[tuple[str, str, str, Json]], file: str, folder: Path) -> Path:
    """Write what was reported as the module collect does, the file of an operator being `file`; return the folder."""
    record = Recording()
    shared = {CSV: "olm", "Subscription": "olm", "Node": "nodes", "CustomResourceDefinition": "crds"}
    for at, (kind, space, name, said) in enumerate(told):
        found = said if kind == "Node" else {"status": said["status"]}
        if kind == CSV:
            found = observing.missing(found)
        record.see(at, "2026-11-24T22:30:00Z", Seen(Place(kind, space, name), found, shared.get(kind, file)))
    folder.mkdir()
    for stem, document in record.files(BUNDLE).items():
        (folder / f"{stem}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        assert all(map(recorded.sourced, recorded.entries(stem, folder)))
    return folder


def in_order(one: Clusters) -> dict[tuple[str, str], list[Json]]:
    """Return what each object reported, without the time of day."""
    found: dict[tuple[str, str], list[Json]] = {}
    for kind, _space, name, said in one.client.told:
        found.setdefault((kind, name), []).append(still(said))
    return {key: changes(steps) for key, steps in found.items()}


@pytest.mark.parametrize(
    ("file", "as_file"),
    [
        ("nfd-4.20", "nfd-4.19"),
        ("gpu-operator-26.3", ""),
        ("jobset-1.0", "jobset-1.1"),
        ("kueue-1.3", ""),
        ("odf-4.20", ""),
        ("rhoai-2.25", ""),
        ("rhoai-3.4", ""),
    ],
)
def test_a_bundle_is_replayed_as_it_was_recorded(file: str, as_file: str, tmp_path: Path) -> None:
    """Of one operator: statuses, labels and APIs in the order of before; an operator with one file also from another release."""
    first = cluster(file)
    statuses = recorded_in(first.client.told, as_file or file, tmp_path / "statuses")
    assert in_order(cluster(file, read=bundles.read(statuses).__getitem__)) == in_order(first)


def test_what_no_bundle_tells_is_ours_and_what_nobody_could_replay_is_refused(tmp_path: Path) -> None:
    """Versions and generations are those of the object; an API comes with the step at which the cluster had it."""
    steps = [{"source": f"changes.jsonl:{at}", "at": at, "status": {"state": str(at)}} for at in range(3)]
    sequences = {"JobSetOperator, cluster": steps}
    definitions = {"CustomResourceDefinition, jobsets.jobset.x-k8s.io": [{"source": "changes.jsonl:9", "at": 1.5}]}
    for name, found in (("jobset-1.0", sequences), ("crds", definitions)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"bundle": BUNDLE, "sequences": found}), encoding="utf-8")
    files = bundles.read(tmp_path)
    assert ["makes" in step for step in files["jobset-1.0"]["sequences"]["JobSetOperator"]] == [False, True, False]
    assert files["rhoai-3.4"] == recorded.read("rhoai-3.4")
    assert bundles.wanted(tmp_path)["platform_operators"] == ["jobset"]

    last = {"observedGeneration": 3, "release": {"version": "3.4.2"}}
    said = bundles.as_of({"observedGeneration": 2, "release": {"version": "3.3.6"}}, last, 7, "3.4.3")
    assert said == {"observedGeneration": 6, "release": {"version": "3.3.6"}}
    assert bundles.as_of(last, last, 7, "3.4.3") == {"observedGeneration": 7, "release": {"version": "3.4.3"}}

    (tmp_path / "rhoai-3.9.yaml").write_text(yaml.safe_dump({"bundle": BUNDLE, "sequences": {}}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"rhoai-3\.9\.yaml: .* rename it to one of rhoai-2\.25, "):
        bundles.read(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no file: name the folder `statuses`"):
        bundles.read(tmp_path / "empty")
