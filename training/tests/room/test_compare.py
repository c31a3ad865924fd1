"""The compare page and the blind comparison, over real connections to a scripted engine."""

import re
from pathlib import Path

import pytest
from room_parts import QUESTIONS, Engine, Phone, ScriptedRunner, answers, opened, presenter
from trainlab.errors import UserError
from trainlab.room import engine as engines
from trainlab.room.compare import tally


def test_both_answer_with_tokens_and_seconds(tmp_path: Path) -> None:
    with opened(tmp_path) as (address, _, engine):
        stream = Phone(address).post("/ask", question="Is it?\nYes.")
        assert (
            stream.headers["content-type"].startswith("text/event-stream")
            and stream.headers["x-accel-buffering"] == "no"
        )
        shown = answers(stream.text)
        assert shown["answer-0"] == "I am base, and you asked: Is it?\nYes."
        assert shown["answer-1"] == "I am tuned, and you asked: Is it?\nYes."
        assert re.fullmatch(r"\d+ tokens, \d+\.\d s", shown["numbers-1"])
        assert "place 2 in line" in stream.text and "event: answered" in stream.text
        assert {(body["temperature"], body["stream"]) for body in engine.asked} == {(0, True)}


def test_a_link_asks_and_prepared_questions_say_what_they_show(tmp_path: Path) -> None:
    with opened(tmp_path) as (address, _, _):
        page = Phone(address).get("/", params={"q": "Is <b>it</b>?"}).text
        assert 'hx-trigger="submit, load"' in page and "Is &lt;b&gt;it&lt;/b&gt;?</textarea>" in page
        assert (
            '<small class="shows">taught</small>' in page and '<small class="shows never">never taught</small>' in page
        )
        assert 'hx-trigger="submit"' in Phone(address).get("/").text


def test_a_full_line_is_waited_for(tmp_path: Path) -> None:
    with opened(tmp_path) as (address, _, engine):
        engine.full = 1
        stream = Phone(address).stream("/ask", question="Is it?")
        assert "the line is full; next try in 1 s" in stream and len(engine.asked) == 3
        assert answers(stream)["answer-1"].startswith("I am tuned")


@pytest.mark.parametrize(
    ("engine", "url", "said"),
    [
        (
            Engine(["base"]),
            "{url}#tuned as tuned",
            "The engine does not serve tuned now (The model `tuned` does not exist.).",
        ),
        (Engine(), "http://127.0.0.1:9#tuned as tuned", "The engine cannot be reached."),
    ],
    ids=["unknown model", "engine away"],
)
def test_what_an_engine_cannot_do_is_said_beside_the_other_answer(
    tmp_path: Path, engine: Engine, url: str, said: str
) -> None:
    with opened(tmp_path, engine=engine) as (address, room, _):
        (own,) = room.engines.urls
        room.engines = engines.Engines([f"{own}#base as base", url.format(url=own)])
        shown = answers(Phone(address).stream("/ask", question="Is it?"))
        assert shown["card-1"] == said and shown["answer-0"].startswith("I am base")


def test_a_stream_that_breaks_off_says_so(tmp_path: Path) -> None:
    with opened(tmp_path) as (address, _, engine):
        engine.cut = True
        assert answers(Phone(address).stream("/ask", question="Is it?"))["card-0"].startswith(
            "The connection to the engine was lost"
        )


def test_without_any_engine_the_page_opens_and_says_it(tmp_path: Path) -> None:
    with opened(tmp_path, engines=["http://127.0.0.1:9"]) as (address, _, _):
        assert Phone(address).get("/").status_code == 200
        assert "cannot be reached" in Phone(address).stream("/ask", question="Is it?")


@pytest.mark.parametrize(("text", "said"), [("", "Write a question first."), ("x" * 1001, "ask it in 1000")])
def test_no_question_and_a_long_one_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with opened(tmp_path) as (address, _, engine):
        assert said in Phone(address).stream("/ask", question=text) and not engine.asked


def test_a_frozen_room_shows_the_last_answers_to_prepared_questions(tmp_path: Path) -> None:
    """The network dies on stage: the engine is away, what it said before is shown and says that it is recorded."""
    with opened(tmp_path, ScriptedRunner()) as (address, room, engine):
        boss, phone = presenter(address, room), Phone(address)
        for question in (QUESTIONS[0].text, "A visitor's own?"):
            phone.stream("/ask", question=question)
        assert list(room.rounds.book.answers) == [QUESTIONS[0].text]
        boss.post("/presenter/do/freeze")
        room.engines, before = engines.Engines(["http://127.0.0.1:9"]), len(engine.asked)
        shown = answers(phone.stream("/ask", question=QUESTIONS[0].text))
        assert (
            shown["answer-1"] == f"I am tuned, and you asked: {QUESTIONS[0].text}"
            and "recorded: " in shown["numbers-1"]
        )
        assert "cannot be reached" in phone.stream("/ask", question="A visitor's own?") and len(engine.asked) == before


def test_an_answer_that_failed_is_not_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as (address, room, engine):
        engine.cut = True
        Phone(address).stream("/ask", question=QUESTIONS[0].text)
        assert not room.rounds.book.answers


