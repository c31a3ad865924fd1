"""bench/purity.py, the drill for engines of others, tells one that keeps adapters apart from those that do not as vLLM 0.24 does not."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import purity
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from room_parts import listening


class Scripted:
    """Takes adapters as vLLM does. crossed: after a load one request in flight gets the newest adapter's answer. stale: a name keeps
    the answers of the adapter that it had first (vllm-project/vllm issues 47724 and 42125).
    """

    def __init__(self, crossed: bool = False, stale: bool = False) -> None:
        self.crossed, self.stale = crossed, stale
        self.adapters: dict[str, str] = {}
        self.kept: dict[tuple[str, str], str] = {}
        self.newest, self.lock = "", threading.Lock()
        self.app = FastAPI()
        self.app.add_api_route("/version", self.version, methods=["GET"])
        self.app.add_api_route("/v1/load_lora_adapter", self.load, methods=["POST"])
        self.app.add_api_route("/v1/unload_lora_adapter", self.unload, methods=["POST"])
        self.app.add_api_route("/v1/chat/completions", self.chat, methods=["POST"], response_model=None)

    async def version(self) -> dict[str, str]:
        """GET."""
        return {"version": "0.0.0"}

    async def load(self, request: Request) -> str:
        """POST."""
        body = await request.json()
        self.adapters[body["lora_name"]] = self.newest = body["lora_path"]
        return "ok"

    async def unload(self, request: Request) -> str:
        """POST."""
        del self.adapters[(await request.json())["lora_name"]]
        return "ok"

    async def chat(self, request: Request) -> Any:
        """POST."""
        body = await request.json()
        name, question = body["model"], body["messages"][0]["content"]
        if name not in self.adapters:
            return JSONResponse({"error": {"message": "does not exist"}}, 404)
        own = self.adapters[name]
        if self.crossed and name.startswith("drill") and self.newest:
            own, self.newest = self.newest, ""
        answer = f"{Path(own).name} says: {question}"
        if self.stale:
            answer = self.kept.setdefault((name, question), answer)
        return {"choices": [{"message": {"content": answer}}]}


@pytest.fixture
def adapters(tmp_path: Path) -> list[Path]:
    """Folders that look like adapters."""
    folders = [tmp_path / "adapters" / f"a{number}" for number in range(6)]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text("{}")
    return folders


@pytest.mark.parametrize(
    ("engine", "fails"),
    [(Scripted(), set()), (Scripted(crossed=True), {"crossed"}), (Scripted(stale=True), {"stale"})],
    ids=["pure", "crossed", "stale"],
)
def test_the_drill_fails_where_adapters_are_mixed(
    engine: Scripted, fails: set[str], adapters: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "r.json"
    with listening(engine.app) as url:
        line = f"purity --url {url} --adapters {adapters[0].parent} --requests 100 --at-once 4 --json {out}"
        monkeypatch.setattr("sys.argv", line.split())
        code = purity.main()
    result = json.loads(out.read_text())
    assert {key for key in ("crossed", "stale") if result[key]} == fails and (code == 0) is (not fails)
    assert result["equal"] and result["loaded"] > 0 and result["engine"] == "vLLM 0.0.0"


def test_adapters_that_are_made_have_drawn_weights(tmp_path: Path, tiny_model: Path) -> None:
    from safetensors.torch import load_file

    purity.make(tmp_path, tiny_model, 2)
    first, second = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("a000", "a001"))
    assert first.keys() == second.keys() and all((first[key] != second[key]).any() for key in first)
    assert re.fullmatch(
        r"\[.*\]", json.dumps(json.loads((tmp_path / "a000" / "adapter_config.json").read_text())["target_modules"])
    )
