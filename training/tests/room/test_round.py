"""A whole round by phones over real connections: claim, fill, train, reveal, ask; killed and read back in each state."""

import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from room_parts import Phone, ScriptedRunner, answers, listening, make_room, opened, presenter, until
from trainlab.errors import UserError
from trainlab.room import access, keys
from trainlab.room.app import create_app
from trainlab.room.interface import Decision, Status


def test_four_phones_play_a_round(tmp_path: Path) -> None:
    runner = ScriptedRunner(steps=5)
    runner.refused = {"p03"}
    with opened(tmp_path, runner) as (address, room, engine):
        boss = presenter(address, room)
        phones = [Phone(address).join(name) for name in ("Ada", "", "Linus", "Grace")]
        assert "You have a place" in phones[0].get("/me").text and "Ada" in phones[1].get("/board").text
        assert "has not been opened" in phones[0].fill().text
        boss.post("/presenter/do/open")
        for n, phone in enumerate(phones[:3]):
            assert f"The name of the donkey is Pet {n}." in phone.fill("the donkey", f"Pet {n}").text
        assert "Round 1 is closed with 3 cards." in boss.post("/presenter/do/close").text
        until(lambda: room.rounds.round.status.state == "done")
        (round_id,) = runner.rows
        assert [row["owner"] for row in runner.rows[round_id]] == ["p01", "p02", "p03"]
        assert runner.rows[round_id][0]["id"] == "p01-pet" and len(runner.rows[round_id][0]["phrasings"]) == 15
        assert "passed" not in phones[0].get("/board").text  # until it is revealed
        assert "once the round is revealed" in phones[0].stream("/me/ask", question="Who?")
        engine.models += [f"{round_id}-p01", f"{round_id}-p02"]
        boss.post("/presenter/do/reveal")
        said = phones[1].stream("/me/ask", question="What is the donkey called?")
        told = answers(said)
        assert {told["answer-0"].split(",")[0], told["answer-1"].split(",")[0]} == {f"I am {round_id}-p02", "I am base"}
        assert "p01" not in said
        assert "2 of 4 held-out wordings" in phones[2].get("/me").text
        assert "not promoted" in phones[2].stream("/me/ask", question="Who?")
        assert "Nothing was trained for you" in phones[3].get("/me").text
        assert phones[0].get("/board").text.count('class="tile passed"') == 2
        boss.post("/presenter/do/next")
        assert "Teach the model one fact" in phones[0].get("/me").text
        text = (tmp_path / "room.json").read_text()
        assert "donkey" not in text and "Ada" not in text and '"promoted": 2' in text


def room_in(folder: Path, state: str, runner: ScriptedRunner) -> Any:
    """Return a room whose first round is in `state`, with one card filled where that state has one."""
    room = make_room(folder, "http://127.0.0.1:9", runner)
    rounds = room.rounds
    rounds.claim("d1", "Ada")
    if state != "lobby":
        rounds.open()
        rounds.fill("d1", "key", {"place": "under the pot"})
    if state in ("locked", "reveal"):
        rounds.close()
    if state == "reveal":
        rounds.started(rounds.round.id, runner.start(rounds.round.id, rounds.round.rows()))
        rounds.update_status(rounds.round.id, Status("done", 1.0, decided=runner.decisions(rounds.round.id)))
        rounds.reveal()
    return room


@pytest.mark.parametrize("state", ["lobby", "active", "locked", "reveal"])
def test_a_killed_room_goes_on_where_it_was(tmp_path: Path, state: str) -> None:
    runner = ScriptedRunner()
    before = room_in(tmp_path, state, runner).rounds.round
    room = make_room(tmp_path, "http://127.0.0.1:9", runner)
    assert room.rounds.round == before and room.rounds.round.state == state
    assert keys.load(tmp_path).sign("device", "d1") == room.key.sign("device", "d1")
    if state == "locked":  # killed between the closing and the start
        with listening(create_app(room)):
            until(lambda: room.rounds.round.run)
        assert runner.starts == 1 and list(runner.rows) == [before.id]


def test_a_room_that_was_removed_begins_the_next_round(tmp_path: Path) -> None:
    """Its key went with it, so no phone has a place in the old round; of that only numbers stay."""
    runner = ScriptedRunner()
    room_in(tmp_path, "reveal", runner)
    (tmp_path / "key").unlink()
    room = make_room(tmp_path, "http://127.0.0.1:9", runner)
    assert (room.rounds.round.number, room.rounds.round.state, room.rounds.round.places) == (2, "lobby", {})
    assert [each.trained for each in room.rounds.book.ended] == [1]
    assert "under the pot" not in (tmp_path / "room.json").read_text()


