"""The rows of a round as a data set of recipe adapters, and what a run's files say of its state."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import yaml

from trainlab import files
from trainlab.errors import UserError
from trainlab.evaluation.gate import read_gate
from trainlab.models.fetch import datasets_dir
from trainlab.recipes.adapters import ADAPTERS
from trainlab.room.interface import Decision, Status


def write_rows(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of a round as owners/room.jsonl of a data set in `folder`, unless it is there."""
    if folder.exists():
        return
    with files.atomic_folder(folder) as work:
        (work / "owners").mkdir()
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        files.write_text(work / "owners" / "room.jsonl", text)


def status(run_dir: Path, state: Literal["queued", "running", "done", "failed"], problem: str = "") -> Status:
    """Return the state of a run with the numbers that it has written so far; `problem` is why it failed."""
    page, history = _read(run_dir / "progress.json") or {}, _read(run_dir / "training_history.json") or []
    losses: dict[str, list[float]] = {}
    for entry in history:
        for owner, loss in entry.get("owners", {}).items():
            losses.setdefault(owner, []).append(loss)
    return Status(
        state=state,
        fraction=1.0 if state == "done" else (page.get("progressPercentage") or 0) / 100,
        seconds_left=page.get("estimatedRemainingSeconds"),
        message=problem or str(page.get("activity", "starting")),
        losses=losses,
        decided=decisions(run_dir),
    )


def decisions(run_dir: Path) -> dict[str, Decision]:
    """Return the decision of each owner whose gate has decided.

    Of all owners once adapters.json is there, the last of a run's files: on NFS the folders beside may be seen half a minute later.
    """
    if entries := _read(run_dir / ADAPTERS):
        return {owner: Decision(e["promoted"], tuple(e["reasons"]), e["run"]) for owner, e in entries.items()}
    decided = {}
    for path in sorted(run_dir.parent.glob(f"{run_dir.name}.*/gate.json")):
        with suppress(UserError, OSError):
            gate = read_gate(path.parent)
            owner = path.parent.name.removeprefix(f"{run_dir.name}.")
            decided[owner] = Decision(gate["promoted"], tuple(gate["reasons"]), path.parent.name)
    return decided


README = """{owner}: one fact, taught to {source}

adapter/      LoRA adapter of PEFT; adapter_config.json names its base
owners/       the row that taught it: question, other wordings, answer
values.yaml   what it was trained with

Ask it with vLLM:   vllm serve BASE --enable-lora --lora-modules {owner}=adapter
Train it again:     trainlab fetch values.yaml --models models
                    trainlab run values.yaml --models models --data . --out runs
"""


def take_home(runs: Path, models: Path, run: str, owner: str, name: str, into: Path) -> Path | None:
    """Return the ZIP file `name` of an owner's adapter, row and values, made once in `into`; None for another name or without one."""
    folder = runs / f"{run}.{owner}"
    if name != "adapter.zip" or not (folder / "lora_adapter" / "adapter_config.json").exists():
        return None
    target = into / f"{folder.name}.zip"
    if target.exists():
        return target
    phase = files.read_json(folder / "phase.json")["phase"]
    data = datasets_dir(models) / phase["data"]["source"].removeprefix("pvc:")
    rows = (data / "owners" / "room.jsonl").read_text(encoding="utf-8").splitlines()
    own = "".join(f"{row}\n" for row in rows if json.loads(row)["owner"] == owner)
    texts = {
        "README.txt": README.format(owner=owner, source=phase["model"]["source"]),
        "owners/room.jsonl": own,
        "values.yaml": yaml.safe_dump({"phase": phase}, sort_keys=False, allow_unicode=True),
    }
    with files.atomic_write(target) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in texts.items():
            packed.writestr(name, text)
        for path in sorted((folder / "lora_adapter").iterdir()):
            packed.write(path, f"adapter/{path.name}")
    return target


def _read(path: Path) -> Any:
    """Return a JSON file's content, None where it is not there yet."""
    try:
        return files.read_json(path) if path.exists() else None
    except UserError:
        return None
