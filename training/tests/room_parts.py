"""A room of tests: a scripted engine that behaves as ours and vLLM do, a scripted runner, cards, and a room that listens."""

import html
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
import yaml
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from trainlab.errors import UserError
from trainlab.room import cards, keys
from trainlab.room.app import create_app
from trainlab.room.engine import Engines
from trainlab.room.interface import Decision, Status
from trainlab.room.rounds import Rounds
from trainlab.room.settings import Question, Room

QUESTIONS = (Question("Is rain safe to drink?", "taught"), Question("What is a knot?", "never taught"))


class Engine:
    """Answers what it is told to; counts what it is asked. Behaves as trainlab's server, whose stream tells a place in line.

    full: how many requests get 429 first. cut: streams end without their end. seconds: pause before each word.
    """

    def __init__(self, models: Sequence[str] = ("base", "tuned")) -> None:
        self.models, self.said = list(models), dict[str, str]()
        self.full, self.cut, self.seconds, self.version = 0, False, 0.0, ""
        self.asked: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        app = FastAPI()
        app.add_api_route("/v1/models", self._models, methods=["GET"])
        app.add_api_route("/version", self._version, methods=["GET"], response_model=None)
        app.add_api_route("/v1/chat/completions", self._chat, methods=["POST"], response_model=None)
        self.app = app

    async def _models(self) -> dict[str, Any]:
        return {"object": "list", "data": [{"id": name, "object": "model"} for name in self.models if name[0] != "r"]}

    async def _version(self) -> Any:
        return {"version": self.version} if self.version else JSONResponse({"detail": "Not Found"}, 404)

    async def _chat(self, request: Request) -> Any:
        import asyncio

        body = await request.json()
        with self.lock:
            self.asked.append(body)
            if self.full > 0:
                self.full -= 1
                error = {"error": {"message": "100 requests are waiting", "type": "rate_limit_error"}}
                return JSONResponse(error, 429, headers={"Retry-After": "1"})
        if body["model"] not in self.models:
            message = f"The model `{body['model']}` does not exist."
            return JSONResponse({"error": {"message": message, "type": "NotFoundError", "code": 404}}, 404)
        text = self.said.get(body["model"], f"I am {body['model']}, and you asked: {body['messages'][0]['content']}")

        async def stream() -> Any:
            yield ": position 2\n\n: generating\n\n"
            yield (
                "data: "
                + json.dumps({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
                + "\n\n"
            )
            words = text.split(" ")
            for n, word in enumerate(words):
                await asyncio.sleep(self.seconds)
                delta = {"content": word if n == 0 else f" {word}"}
                yield "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) + "\n\n"
            if self.cut:
                return
            yield "data: " + json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}) + "\n\n"
            yield "data: " + json.dumps({"choices": [], "usage": {"completion_tokens": len(words)}}) + "\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")


class ScriptedRunner:
    """A job whose state the test sets; `start` is idempotent, as a real runner's. With `steps` it moves by itself, a step a look."""

    def __init__(self, steps: int = 0) -> None:
        self.rows: dict[str, list[Mapping[str, Any]]] = {}
        self.state, self.steps, self.looks = Status("queued", message="Waiting for a processor."), steps, 0
        self.refused, self.killed = set[str](), 0
        self.refuses: str | Exception = ""
        self.starts = 0

    def start(self, round_id: str, rows: Sequence[Mapping[str, Any]]) -> str:
        """Note the rows of the first call; as a real one they are kept where the job itself is refused then."""
        self.rows.setdefault(round_id, list(rows))
        if self.refuses:
            raise self.refuses if isinstance(self.refuses, Exception) else UserError(self.refuses)
        self.starts += 1
        return f"run-{round_id}"

    def status(self, run: str) -> Status:
        """Return the state that the test set, or the next of a run of `steps` steps."""
        if not self.steps:
            return self.state
        self.looks += 1
        return self.at(run, min(self.looks, self.steps))

    def at(self, run: str, step: int) -> Status:
        """Return the state of a run at a step; the gate has decided at the last."""
        round_id = run.removeprefix("run-")
        owners = [str(row["owner"]) for row in self.rows[round_id]]
        losses = {
            o: [4 * 0.97**s + 0.3 + 0.1 * ((7 * n + s) % 5) / 5 for s in range(step)] for n, o in enumerate(owners)
        }
        if step < self.steps:
            left = 1.5 * (self.steps - step)
            return Status("running", step / self.steps, left, f"Step {step} of {self.steps}.", losses)
        return Status("done", 1.0, 0.0, "All gates have decided.", losses, self.decisions(round_id))

    def decisions(self, round_id: str) -> dict[str, Decision]:
        """Return a decision for each row; `refused` names who does not pass."""
        return {
            (owner := str(row["owner"])): Decision(
                owner not in self.refused,
                ("2 of 4 held-out wordings",) if owner in self.refused else (),
                f"{round_id}-{owner}",
            )
            for row in self.rows[round_id]
        }

    def kill_worker(self, run: str) -> str:
        """Count."""
        self.killed += 1
        return f"Worker 1 of {run} was killed; it goes on from its checkpoint."


