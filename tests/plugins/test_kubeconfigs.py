"""plugins/action/attendees_kubeconfigs.py and attendees_end.py against a server that speaks HTTP: many at once, each its own."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.action import attendees_end, attendees_kubeconfigs, attendees_remove
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import ApiError
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.platform_api import PlatformApi

PEOPLE = [{"name": f"user{number}", "namespace": f"trainlab-user{number}"} for number in range(1, 13)]
HOUR = 3600
TOGETHER = 4
SECONDS = 5.0


def path(one: dict[str, str]) -> str:
    return f"/api/v1/namespaces/{one['namespace']}/serviceaccounts/attendee"


def token(uid: str, hours: float) -> dict[str, Any]:
    """Return the answer to a TokenRequest; the claims say whose it is."""
    now = int(time.time())
    claims = {"iat": now, "exp": now + int(hours * HOUR), "kubernetes.io": {"serviceaccount": {"uid": uid}}}
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return {"status": {"token": f"head.{part}.signature"}}


def serve(cluster: Any, answer: Callable[[int], Any]) -> None:
    """Serve the ServiceAccounts; `answer` is given the attendee's number when a token is asked for."""
    for number, one in enumerate(PEOPLE):
        cluster.objects[path(one)] = {"metadata": {"uid": one["name"]}}
        cluster.objects[f"{path(one)}/token"] = lambda _sent, number=number: answer(number)


def write(cluster: Any, dest: Path, people: list[dict[str, str]] = PEOPLE) -> dict[str, Any]:
    """Run the plugin as Ansible does."""
    action = attendees_kubeconfigs.ActionModule.__new__(attendees_kubeconfigs.ActionModule)
    action._task = SimpleNamespace(check_mode=False)
    action.api = PlatformApi(str(cluster.kubeconfig))
    args = {
        "attendees": people,
        "service_account": "attendee",
        "dest": str(dest),
        "hours": 2.0,
        "server": "",
        "site": {},
    }
    result: dict[str, Any] = action.run_on_cluster(args)
    return result


def owners(dest: Path) -> dict[str, str]:
    """Return whose token is in each file."""
    result = {}
    for file in dest.glob("*.kubeconfig"):
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
        claims = attendees_kubeconfigs.claims(config["users"][0]["user"]["token"])
        result[file.stem] = claims["kubernetes.io"]["serviceaccount"]["uid"]
        assert config["contexts"][0]["context"]["namespace"] == f"trainlab-{file.stem}"
    return result


def test_many_are_asked_for_at_once_and_each_gets_their_own(cluster: Any, tmp_path: Path) -> None:
    """Answered four by four, which one after the other would wait for ever, and the later ones first."""
    several = threading.Barrier(TOGETHER)

    def answer(number: int) -> dict[str, Any]:
        several.wait(SECONDS)
        time.sleep(0.02 * (TOGETHER - number % TOGETHER))
        return token(PEOPLE[number]["name"], hours=2 + number)

    serve(cluster, answer)
    names = [one["name"] for one in PEOPLE]
    first = write(cluster, tmp_path / "out")
    assert first["written"] == names, "in the order in which they were given"
    assert owners(tmp_path / "out") == dict(zip(names, names, strict=True))
    ends = attendees_kubeconfigs.ends(token("", hours=2)["status"]["token"])
    assert first["until"][:13] == ends.strftime("%Y-%m-%d %H"), "when the first of them expires"
    cluster.asked.clear()
    second = write(cluster, tmp_path / "out")
    assert (second["changed"], second["written"], second["until"]) == (False, [], first["until"])
    assert len(cluster.asked) == len(PEOPLE)


def test_one_that_is_refused_ends_it_after_those_before(cluster: Any, tmp_path: Path) -> None:
    """As one by one: what was written before stays, and the next run goes on from there."""
    serve(cluster, lambda number: 403 if number == 2 else token(PEOPLE[number]["name"], hours=2))
    with pytest.raises(ApiError, match="said no"):
        write(cluster, tmp_path / "out")
    assert sorted(owners(tmp_path / "out")) == ["user1", "user2"]


def end(cluster: Any, dest: Path, count: int, *, confirmed: bool = False, check: bool = False) -> dict[str, Any]:
    """Run attendees_end as Ansible does."""
    action = attendees_end.ActionModule.__new__(attendees_end.ActionModule)
    action._task = SimpleNamespace(check_mode=check)
    action.api = PlatformApi(str(cluster.kubeconfig))
    args = {
        "count": count,
        "confirmed": confirmed,
        "prefix": "trainlab-",
        "service_account": "attendee",
        "dest": str(dest),
    }
    result: dict[str, Any] = action.run_on_cluster(args)
    return result