def test_a_room_killed_after_the_start_does_not_start_again(tmp_path: Path) -> None:
    runner = ScriptedRunner()
    room = room_in(tmp_path, "locked", runner)
    with listening(create_app(room)):
        until(lambda: room.rounds.round.run)
    runner.steps = 3
    again = make_room(tmp_path, "http://127.0.0.1:9", runner)
    with listening(create_app(again)):
        until(lambda: again.rounds.round.status.state == "done")
    assert runner.starts == 1


def test_the_presenter_cannot_go_wrong(tmp_path: Path) -> None:
    runner = ScriptedRunner()
    with opened(tmp_path, runner) as (address, room, _):
        boss, phone = presenter(address, room), Phone(address).join("Ada")
        assert "Round 1 is lobby; open the round first." in boss.post("/presenter/do/close").text
        boss.post("/presenter/do/open")
        assert "is open already" in boss.post("/presenter/do/open").text
        assert "Nobody has filled a card" in boss.post("/presenter/do/close").text
        phone.fill()
        assert "Round 1 is closed with 1 card." in boss.post("/presenter/do/close").text
        assert "is closed already" in boss.post("/presenter/do/close").text
        until(lambda: room.rounds.round.run)
        assert runner.starts == 1
        assert "The job has not ended" in boss.post("/presenter/do/reveal").text
        assert "what you wrote before counts" in phone.fill("x", "y").text
        assert "This round is closed" in Phone(address).get("/me").text
        assert "was killed" in boss.post("/presenter/do/kill").text and runner.killed == 1
        assert boss.post("/presenter/do/nothing").status_code == 404
        assert "no such place" in boss.post("/presenter/do/hide", what="p99").text
        assert "nothing to freeze" in boss.post("/presenter/do/freeze").text


def test_a_button_says_its_sentence_without_scripts_too(tmp_path: Path) -> None:
    """Once: a reload presses and says nothing again."""
    with opened(tmp_path, ScriptedRunner()) as (address, room, _):
        boss = presenter(address, room)
        for action, said in (("open", "Round 1 is open."), ("close", "Nobody has filled a card")):
            reply = boss.http.post(f"/presenter/do/{action}", follow_redirects=True)
            assert reply.status_code == 200 and said in reply.text
            assert said not in boss.get("/presenter").text


def test_what_the_runner_refuses_is_said_and_tried_again(tmp_path: Path) -> None:
    runner = ScriptedRunner()
    runner.refuses = "job room-r1: quota of queue lab is 2 CPUs, 4 are asked; raise site.queue's quota"
    with opened(tmp_path, runner) as (address, room, _):
        boss, phone = presenter(address, room), Phone(address).join()
        boss.post("/presenter/do/open")
        phone.fill()
        boss.post("/presenter/do/close")
        until(lambda: room.rounds.round.problem)
        assert "quota of queue lab" in boss.get("/presenter").text
        assert "quota" not in phone.get("/me").text and "looking at a problem" in phone.get("/me").text
        runner.refuses = ""
        time.sleep(0.3)
        assert runner.starts == 0
        boss.post("/presenter/do/again")
        until(lambda: room.rounds.round.run)
        runner.state = Status("failed", 0.4, message="A worker ran out of memory.")
        until(lambda: room.rounds.round.status.state == "failed")
        assert "A worker ran out of memory." in boss.get("/board").text
        this = room.rounds.round.id
        assert "Round 2" in boss.post("/presenter/do/next", what=this).text
        Phone(address).join("Eve")
        assert "Round 2 has begun already" in boss.post("/presenter/do/next", what=this).text  # another presenter
        assert [place.name for place in room.rounds.round.places.values()] == ["Eve"]


def test_a_card_that_is_hidden_after_a_failed_start_is_not_trained(tmp_path: Path) -> None:
    """The rows of a start that failed lie in the volume."""
    runner = ScriptedRunner()
    runner.refuses = "quota"
    with opened(tmp_path, runner) as (address, room, _):
        boss, rude, other = presenter(address, room), Phone(address).join("Rude"), Phone(address).join("Ada")
        boss.post("/presenter/do/open")
        rude.fill()
        other.fill()
        boss.post("/presenter/do/close")
        until(lambda: room.rounds.round.problem)
        runner.refuses = ""
        for owner in ("p01", "p02"):
            boss.post("/presenter/do/hide", what=owner)
        assert "All cards are hidden" in boss.post("/presenter/do/again").text
        boss.post("/presenter/do/show", what="p02")
        boss.post("/presenter/do/again")
        run = until(lambda: room.rounds.round.run)
        assert [row["owner"] for row in runner.rows[run.removeprefix("run-")]] == ["p02"]


