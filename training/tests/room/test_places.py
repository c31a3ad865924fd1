"""What a place of one's own needs of the room: the charts as Helm packs them, the values of the phase, sheets without a secret."""

import hashlib
import io
import re
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from checkout import ROOT
from room_parts import ScriptedRunner, opened, presenter
from trainlab.errors import UserError
from trainlab.room import helm_repository

CHARTS = ROOT / "charts"
PHASE = "quick"


def served() -> dict[str, Any]:
    """Return what a room with charts is made with."""
    values = {f"{PHASE}.yaml": (ROOT / "values" / "quick.yaml").read_bytes()}
    return {"charts": {**helm_repository.repository(CHARTS), **values}, "phase": PHASE}


def test_the_index_has_the_digest_of_each_archive() -> None:
    made = helm_repository.repository(CHARTS)
    assert made == helm_repository.repository(CHARTS), "a restarted room serves the same"
    index = yaml.safe_load(made["index.yaml"])
    assert set(index["entries"]) == {"room", "trainjob"} and len(made) == 3
    for (entry,) in index["entries"].values():
        (name,) = entry["urls"]
        assert entry["digest"] == hashlib.sha256(made[name]).hexdigest()


def test_helmignore_is_obeyed(tmp_path: Path) -> None:
    chart = tmp_path / "demo"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: demo\nversion: 1.0.0\n")
    (chart / ".helmignore").write_text("# not these\n*~\nicon.svg\n")
    for name in ("icon.svg", "values.yaml", "values.yaml~", "templates/a.yaml"):
        (chart / name).write_text("x")
    made = helm_repository.repository(tmp_path)
    with tarfile.open(fileobj=io.BytesIO(made["demo-1.0.0.tgz"])) as packed:
        assert packed.getnames() == [
            f"demo/{n}" for n in (".helmignore", "Chart.yaml", "templates/a.yaml", "values.yaml")
        ]


@pytest.mark.parametrize(
    "text", [None, "name: demo\n", "- demo\n", "{"], ids=["none", "no version", "a list", "no YAML"]
)
def test_a_folder_without_charts_is_refused_with_the_remedy(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "demo").mkdir()
        (tmp_path / "demo" / "Chart.yaml").write_text(text)
    with pytest.raises(UserError, match=r"^--charts .*name a folder of Helm charts, such as charts$"):
        helm_repository.repository(tmp_path)


def test_nothing_but_the_charts_can_be_read_and_nothing_written(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedRunner(), **served()) as (address, _, _):
        client = httpx.Client(base_url=address)
        index = yaml.safe_load(client.get("/charts/index.yaml").text)
        (name,) = index["entries"]["trainjob"][0]["urls"]
        assert client.get(f"/charts/{name}").headers["content-type"] == "application/gzip"
        for path in ("room.json", "key", "..%2Froom.json", "../room.json", ""):
            assert client.get(f"/charts/{path}").status_code == 404, path
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert client.request(method, "/charts/index.yaml").status_code == 405


def test_each_attendee_has_a_sheet_with_two_lines_and_no_secret(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedRunner(), **served(), address="http://room.example:8090") as (address, room, _):
        page = httpx.get(f"{address}/sheet", params={"count": 3}).text
        assert re.findall(r'<p class="who">(.*?)</p>', page) == ["user1", "user2", "user3"]
        assert page.count("<svg") == 3
        lines = re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.S)
        assert lines[1].splitlines() == [
            "export KUBECONFIG=user2.kubeconfig ROOM=http://room.example:8090/charts",
            "helm install quick trainjob --repo $ROOM -f $ROOM/quick.yaml",
        ]
        assert room.key.link not in page and "/presenter" not in page
        named = httpx.get(f"{address}/sheet", params={"names": "ada, grace"}).text
        assert re.findall(r'<p class="who">(.*?)</p>', named) == ["ada", "grace"]
        boss = presenter(address, room)
        assert 'href="/sheet?count=40"' in boss.get("/presenter").text


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"count": 0}, 400),
        ({"count": 401}, 400),
        ({"count": "x"}, 400),
        ({"names": "ada; rm -rf"}, 409),
        ({"names": "<b>"}, 409),
        ({"names": "x" * 64}, 409),
        ({"prefix": "$(id)"}, 409),
    ],
)
def test_what_is_no_name_gets_no_sheet(tmp_path: Path, asked: dict[str, Any], status: int) -> None:
    """A sheet is typed into a shell."""
    with opened(tmp_path, ScriptedRunner(), **served()) as (address, _, _):
        reply = httpx.get(f"{address}/sheet", params=asked)
        assert reply.status_code == status and "<pre" not in reply.text and "<b>" not in reply.text


def test_a_room_without_charts_has_no_sheets(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedRunner()) as (address, room, _):
        for path in ("/sheet", "/charts/index.yaml"):
            assert httpx.get(f"{address}{path}").status_code == 404
        assert "/sheet" not in presenter(address, room).get("/presenter").text