def removed(cluster: Any, dest: Path, people: list[dict[str, str]], prefix: str = "monday-") -> list[str]:
    """Return what attendees_remove would remove, as lines, in check mode."""
    action = attendees_remove.ActionModule.__new__(attendees_remove.ActionModule)
    action._task, action.lines = SimpleNamespace(check_mode=True), None
    action.api = PlatformApi(str(cluster.kubeconfig))
    args = {"attendees": people, "prefix": prefix, "dest": str(dest), "timeout": 5}
    result: list[str] = action.run_on_cluster(args)["removed"]
    return result


def test_another_workshops_attendees_of_the_same_names_stay(cluster: Any, tmp_path: Path) -> None:
    """Two classes number theirs from user1 on; what lies outside the namespaces is told apart by the end of its name."""
    spaces = {"monday-user1": "user1", "monday-user2": "user2", "big-monday-user1": "user1", "tuesday-user1": "user1"}

    def item(name: str, who: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": {"trainlab.dev/owner": "attendees", "trainlab.dev/attendee": who}}}

    group = "rbac.authorization.k8s.io/v1"
    kinds = [
        {"name": f"{kind.lower()}s", "kind": kind, "namespaced": False}
        for kind in ("ClusterRoleBinding", "ClusterRole")
    ]
    cluster.objects |= {
        "/api/v1": {"resources": [{"name": "namespaces", "kind": "Namespace", "namespaced": False}]},
        f"/apis/{group}": {"resources": kinds},
    }
    cluster.items("/api/v1/namespaces", *(item(name, who) for name, who in spaces.items()))
    bindings = [f"trainlab-attendee-preflight-{space}" for space in (*spaces, "monday-user3")]
    whose = [*spaces.values(), "user3"]
    cluster.items(f"/apis/{group}/clusterrolebindings", *map(item, bindings, whose))
    cluster.items(f"/apis/{group}/clusterroles", {"metadata": {"name": "trainlab-attendee-preflight"}})
    first = [{"name": "user1", "namespace": "monday-user1"}]
    assert removed(cluster, tmp_path, first) == [
        "Namespace monday-user1",
        "ClusterRoleBinding trainlab-attendee-preflight-monday-user1",
    ]
    everybody = removed(cluster, tmp_path, [])
    assert everybody == [
        "Namespace monday-user1",
        "Namespace monday-user2",
        *(f"ClusterRoleBinding trainlab-attendee-preflight-monday-user{n}" for n in (1, 2, 3)),
    ], "user3's namespace is gone; the role that all share is used by the other workshops"


def test_a_lower_count_ends_access_only_when_it_is_confirmed(cluster: Any, tmp_path: Path) -> None:
    """Of those that are counted, in namespaces of this prefix; another workshop's and those that were named stay as they are."""
    serve(cluster, lambda number: token(PEOPLE[number]["name"], hours=2))
    spaces = [(each["namespace"], each["name"]) for each in PEOPLE] + [
        ("night-user12", "user12"),
        ("trainlab-ada", "ada"),
    ]
    labels = [{"trainlab.dev/owner": "attendees", "trainlab.dev/attendee": who} for _name, who in spaces]
    names = [name for name, _who in spaces]
    cluster.items(
        "/api/v1/namespaces", *({"metadata": {"name": n, "labels": m}} for n, m in zip(names, labels, strict=True))
    )
    out = tmp_path / "out"
    write(cluster, out)
    assert not end(cluster, out, 12)["changed"]
    with pytest.raises(
        AnsibleActionFail, match=r"end the access of user11, user12; .*attendees_end=true.*attendees_count to 12"
    ):
        end(cluster, out, 10)
    assert "would end" in end(cluster, out, 10, check=True)["ended"][0]
    assert end(cluster, out, 0)["ended"] == [], "a list may be of newcomers only"
    assert not [method for method, _path in cluster.asked if method == "DELETE"]
    fewer = end(cluster, out, 10, confirmed=True)
    assert [line.partition(" ")[0] for line in fewer["ended"]] == ["user11", "user12"] and fewer["changed"]
    assert [asked for method, asked in cluster.asked if method == "DELETE"] == [path(one) for one in PEOPLE[10:]]
    assert sorted(owners(out)) == sorted(one["name"] for one in PEOPLE[:10])