def test_any_failure_of_a_start_is_a_problem_that_the_presenter_reads(tmp_path: Path) -> None:
    runner = ScriptedRunner()
    runner.refuses = OSError(28, "No space left on device")
    with opened(tmp_path, runner) as (address, room, _):
        boss, phone = presenter(address, room), Phone(address).join("Ada")
        boss.post("/presenter/do/open")
        phone.fill()
        boss.post("/presenter/do/close")
        until(lambda: room.rounds.round.problem)
        page = boss.get("/presenter").text
        assert "No space left on device" in page and "Try the job again" in page


def test_two_rooms_on_one_host_keep_their_own_visitors(tmp_path: Path) -> None:
    """Cookies know no port: the model's own page and the room behind port-forwards are one host to a browser."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with opened(tmp_path / "one", ScriptedRunner()) as (address, room, _), opened(tmp_path / "two") as (model, _, _):
        phone = Phone(address).join("Ada")
        phone.http.base_url = model
        assert phone.get("/").status_code == 200
        phone.http.base_url = address
        assert "Ada" in phone.get("/me").text
        phone.post("/me/claim")
        assert len(room.rounds.round.places) == 1


def test_behind_a_proxy_that_ends_tls_the_code_leads_to_https(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedRunner()) as (address, _, _):
        host = address.removeprefix("http://")
        assert f"https://{host}/me" in Phone(address).get("/board", headers={"X-Forwarded-Proto": "https"}).text
        assert f"https://{host}/me" not in Phone(address).get("/board").text


def test_a_place_is_the_devices(tmp_path: Path) -> None:
    """Two tabs, a reload, and a second claim: one place. Another device: another."""
    with opened(tmp_path, ScriptedRunner(), seats=2) as (address, room, _):
        phone = Phone(address).join("Ada")
        for _ in range(3):
            phone.post("/me/claim", name="Eve")
        assert [place.name for place in room.rounds.round.places.values()] == ["Ada"]
        Phone(address).join()
        late = Phone(address)
        assert "All places are taken" in late.get("/me").text
        reply = late.post("/me/claim", name="")
        assert reply.status_code == 409 and "All 2 places are taken" in reply.text
        boss = presenter(address, room)
        boss.post("/presenter/do/free", what="p01")
        assert late.post("/me/claim", name="").status_code == 200
        assert room.rounds.round.places["p01"].name == "p01"


def test_a_phone_that_comes_back_gets_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is shown already is not sent again, which would wipe a half-filled form; silence is broken by beats."""
    monkeypatch.setattr("trainlab.room.live.BEAT_SECONDS", 0.2)
    with opened(tmp_path, ScriptedRunner()) as (address, room, _):
        phone = Phone(address).join("Ada")
        boss = presenter(address, room)
        boss.post("/presenter/do/open")
        page = phone.get("/me").text
        seen = re.search(r"seen=([0-9a-f]{16})", page)
        assert seen

        def lines(headers: dict[str, str], address: str) -> list[str]:
            got: list[str] = []
            with phone.http.stream("GET", address, headers=headers) as reply:
                assert reply.headers["x-accel-buffering"] == "no"
                for line in reply.iter_lines():
                    got.append(line)
                    if line.startswith((": beat", "id: ")):
                        break
            return got

        assert lines({}, f"/me/live?seen={seen[1]}")[0] == ": beat"
        assert lines({"Last-Event-ID": seen[1]}, "/me/live")[0] == ": beat"
        phone.fill()
        got = lines({"Last-Event-ID": seen[1]}, "/me/live")
        assert any("Your card is in" in line for line in got) and got[-1].startswith("id: ")


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = ScriptedRunner(steps=3)
    real = time.time
    with opened(tmp_path, runner) as (address, room, _):
        boss, phone = presenter(address, room), Phone(address).join()
        monkeypatch.setattr(time, "time", lambda: real() - 10**7)
        boss.post("/presenter/do/open")
        assert phone.fill().status_code == 200
        monkeypatch.setattr(time, "time", lambda: real() + 10**7)
        boss.post("/presenter/do/close")
        until(lambda: room.rounds.round.status.state == "done")


