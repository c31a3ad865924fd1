"""The room on the demo's cluster, which `make demo` opens: a round is a job of the chart, and outlives the room and a worker."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
import timetable
import yaml
from embedded_cluster.base import patience

from e2e import machine, phones
from e2e.commands import NAMESPACE, PHASE, changes, helm, kubectl, objects, playbook, sh

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
ROOM = f"{PHASE}-room"
JOBS = f"app.kubernetes.io/instance={PHASE}-round"
PEOPLE = Path(__file__).resolve().parents[2] / "bench" / "adapters_people.yaml"


def opened(told: str) -> phones.Presenter:
    """Return the presenter of the room that playbooks/room.yml told of, by the command that it printed."""
    (command,) = re.findall(r"presenter .*?: (kubectl .*)", told)
    link = sh("sh", "-c", command).strip()
    presenter = phones.Presenter(link.partition("/presenter/")[0])
    presenter.enter(link)
    return presenter


@pytest.fixture(scope="module")
def presenter(demo: str) -> phones.Presenter:
    """The demo's room, untouched."""
    told = playbook("room", "-e", f"phase={PHASE}")
    assert changes(told) == [], "make demo has opened it"
    return opened(told)


def pods(selector: str) -> list[str]:
    """Return the names of running pods."""
    return [
        pod["metadata"]["name"]
        for pod in objects("pods", NAMESPACE, "-l", selector)
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


@pytest.mark.rest
def test_a_round_outlives_the_room_and_a_worker(presenter: phones.Presenter) -> None:
    """Four people teach the served model, which answers as each of them as soon as the gates have decided."""
    presenter.do("next")  # of a volume that was kept
    presenter.do("open")
    people = [phones.Phone(str(presenter.client.base_url), card, blanks) for card, blanks in phones.FOUR.items()]
    for person in people:
        person.join()
    presenter.do("close")
    people[0].follow(phones.is_training)
    (killed,) = pods(f"{JOBS},app.kubernetes.io/component=train")
    assert killed in phones.said(presenter.do("kill"))
    kubectl("-n", NAMESPACE, "delete", "pod", "-l", f"app.kubernetes.io/instance={ROOM}", "--force", "--grace-period=0")
    kubectl("-n", NAMESPACE, "rollout", "status", f"deployment/{ROOM}", "--timeout=180s")
    page = presenter.trained()
    assert page.count("passed") >= 3, page
    (run,) = re.findall(rf"{PHASE}-round-[0-9a-f]{{8}}", page)[:1]
    (job,) = objects("pytorchjobs", NAMESPACE, "-l", f"trainlab.dev/run={run}")
    assert job["metadata"]["ownerReferences"][0]["name"] == ROOM
    presenter.do("reveal")
    assert sum(person.is_right() for person in people) >= 3, (
        "of four facts, asked in wordings that were never trained on"
    )
    packed = people[0].client.get("/me/home/adapter.zip")
    assert packed.status_code == 200 and packed.content[:2] == b"PK"


@pytest.mark.rest
def test_a_round_by_hand_is_the_same_run(presenter: phones.Presenter) -> None:
    """Its name is the one that the chart gives to the same phase."""
    (job,) = objects("pytorchjobs", NAMESPACE, "-l", JOBS)
    run = job["metadata"]["labels"]["trainlab.dev/run"]
    phase = json.loads(
        objects("configmaps", NAMESPACE, "--field-selector", f"metadata.name={run}")[0]["data"]["phase.json"]
    )
    rendered = helm(
        *("template", f"{PHASE}-round", "charts/trainjob", "-f", "values/room/adapters.yaml"),
        *("--set", "site.images.trainer=x", "--set", f"phase.data.source={phase['phase']['data']['source']}"),
    )
    names = [item["metadata"]["name"] for item in yaml.safe_load_all(rendered) if item and item["kind"] == "ConfigMap"]
    assert run in names


@pytest.mark.tier
def test_forty_phones_play_a_round(presenter: phones.Presenter) -> None:
    """A full room: one job, forty adapters, everybody asks."""
    presenter.do("next")
    opened_at = timetable.cpu_seconds()
    presenter.do("open")
    cards = yaml.safe_load(PEOPLE.read_text(encoding="utf-8"))
    written = [
        (card, blanks) for turn in zip(*cards.values(), strict=True) for card, blanks in zip(cards, turn, strict=True)
    ]
    people = [phones.Phone(str(presenter.client.base_url), card, blanks) for card, blanks in written[:40]]
    for person in people:
        person.join()
    presenter.do("close")
    began = time.monotonic()
    page = presenter.trained()
    trained, spent = time.monotonic() - began, timetable.cpu_seconds() - opened_at
    presenter.do("reveal")
    right = sum(person.is_right() for person in people)
    told = {"seconds to the last gate": round(trained), "promoted": page.count("passed"), "right": right}
    told["CPU-seconds of the machine from opening to the last gate"] = round(spent)
    (machine.ARTIFACTS / "room.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    assert page.count("passed") >= 30 and right >= 28, told
    assert trained < patience.seconds(phones.MOST_SECONDS), told


@pytest.mark.rest
def test_it_is_removed_with_its_jobs(presenter: phones.Presenter) -> None:
    """Runs stay; what the room created goes, and a room that is opened again begins the next round."""
    before = int(re.findall(r"Round (\d+)", presenter.page())[0])
    playbook("room", "-e", f"phase={PHASE}", "-e", "room_state=absent")
    kubectl("-n", NAMESPACE, "wait", "--for=delete", "pytorchjobs", "-l", JOBS, "--timeout=120s")
    assert not pods(f"app.kubernetes.io/instance={ROOM}")
    told = playbook("room", "-e", f"phase={PHASE}")
    assert re.search(r"changed .* room : Install the room", told)
    assert f"Round {before + 1}: lobby" in opened(told).page(), "its state is in the volume, its key is another"