def test_a_full_disk_takes_no_answer_from_a_phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as (address, room, _):
        for text in ("first", "second"):  # the second takes other seconds and is no reason to write
            saved: list[str] = []
            monkeypatch.setattr(room.rounds, "save", lambda saved=saved: saved.append(""))
            Phone(address).stream("/ask", question=QUESTIONS[0].text)
            assert len(saved) == (text == "first")

        def full() -> None:
            raise UserError("room.json: No space left on device")

        monkeypatch.setattr(room.rounds, "save", full)
        stream = Phone(address).stream("/ask", question=QUESTIONS[1].text)
        assert "No space left" not in stream and "event: answered" in stream


def test_an_answer_of_the_round_before_gets_no_vote(tmp_path: Path) -> None:
    with opened(tmp_path) as (address, room, _):
        phone = Phone(address)
        phone.get("/blind")
        stream = phone.stream("/blind/ask", question="Is it?")
        presenter(address, room).post("/presenter/do/next")
        assert phone.vote(stream, "a").status_code == 409 and room.rounds.book.ballots == {}
        assert phone.vote(phone.stream("/blind/ask", question="Is it?"), "a").status_code == 200


def test_addresses_of_engines() -> None:
    assert engines.parse("http://a:1/v1/") == ("http://a:1", None, None)
    assert engines.parse("https://a#org/name as base") == ("https://a", "org/name", "base")
    assert engines.parse("http://a#b") == ("http://a", "b", "b")
    for wrong in ("a:1", "ftp://a", "http://a as base", "http://a#b as <b>"):
        with pytest.raises(UserError, match="write"):
            engines.parse(wrong)


def test_blind_hides_names_until_the_vote_and_locks_it(tmp_path: Path) -> None:
    with opened(tmp_path) as (address, room, engine):
        engine.said = {"base": "Left.", "tuned": "Right."}
        phone, question = Phone(address), QUESTIONS[0].text
        phone.get("/blind")
        for asked in ("", "0" * 64, "\u00e9"):  # not asked yet
            assert phone.post("/blind/vote", question=question, choice="a", asked=asked).status_code == 409
        stream = phone.stream("/blind/ask", question=question)
        shown = answers(stream)
        assert sorted((shown["answer-0"], shown["answer-1"])) == ["Left.", "Right."]
        assert "base" not in stream and "tuned" not in stream and "tokens" not in stream
        assert all(text in stream for text in ("Both are good", "No preference"))
        assert phone.vote(stream, "c").status_code == 400
        side = "a" if shown["answer-0"] == "Right." else "b"
        assert "You voted: tuned is better." in phone.vote(stream, side).text
        other = "b" if side == "a" else "a"
        assert "You voted: tuned is better." in phone.vote(stream, other).text
        assert [list(ballot.values()) for ballot in room.rounds.book.ballots.values()] == [["tuned"]]
        assert "You voted: tuned is better." in phone.stream("/blind/ask", question=question)  # the same sides, again
        assert question not in (tmp_path / "room.json").read_text()


@pytest.mark.rest
def test_sides_are_random_for_visitors_and_questions(tmp_path: Path) -> None:
    with opened(tmp_path) as (address, _, engine):
        engine.said = {"base": "Left.", "tuned": "Right."}
        first: dict[str, set[str]] = {question.text: set() for question in QUESTIONS}
        orders = set()
        for _ in range(12):
            phone = Phone(address)
            phone.get("/blind")
            order = tuple(answers(phone.stream("/blind/ask", question=text))["answer-0"] for text in first)
            orders.add(order)
        assert len(orders) > 2  # of four; by chance fewer once in 60 000 times


def test_votes_are_counted_with_their_interval_and_closed_by_the_reveal(tmp_path: Path) -> None:
    with opened(tmp_path) as (address, room, _):
        boss = presenter(address, room)
        assert "No votes yet" in boss.get("/presenter").text
        choices = ["tuned"] * 7 + ["both"]
        room.rounds.book.ballots = {f"d{n}": {"q1": choice} for n, choice in enumerate(choices)}
        text = boss.get("/presenter").text
        assert "8 votes of 8 visitors" in text and "<b>7</b> tuned is better" in text and ": better." in text
        assert "8 votes" not in Phone(address).get("/board").text
        for __ in range(2):  # two presenters
            boss.post("/presenter/do/show-votes")
        assert "8 votes" in Phone(address).get("/board").text
        late = Phone(address)
        late.get("/blind")
        stream = late.stream("/blind/ask", question="New?")
        assert "Both are good" not in stream and "is base" in stream
        assert "You voted" not in late.post("/blind/vote", question="New?", choice="a").text
        assert len(room.rounds.book.ballots) == 8
        boss.post("/presenter/do/next")
        assert room.rounds.book.ballots == {} and room.rounds.book.ended[0].votes == {"tuned": 7, "both": 1}


def test_a_vote_for_a_model_that_is_not_called_base_is_no_gain(tmp_path: Path) -> None:
    with opened(tmp_path, engine=Engine(["small", "tuned"])) as (address, room, _):
        phone = Phone(address)
        phone.get("/blind")
        first = phone.vote(phone.stream("/blind/ask", question="Is it?"), "a").text
        gain = -1 if "small is better" in first else 1
        votes = tally(room)
        assert votes and votes["base"] == "small" and votes["mean"] == gain


def test_one_model_alone_cannot_be_compared_blindly(tmp_path: Path) -> None:
    with opened(tmp_path, engine=Engine(["base"])) as (address, _, _):
        phone = Phone(address)
        phone.get("/blind")
        assert "Only one model is served" in phone.stream("/blind/ask", question="Is it?")