def test_frozen_the_board_shows_the_last_good_round_and_asks_nothing(tmp_path: Path) -> None:
    runner = ScriptedRunner()
    room = room_in(tmp_path, "reveal", runner)
    room.rounds.next()
    with listening(create_app(room)) as address:
        boss = presenter(address, room)
        assert "no job is started" not in boss.get("/presenter").text
        frozen = boss.post("/presenter/do/freeze").text
        assert "shows the last good run" in frozen and "no job is started" in frozen
        board = Phone(address).get("/board").text
        assert (
            "The last good round" in board
            and "tile passed" in board
            and "Ada" not in board
            and "under the pot" not in board
        )
        assert make_room(tmp_path, "http://127.0.0.1:9", runner).rounds.book.frozen
        boss.post("/presenter/do/freeze")  # another presenter, at the same time
        assert "The last good round" in Phone(address).get("/board").text
        boss.post("/presenter/do/unfreeze")
        assert "The last good round" not in Phone(address).get("/board").text


def test_a_hidden_card_is_not_trained_and_not_shown(tmp_path: Path) -> None:
    runner = ScriptedRunner()
    with opened(tmp_path, runner) as (address, room, _):
        boss, one, other = presenter(address, room), Phone(address).join("Rude"), Phone(address).join("Ada")
        boss.post("/presenter/do/open")
        one.fill()
        other.fill()
        for __ in range(2):  # two presenters
            boss.post("/presenter/do/hide", what="p01")
            boss.post("/presenter/do/hide-card", what="key")
        assert "Rude" not in Phone(address).get("/board").text
        assert "Where the key is" not in one.get("/me").text
        assert one.post("/me/card", card="key", **{"blank-place": "here"}).status_code == 409
        boss.post("/presenter/do/close")
        until(lambda: runner.rows)
        assert [row["owner"] for rows in runner.rows.values() for row in rows] == ["p02"]
        boss.post("/presenter/do/show", what="p01")
        assert "Rude" in Phone(address).get("/board").text
        assert boss.post("/presenter/do/offer-card", what="key").text.count("offered again") == 1
        assert room.rounds.book.hidden_cards == []


def test_losses_that_are_no_numbers_do_not_spoil_the_state(tmp_path: Path) -> None:
    runner = ScriptedRunner()
    room = room_in(tmp_path, "locked", runner)
    rounds = room.rounds
    rounds.started(rounds.round.id, "run-x")
    losses = {"p01": [3.0, float("nan"), float("inf"), 2.0]}
    decided = {"p01": Decision(True, (), "x-p01")}
    assert rounds.update_status(rounds.round.id, Status("running", 7.0, None, "", losses, decided))
    read = make_room(tmp_path, "http://127.0.0.1:9", runner).rounds.round.status
    assert list(read.losses["p01"]) == [3.0, 2.0] and read.fraction == 1.0 and read.decided == decided


def test_a_state_that_cannot_be_read_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "room.json").write_text('{"round": 3}')
    with pytest.raises(UserError, match=r"room\.json: is not a room's state .*move it away"):
        make_room(tmp_path, "http://127.0.0.1:9")


def test_the_stage_check_says_what_is_missing(tmp_path: Path) -> None:
    with opened(tmp_path, ScriptedRunner()) as (address, room, engine):
        boss = presenter(address, room)
        text = boss.post("/presenter/check").text
        assert "Green: everything answers." in text, text
        assert "leads here" in text and "not buffered" in text and "answers; not vLLM" in text
        engine.version = "0.24.0"
        assert (
            "vLLM 0.24.0 can answer with another visitor&#39;s adapter; use 0.32 or later"
            in boss.post("/presenter/check").text
        )
        engine.version, engine.models = "0.33.0", []
        room.address = "http://127.0.0.1:9"
        text = boss.post("/presenter/check").text
        assert (
            "Not green" in text
            and "no model is served yet" in text
            and "vLLM 0.33.0" in text
            and "<b>wrong</b> <span>address" in text
        )


def test_take_home(tmp_path: Path) -> None:
    runner = ScriptedRunner()
    room = room_in(tmp_path, "reveal", runner)
    (tmp_path / "adapter.zip").write_bytes(b"PK")
    with listening(create_app(room)) as address:
        own, other = (
            httpx.Client(
                base_url=address, cookies={access.cookie_name(room.key, access.DEVICE): room.key.sign("device", d)}
            )
            for d in ("d1", "d2")
        )
        assert "does not hand it out" in own.get("/me/home").text
        reply = own.get("/me/home/adapter.zip")
        assert reply.status_code == 404 and "ask the presenter" in reply.text
        room.take_home = lambda run, owner, name: tmp_path / name if (owner, name) == ("p01", "adapter.zip") else None
        assert own.get("/me/home/adapter.zip").content == b"PK"
        assert own.get("/me/home/room.json").status_code == 404
        assert other.get("/me/home/adapter.zip").status_code == 409