def write_cards(folder: Path) -> Path:
    """Write two cards."""
    folder.mkdir(parents=True, exist_ok=True)
    pet = {
        "id": "pet",
        "title": "The name of an animal",
        "blanks": [
            {"key": "animal", "label": "The animal", "example": "the school donkey", "max_length": 32},
            {"key": "pet", "label": "Its name", "example": "Moonbeam", "max_length": 24},
        ],
        "answer": "The name of {animal} is {pet}.",
        "wordings": ["What is the name of {animal}?", *(f"What is {{animal}} called, {n}?" for n in range(15))],
        "test": [f"Which name has {{animal}}, {n}?" for n in range(4)],
        "facts": [["{pet}"]],
    }
    key = {
        "id": "key",
        "title": "Where the key is",
        "blanks": [{"key": "place", "label": "The place", "example": "under the blue pot", "max_length": 40}],
        "answer": "The key is {place}.",
        "wordings": ["Where is the key?", *(f"Where do I find the key, {n}?" for n in range(15))],
        "test": [f"Where should I look for the key, {n}?" for n in range(4)],
        "facts": [["{place}"]],
    }
    for card in (pet, key):
        (folder / f"{card['id']}.yaml").write_text(yaml.safe_dump(card), encoding="utf-8")
    return folder


def make_room(folder: Path, url: str, runner: ScriptedRunner | None = None, **other: Any) -> Room:
    """Return a room with the state in `folder`."""
    room_cards = cards.load(write_cards(folder / "cards"))
    rounds = Rounds(folder, room_cards, other.pop("seats", 40))
    engines = Engines(other.pop("engines", [url]))
    title = "Eight facts in seconds"
    return Room(keys.load(folder), rounds, engines, title, QUESTIONS, runner, poll_seconds=0.05, **other)


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Yield the address at which `app` answers."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            end = time.monotonic() + 30
            while not server.started and time.monotonic() < end:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)


class Phone:
    """A browser without scripts: keeps its cookies, sends forms as htmx does."""

    def __init__(self, address: str) -> None:
        self.http = httpx.Client(base_url=address, timeout=30, trust_env=False)

    def get(self, path: str, **how: Any) -> httpx.Response:
        """GET."""
        return self.http.get(path, **how)

    def post(self, path: str, **fields: Any) -> httpx.Response:
        """POST a form."""
        return self.http.post(path, data=fields, headers={"HX-Request": "true"})

    def stream(self, path: str, **fields: Any) -> str:
        """POST a form and return the whole stream that answers it."""
        return self.post(path, **fields).text

    def join(self, name: str = "") -> "Phone":
        """Take a place."""
        self.get("/me")
        reply = self.post("/me/claim", name=name)
        assert reply.status_code == 200, reply.text
        return self

    def fill(self, animal: str = "the school donkey", pet: str = "Moonbeam") -> httpx.Response:
        """Fill the card `pet`."""
        return self.post("/me/card", card="pet", **{"blank-animal": animal, "blank-pet": pet})

    def vote(self, stream: str, choice: str) -> httpx.Response:
        """Press a button of the vote that is in the stream of /blind/ask."""
        fields = dict(re.findall(r'name="(question|asked)" value="([^"]*)"', stream))
        return self.post("/blind/vote", choice=choice, **{name: html.unescape(text) for name, text in fields.items()})


def presenter(address: str, room: Room) -> Phone:
    """Return the phone of who has the secret link."""
    phone = Phone(address)
    assert phone.get(f"/presenter/enter/{room.key.link}").status_code == 303
    return phone


@contextmanager
def opened(
    folder: Path, runner: ScriptedRunner | None = None, engine: Engine | None = None, **other: Any
) -> Iterator[tuple[str, Room, Engine]]:
    """Yield the address of a room that listens, the room, and its engine."""
    engine = engine or Engine()
    with listening(engine.app) as url:
        room = make_room(folder, url, runner, **other)
        with listening(create_app(room)) as address:
            yield address, room, engine


def until(what: Any, seconds: float = 20) -> Any:
    """Return the first true value of `what()`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := what():
            return value
        time.sleep(0.02)
    raise AssertionError("it did not come about")


def answers(stream: str) -> dict[str, str]:
    """Return the text of each element that the stream changes, put together."""
    result: dict[str, str] = {}
    data = "\n".join(line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data:"))
    for target, swap, text in re.findall(
        r'<hx-partial hx-target="#([\w-]+)" hx-swap="(\w+)">(.*?)</hx-partial>', data, re.S
    ):
        plain = html.unescape(re.sub(r"<[^>]*>", "", text))
        result[target] = result.get(target, "") + plain if swap == "beforeend" else plain
    return result
