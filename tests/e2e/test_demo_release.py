"""The life of a release on the demo's cluster, by plain Helm: what answers, through upgrades, rollbacks and uninstall.

The tests run in the order of this file and share one release. What Helm and an API server do with its objects is in
tests/api/test_served.py, without a kubelet; here the models are trained, decided on by their gates, and asked.
E2E_PHASES=all lives it with Helm 4, too, behind a headless Service, which is OpenShift AI's default, goes back to every revision,
lets Helm go back by itself, lets an Ingress lead to it, and lets a lease end.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from api_server.loopback_tls import self_signed
from api_server.releases import BROKEN, making_room
from waiting import until

from e2e import ingress, machine
from e2e.commands import WITH_PROGRAMS, kubectl, objects, serving, sh
from e2e.release import ALL_REVISIONS, NAME, QUESTIONS, Release, question

pytestmark = [pytest.mark.e2e, pytest.mark.tier, pytest.mark.timeout(3600)]
REFUSED = ("--set", "phase.gate.min_gain=50")
OTHER = ("--set", "phase.seed=7,phase.train.epochs=1", "--set-json", "phase.train.learning_rate=0.001")
"""Learns less than the first, and answers otherwise."""
SHORTER = ("--set", "phase.serve.max_tokens=2")
HOST = "model.example.test"
UNTIL = "trainlab.dev/served-until"


@pytest.fixture(scope="module", params=["helm", "helm4"])
def release(demo: str, request: pytest.FixtureRequest) -> Iterator[Release]:
    """The release, not yet installed, in a namespace of its own."""
    found = Release(request.param, f"life-{request.param}")
    kubectl("create", "namespace", found.namespace)
    with headless(request.param == "helm4"):
        yield found
    kubectl("delete", "namespace", found.namespace, "--timeout=300s")


@contextmanager
def headless(wanted: bool) -> Iterator[None]:
    """Let KServe make headless Services for what is new, as OpenShift AI does (rawDeploymentServiceConfig: Headless)."""
    config = ("-n", "kserve", "patch", "configmap", "inferenceservice-config", "--type=merge", "-p")
    before = json.loads(kubectl("-n", "kserve", "get", "configmap", "inferenceservice-config", "-o", "json"))["data"]
    if wanted:
        kubectl(*config, json.dumps({"data": {"service": json.dumps({"serviceClusterIPNone": True})}}))
    try:
        yield
    finally:
        if wanted:
            kubectl(*config, json.dumps({"data": {"service": before.get("service")}}))


def test_it_is_trained_gated_and_served(release: Release) -> None:
    assert "This revision trains run" in release.upgrade()
    assert "not promoted" not in release.decided()
    assert any(answer["tokens"] > 2 for answer in release.keep()["answers"]), release.revisions


def test_what_serves_changes_without_training(release: Release) -> None:
    job, trained = release.job(), release.trained()
    assert "trains nothing new" in release.upgrade(*SHORTER)
    release.decided()
    before, now = release.revisions[0]["answers"], release.keep()["answers"]
    assert now != before and all(answer["tokens"] <= 2 for answer in now)
    assert all(old["text"].startswith(new["text"]) for old, new in zip(before, now, strict=True))
    assert (release.job(), release.trained()) == (job, trained)


def test_a_refused_run_leaves_the_model_that_answers(release: Release) -> None:
    """It answers while the other trains, and afterwards from the same pod."""
    (server,) = release.servers()
    told = release.upgrade(*SHORTER, *REFUSED, "--dry-run=server")
    assert "phase.gate.min_gain: not set -> 50" in told or "phase.gate.min_gain: 0 -> 50" in told, told
    release.upgrade(*SHORTER, *REFUSED)
    assert release.answers() == release.revisions[1]["answers"]
    assert "not promoted" in release.decided()
    assert release.keep()["answers"] == release.revisions[1]["answers"]
    assert [pod["metadata"]["uid"] for pod in release.servers()] == [server["metadata"]["uid"]]


def test_a_promoted_run_answers(release: Release) -> None:
    release.upgrade(*OTHER)
    release.decided()
    texts = [[answer["text"] for answer in one["answers"]] for one in (release.keep(), release.revisions[0])]
    assert texts[0] != texts[1]
    assert release.answers(release.first()) == release.revisions[0]["answers"], "the earlier run, by its name"
    told = release.helm("test", NAME, "--logs")
    assert "Succeeded" in told and "answers as base, tuned" in told, told


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_an_earlier_revision_comes_back(release: Release, number: int) -> None:
    """Its answers, its objects and nothing else, on the same claims, from what is complete there."""
    trained = release.trained()
    release.helm("rollback", NAME, str(number))
    release.decided()
    assert release.state() == release.revisions[number - 1]
    assert release.trained() == trained


def test_helm_goes_back_by_itself(release: Release) -> None:
    """From a run whose pods fail: its promotion never ends, so the flag that waits for Jobs runs out of time."""
    flag = "--atomic" if release.program == "helm" else "--rollback-on-failure"
    fails = ("--set", "phase.model.max_length=32")
    said = release.upgrade(*OTHER, *fails, flag, "--wait-for-jobs", "--timeout", "2m", ok=False)
    release.decided()
    assert release.state() == release.revisions[3], said


def test_it_comes_back_after_another_site_and_an_upgrade_that_failed(release: Release) -> None:
    """What the notes say makes room for what the API server refused halfway: a job of it trains beside by then."""
    trained, site = release.trained(), ("--set", "site.podAnnotations.team=b")
    assert "trains nothing new" in release.upgrade(*OTHER, *site)
    release.decided()
    assert release.answers() == release.revisions[3]["answers"]

    assert "Invalid value" in release.upgrade(*OTHER, "--set", "phase.seed=9", *BROKEN, ok=False)
    notes = release.helm("get", "notes", NAME, "--revision", "1")
    assert len(objects("pytorchjobs", release.namespace)) > 1
    sh("sh", "-c", making_room(notes), env=WITH_PROGRAMS)
    release.helm("rollback", NAME, "4")
    release.decided()
    assert release.state() == release.revisions[3]
    assert release.trained() == trained


def test_an_ingress_leads_to_it_from_outside(release: Release, tmp_path: Path) -> None:
    """The line of the notes, at a controller, and an answer; nothing once the release exposes it no longer."""
    (certificate, key), space = self_signed(tmp_path / "model", f"DNS:{HOST}"), ("-n", release.namespace)
    kubectl(*space, "create", "secret", "tls", "model-tls", f"--cert={certificate}", f"--key={key}")
    trained = release.trained()
    exposed = {"enabled": True, "host": HOST, "ingressClass": ingress.CLASS, "tlsSecret": "model-tls"}
    with ingress.controller(machine.ARTIFACTS / "ingress.log") as address:
        notes = release.upgrade(*OTHER, "--set-json", f"site.expose={json.dumps(exposed)}")
        release.decided()
        before = release.answers()
        # What the names and the authorities of a person's own network do.
        (tmp_path / ".curlrc").write_text(f'resolve = "{HOST}:443:{address}"\ncacert = "{certificate}"\n')
        home = {"HOME": str(tmp_path)}
        (line,) = re.findall(r"^ +(curl -s https://.*)$", notes, re.MULTILINE)
        listed = until(lambda: says('"data"', "sh", "-c", line, env=home, ok=None), 60)
        assert {model["id"] for model in json.loads(listed)["data"]} >= {"base", "tuned"}
        body = json.dumps(question("tuned", QUESTIONS[0]))
        to = ("-s", "-H", "Content-Type: application/json", "-d", body, f"https://{HOST}/v1/chat/completions")
        assert json.loads(sh("curl", *to, env=home))["choices"][0]["message"]["content"] == before[0]["text"]
        release.upgrade(*OTHER)
        # With the Ingress its certificate is gone, too.
        until(lambda: says("404", "curl", "-sk", f"https://{HOST}/v1/models", env=home), 60)
    kubectl(*space, "delete", "secret", "model-tls")
    release.decided()
    assert release.state() == release.revisions[3] and release.trained() == trained


def test_a_lease_ends_and_the_printed_line_begins_another(release: Release) -> None:
    """What its CronJob does after an hour, without the hour: the model is gone, and comes back without training."""
    notes, trained = release.upgrade(*OTHER, "--set", "phase.serve.hours=1"), release.trained()
    release.decided()
    before = release.answers()
    (line,) = re.findall(r"^ +(kubectl .* delete job .* && helm rollback .*)$", notes, re.MULTILINE)
    space = ("-n", release.namespace)
    kubectl(*space, "annotate", "inferenceservice", NAME, f"{UNTIL}=2026-01-01T00:00:00+00:00", "--overwrite")
    kubectl(*space, "create", "job", "lease-now", f"--from=cronjob/{NAME}-lease")
    kubectl(*space, "wait", "job/lease-now", "--for=condition=Complete", "--timeout=180s")
    assert "is deleted" in kubectl(*space, "logs", "job/lease-now")
    kubectl(*space, "wait", "pods", "-l", serving(NAME), "--for=delete", "--timeout=180s")
    sh("sh", "-c", line, env=WITH_PROGRAMS | ALL_REVISIONS)
    release.decided()
    assert release.answers() == before and release.trained() == trained
    (served,) = objects("inferenceservices", release.namespace)
    assert served["metadata"]["annotations"][UNTIL] > "2026-01-01T00:00:00+00:00"


def test_uninstalled_it_leaves_the_volumes_from_which_it_comes_back(release: Release) -> None:
    """With its history by a rollback, without it by another install."""
    trained, claims = release.trained(), release.claims()
    release.helm("uninstall", NAME, "--keep-history", "--wait")
    assert (gone(release), release.claims()) == (set(), claims)
    release.helm("rollback", NAME, "1")
    release.decided()
    assert release.state() == release.revisions[0]
    release.helm("uninstall", NAME, "--wait")
    assert (gone(release), release.claims()) == (set(), claims)
    release.upgrade()
    release.decided()
    assert release.state() == release.revisions[0]
    release.helm("uninstall", NAME, "--wait")
    gone(release)
    assert release.trained() == trained


def says(words: str, *argv: str, **how: Any) -> str:
    """What a command says, if these words are in it."""
    said = sh(*argv, **how)
    return said if words in said else ""


def gone(release: Release) -> set[str]:
    """What is left once the garbage collector has been; nothing, if all is well."""
    for kind in ("inferenceservices", "deployments", "pods"):
        if objects(kind, release.namespace):
            kubectl("-n", release.namespace, "wait", kind, "--all", "--for=delete", "--timeout=180s")
    return release.there()
