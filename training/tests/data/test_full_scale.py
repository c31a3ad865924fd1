"""Overlays below values/data: rows in the form of the public sets, by the commands at the head of each file. The sets are not fetched."""

import json
import re
import shlex
import subprocess
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from checkout import VALUES
from trainlab import cli, files
from trainlab.config import DpoPhase, SftPhase
from trainlab.config.loading import load_values
from trainlab.data import chat_rows, row_files, table_rows
from trainlab.recipes import dpo

DATA = VALUES / "data"


def phase_of(name: str) -> SftPhase | DpoPhase:
    """Return the phase of an overlay and the file that its head names."""
    overlay = DATA / f"{name}.yaml"
    base = re.search(r"-f (values/[\w-]+\.yaml)", overlay.read_text("utf-8"))
    assert base
    phase = load_values([VALUES.parent / base[1], overlay]).phase
    assert isinstance(phase, SftPhase | DpoPhase)
    return phase


def make(name: str, rows: list[dict[str, Any]], source: str, folder: Path) -> Path:
    """Write rows as the public file, run what the head says between download and `trainlab put`; return the folder to put."""
    (folder / source).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    head = re.findall(r"^#   (awk .*|trainlab questions .*)$", (DATA / f"{name}.yaml").read_text("utf-8"), re.MULTILINE)
    assert [line.split()[0] for line in head] == ["awk", "trainlab"]
    subprocess.run(["sh", "-euc", head[0]], cwd=folder, check=True)
    with chdir(folder), pytest.raises(SystemExit) as done:
        cli.main(shlex.split(head[1])[1:])
    assert done.value.code == 0
    return folder / name


def test_poems_become_requests_by_author_and_title(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`datasets` takes a folder of this name for the hub's set."""
    place = tmp_path / "DanFosing" / "public-domain-poetry"
    place.mkdir(parents=True)
    poems = [
        {
            "Title": f"Boat {n}",
            "Author": f"Poet {n % 7}",
            "text": f"The boat {n} is out\nand {n} gulls about",
            "Views": n,
        }
        for n in range(80)
    ]
    (place / "poems.json").write_text(json.dumps(poems), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    phase = phase_of("public-domain-poetry")
    assert isinstance(phase, SftPhase)
    folder = table_rows.fetch(phase, tmp_path / "models", tiny_model)
    assert folder
    counts = files.read_json(folder / "source.json")["rows"]
    assert counts["train"] + counts["heldout"] == 80
    row = next(row for row in chat_rows.load_train(phase.data, folder) if row["answer"].startswith("The boat 7 "))
    assert row["question"] == "Write a poem with the title Boat 7 in the manner of Poet 0." and "\n" in row["answer"]
    row_files.check_contamination(phase.data, folder)


def test_answers_that_need_no_further_text(tmp_path: Path) -> None:
    rows = [
        {
            "instruction": f"What is {n}?",
            "context": "" if n % 3 else "A text.",
            "response": f"It is {n}.",
            "category": "open_qa",
        }
        for n in range(60)
    ]
    rows.append({"instruction": "Too long?", "context": "", "response": "la " * 3000, "category": "open_qa"})
    folder = make("dolly", rows, "databricks-dolly-15k.jsonl", tmp_path)
    phase = phase_of("dolly")
    assert isinstance(phase, SftPhase)
    train, heldout = chat_rows.load_train(phase.data, folder), chat_rows.load_heldout(phase.data, folder)
    assert {row["answer"] for row in (*train, *heldout)} == {f"It is {n}." for n in range(60) if n % 3}
    assert len(heldout) == 4
    row_files.check_contamination(phase.data, folder)


def test_pairs_of_answers(tmp_path: Path) -> None:
    rows = [
        {"system": "", "question": f"What is {n}?", "chosen": f"It is {n}.", "rejected": "It is none."}
        for n in range(60)
    ]
    rows.append({"system": "", "question": "Too long?", "chosen": "la " * 2000, "rejected": "No."})
    folder = make("orca-pairs", rows, "orca_rlhf.jsonl", tmp_path)
    phase = phase_of("orca-pairs")
    assert isinstance(phase, DpoPhase)
    train, heldout = dpo.read_rows(phase, folder)
    assert (len(train), len(heldout)) == (54, 6)
    assert {row["rejected"] for row in (*train, *heldout)} == {"It is none."}
