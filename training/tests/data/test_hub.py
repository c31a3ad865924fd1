"""Rows of a hub data set: what is kept, where it goes, what is refused; fetched for real from a hub on this machine."""

import json
import os
import random
import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from api_server.loopback_tls import self_signed
from checkout import SOURCES, VALUES
from datasets.exceptions import DatasetGenerationError
from hub_server import Hub, serving
from pyarrow import parquet
from tiny import make_phase
from trainlab import files
from trainlab.config import Phase
from trainlab.config.loading import load_values
from trainlab.data import chat_rows, row_files, table_rows
from trainlab.errors import UserError
from trainlab.models import chat
from trainlab.plan.source import job_of
from trainlab.recipes import sft

LYRICS = VALUES / "lyrics.yaml"
SET = "hf:own/set@" + "0" * 40
COLUMNS = {"instruction": "Instruction", "verse": "Label"}
NAMES = {"columns": COLUMNS, "accept_license": True}
VERSES: list[dict[str, Any]] = [
    {"Instruction": f"Sing of boat {i}.", "Label": f"The boat {i} is out\nand {i} gulls about"} for i in range(200)
]
LEFT_OUT: list[dict[str, Any]] = [
    {"Instruction": "Sing.", "Label": None},
    {"Instruction": "Sing.", "Label": " \n"},
    {"Instruction": "Sing.", "Label": "wrongly decoded \ufffd"},
    {"Instruction": "Sing.", "Label": "la " * 2000},
    {"Instruction": "sing of  BOAT 7.", "Label": "the boat 7 is out and 7 gulls about"},  # but for case and blanks
]


class Place:
    """A folder in which a phase's set lies where datasets takes it for the hub's, and a model volume."""

    def __init__(self, root: Path, base: dict[str, Any], model: Path) -> None:
        self.root, self._base, self._model = root, base, model
        self.models = root / "models"

    def phase(self, **blocks: Any) -> Phase:
        given = {"source": SET, "table": NAMES, **blocks.pop("data", {})}
        return make_phase(self._base, data=given, model={"max_length": 256}, **blocks)

    def write(self, found: list[dict[str, Any]]) -> None:
        path = self.root / "own" / "set" / "train.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")

    def fetch(self, phase: Phase) -> Path:
        result = table_rows.fetch(phase, self.models, self._model)
        assert result is not None
        return result


@pytest.fixture
def place(tmp_path: Path, phase_dict: dict[str, Any], tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path, phase_dict, tiny_model)


def sides(folder: Path) -> list[dict[str, str]]:
    """Return {verse or question: id} of the training and of the held-out part."""
    lines = [row_files.lines(folder / part) for part in ("train", "heldout")]
    return [{line.raw.get("verse") or line.raw["question"]: line.raw["id"] for line in part} for part in lines]


def test_every_row_is_in_a_part_or_counted(place: Place, tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place.write([*VERSES[:100], *LEFT_OUT, *VERSES[100:]])
    phase = place.phase()
    folder = place.fetch(phase)
    counts = files.read_json(folder / "source.json")["rows"]
    assert {name: counts[name] for name in table_rows.LEFT_OUT} == {"empty": 2, "broken": 1, "long": 1, "equal": 1}
    assert counts["read"] == 205 and counts["train"] + counts["heldout"] == 200 and 10 <= counts["heldout"] <= 32
    said = f"205 read, {counts['train']} to train on, {counts['heldout']} held out; left out: 2 without a text, "
    assert said + "1 with a broken text, 1 longer than phase.model.max_length, 1 equal" in capsys.readouterr().err
    tokenizer = chat.load_tokenizer(tiny_model, phase)
    loaded = [*chat_rows.load_train(phase.data, folder), *chat_rows.load_heldout(phase.data, folder)]
    assert all(chat.encode(tokenizer, phase, row) for row in loaded) and len(loaded) == 200  # none is too long there
    assert sorted(path.name for path in folder.iterdir()) == ["heldout", "source.json", "train"]
    record = sft.origin(phase, tiny_model, folder)["data"]
    fetched = folder / "source.json"
    files.write_json(fetched, {**files.read_json(fetched), "fetched": "another day"})
    assert sft.origin(phase, tiny_model, folder)["data"] == record, "the same rows, fetched again, are other data"
    assert record["rows"] == counts and record["license"].startswith("not stated on its card; the right to train")


def test_a_place_depends_on_the_verse_alone(place: Place) -> None:
    twice = [{"Instruction": "Again.", "Label": row["Label"].upper()} for row in VERSES[::2]]
    place.write([*VERSES, *twice])
    train, heldout = sides(place.fetch(place.phase()))
    held = {verse.lower() for verse in heldout}
    assert held and not held & {verse.lower() for verse in train}  # a verse with two instructions is on one side
    shuffled = random.Random(1).sample([*VERSES, *twice], 150)
    place.write(shuffled)
    place.models = place.root / "others"
    again = sides(place.fetch(place.phase()))
    for part, whole in zip(again, (train, heldout), strict=True):
        assert part and part.items() <= whole.items()


def test_rows_of_one_verse_stay_together_in_validation(place: Place) -> None:
    place.write([{**row, "Instruction": f"{row['Instruction']} {again}"} for row in VERSES[:40] for again in "ab"])
    found = chat_rows.load_train(place.phase().data, place.fetch(place.phase()))
    train, validation = chat_rows.split_by_question(found, 0.25, seed=1)
    assert validation and not {row["answer"] for row in train} & {row["answer"] for row in validation}


def test_a_draw_reads_the_first_lines_alone(place: Place) -> None:
    place.write(VERSES)
    folder = place.fetch(place.phase())
    (path,) = (folder / "train").glob("*.jsonl")
    whole = chat_rows.load_train(place.phase().data, folder)
    assert [row["id"] for row in whole] == sorted(row["id"] for row in whole)  # the digests' order is the draw
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:8]) + b"\xff broken\n")
    drawn = place.phase(data={"train_rows": 8}).data
    assert chat_rows.load_train(drawn, folder) == whole[:8]
    with pytest.raises(UserError, match=r":9: not UTF-8"):
        chat_rows.load_train(place.phase().data, folder)


def test_questions_and_answers_by_their_own_names(place: Place) -> None:
    place.write([{"question": f"What is {i}?", "answer": "a number", "n": i} for i in range(80)])
    phase = place.phase(data={"table": {"accept_license": True, "heldout_fraction": 0.3}})
    train, heldout = sides(place.fetch(phase))
    assert len(train) + len(heldout) == 80 and len(heldout) > 12  # equal answers are no reason to leave one out
    assert chat_rows.load_heldout(phase.data, place.fetch(phase))[0]["facts"] == []


def test_questions_that_differ_in_punctuation_are_on_one_side(place: Place) -> None:
    """Else they are found, with what to do: a folder may have been fetched by a release that divided them otherwise."""
    place.write(
        [{"question": one.format(i), "answer": "so"} for i in range(40) for one in ("Tie knot {}?", "tie knot {}")]
    )
    phase = place.phase(data={"table": {"accept_license": True, "heldout_fraction": 0.3}})
    folder = place.fetch(phase)
    train, heldout = ({chat_rows.normal(one) for one in part} for part in sides(folder))
    assert train and heldout and not train & heldout
    row_files.check_contamination(phase.data, folder)
    (path,) = (folder / "heldout").glob("*.jsonl")
    row = {"id": "new", "question": f"{next(iter(train)).upper()}!", "answer": "a", "facts": []}
    path.write_text(path.read_text("utf-8") + json.dumps(row), encoding="utf-8")
    with pytest.raises(UserError, match=rf"'TIE KNOT \d+!' is also trained on, .*: remove {folder} and fetch it again"):
        row_files.check_contamination(phase.data, folder)
    row_files.check_contamination(place.phase(data={"heldout_rows": len(heldout) // 2, "table": NAMES}).data, folder)


def test_verses_may_share_an_instruction(place: Place) -> None:
    place.write([{**row, "Instruction": "Sing."} for row in VERSES])
    row_files.check_contamination(place.phase().data, place.fetch(place.phase()))


def test_forms_come_along_and_unknown_ones_are_counted(place: Place) -> None:
    form = {0: "couplet", 1: "sonnet", 2: None}
    place.write([{**row, "Kind": form[i % 3]} for i, row in enumerate(VERSES)])
    phase = place.phase(data={"table": {**NAMES, "columns": {**COLUMNS, "form": "Kind"}}})
    folder = place.fetch(phase)
    assert files.read_json(folder / "source.json")["rows"]["unknown_form"] == 67
    assert {row.get("form") for row in chat_rows.load_heldout(phase.data, folder)} == {"couplet", None}


@pytest.mark.parametrize(
    ("found", "hub", "expected"),
    [
        (
            VERSES,
            {"columns": {"instruction": "Instruction", "verse": "Lyrics"}},
            r"column 'Lyrics' is missing; it has ",
        ),
        (
            VERSES,
            {"columns": {}},
            r"no columns instruction and verse, .* it has 'Instruction', 'Label': name them with",
        ),
        (LEFT_OUT[:4], {}, r"none of its rows can be used \(4 read, .* left out: 2 without a text, 1 with a broken"),
        (VERSES[:3], {}, r"too few rows, each part needs 2 \(3 read, .*; raise phase.data.table.fetch_rows or"),
        ([], {}, r"its files hold no rows; check name, revision, phase.data.table.config, or correct its files"),
        (VERSES, {"split": "test"}, r"cannot be fetched: .*test"),
    ],
)
def test_a_set_that_cannot_be_used_says_why(
    found: list[dict[str, Any]], hub: dict[str, Any], expected: str, place: Place
) -> None:
    place.write(found)
    with pytest.raises(UserError, match=f"phase.data.source is {SET}: (.*){expected}"):
        place.fetch(place.phase(data={"table": {**NAMES, **hub}}))
    assert not [path for path in place.models.iterdir() if path.is_dir()]  # nothing half done is left


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("train.jsonl", b'{"Instruction": "a", "Label": "b"}\n{"Instruction": "cut o', "JSON"),
        ("train.parquet", b"PAR1 cut off", "[Pp]arquet"),
        ("train.csv", b'Instruction,Label\na,b\nc,"d\n', "inside string|EOF|CSV|Error"),
    ],
)
def test_a_set_whose_files_are_broken_is_not_blamed_on_the_network(
    place: Place, name: str, content: bytes, cause: str
) -> None:
    """The innermost error is told: datasets' own says that an error occurred."""
    path = place.root / "own" / "set" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"phase.data.source is {SET}: cannot be fetched: .*({cause})") as caught:
        place.fetch(place.phase())
    told = str(caught.value)
    assert "HF_ENDPOINT" not in told and "correct its files in a volume" in told and "An error occurred" not in told


def test_a_full_volume_is_a_sentence(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    place.write(VERSES)
    monkeypatch.setattr(table_rows, "_entry", full)
    with pytest.raises(UserError, match=r"models: the volume is full \(.* MB free\); enlarge it"):
        place.fetch(place.phase())


def test_a_volume_that_fills_while_rows_become_arrow_is_the_same_sentence(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """datasets raises an error of its own from the one that says why."""

    def full(*given: Any, **named: Any) -> None:
        raise DatasetGenerationError("An error occurred") from OSError(28, "No space left on device")

    place.write(VERSES)
    monkeypatch.setattr("datasets.Dataset.from_json", full)
    with pytest.raises(UserError, match=r"models: the volume is full \(.* MB free\); enlarge it"):
        place.fetch(place.phase())


def test_rows_that_were_not_fetched_name_the_remedy(place: Place) -> None:
    with pytest.raises(
        UserError, match=r"phase.data.source is hf:.*: no folder .*; run `trainlab fetch` with the same"
    ):
        sft.data_dir(place.phase(), place.models, None)


def test_counts_of_the_planner_are_the_most_that_can_come(tmp_path: Path) -> None:
    overlay = tmp_path / "songs.yaml"
    overlay.write_text(json.dumps({"phase": {"data": {"source": SET, "table": {**NAMES, "fetch_rows": 5000}}}}))
    assert job_of(load_values([LYRICS, overlay]), [LYRICS]).rows == 4500


def test_the_overlay_of_the_documentation_is_correct(tmp_path: Path) -> None:
    page = (LYRICS.parents[1] / "docs" / "learn" / "lyrics.md").read_text(encoding="utf-8")
    (snippet,) = (block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "@REVISION" in block)
    overlay = tmp_path / "songs.yaml"
    overlay.write_text(snippet, encoding="utf-8")
    with pytest.raises(UserError, match=r"phase.data.source is .*@REVISION'?: has the wrong format"):
        load_values([LYRICS, overlay])
    overlay.write_text(snippet.replace("@REVISION", "@" + "0" * 40), encoding="utf-8")
    hub = load_values([LYRICS, overlay]).phase.data.table
    assert hub and hub.columns.verse == "Label" and hub.accept_license


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A hub's folder with one set of two Parquet files and a card."""
    folder = tmp_path / "hub" / "own" / "set"
    folder.mkdir(parents=True)
    for part in range(2):
        table = pyarrow.Table.from_pylist([{**row, "n": part} for row in VERSES])
        parquet.write_table(table, folder / f"train-{part:05}-of-00002.parquet", row_group_size=50)
    (folder / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n# Songs\n", encoding="utf-8")
    return tmp_path / "hub"


def trainlab(
    place: Place, phase: Phase, url: str, token: str, *command: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    file = place.root / "phase.json"
    file.write_text(json.dumps({"phase": phase.model_dump(mode="json")}), encoding="utf-8")
    env = {
        **os.environ,
        "PYTHONPATH": str(SOURCES),
        "HF_ENDPOINT": url,
        "HF_TOKEN": token,
        "HF_HUB_DOWNLOAD_TIMEOUT": "3",
        **environment,
    }
    env["HF_HOME"] = str(place.root / "home")
    line = [sys.executable, "-m", "trainlab.cli", command[0], str(file), *command[1:], "--models", str(place.models)]
    return subprocess.run(line, env=env, capture_output=True, text=True, check=False)


def start(place: Place, tiny_model: Path) -> Phase:
    place.models.mkdir()
    (place.models / "tiny").symlink_to(tiny_model)
    hub = {**NAMES, "fetch_rows": 200}
    return place.phase(
        data={"table": hub, "train_rows": 24, "heldout_rows": 6}, lora={"rank": 2}, train={"epochs": 1, "batch_size": 4}
    )


@pytest.mark.rest
def test_from_the_hub_to_a_tuned_adapter(place: Place, remote: Path, tiny_model: Path) -> None:
    phase = start(place, tiny_model)
    with serving(remote, token="hf_right") as hub:
        fetched = trainlab(place, phase, hub.url, "hf_right", "fetch")
        assert fetched.returncode == 0, fetched.stderr
        assert "(license on its card: cc-by-nc-4.0)" in fetched.stderr and "200 read" in fetched.stderr
        assert any("train-00000" in one for one in hub.seen) and not any("train-00001" in one for one in hub.seen)
        hub.seen.clear()
        assert trainlab(place, phase, hub.url, "hf_right", "fetch").returncode == 0
        assert _of_sets(hub) == []  # it is there
    done = trainlab(place, phase, "http://127.0.0.1:9", "", "run", "--out", str(place.root / "runs"), "--run", "songs")
    assert done.returncode == 0, done.stderr
    run_dir = place.root / "runs" / "songs"
    assert files.read_json(run_dir / "training_summary.json")["rows"] in (22, 23)  # of 24, less the validation's
    record = files.read_json(run_dir / "manifest.json")["data"]
    assert record["source"] == SET and record["rows"]["read"] == 200
    assert record["license"].startswith("cc-by-nc-4.0 on its card; the right to train on it was claimed")
    told = dict(files.read_json(run_dir / "report.json")["provenance"])
    assert told["Its license"] == record["license"] and told["Its rows"].startswith("200 read, ")
    assert (run_dir / "lora_adapter" / "adapter_config.json").exists()


@pytest.mark.rest
def test_a_hub_behind_certificates_of_ones_own(place: Place, remote: Path, tiny_model: Path, tmp_path: Path) -> None:
    """SSL_CERT_FILE is what site.caConfigMap sets."""
    phase = start(place, tiny_model)
    certificate, pem = self_signed(tmp_path / "hub", "IP:127.0.0.1")
    pem.write_text(pem.read_text("utf-8") + certificate.read_text("utf-8"), encoding="utf-8")
    with serving(remote, certificate=pem) as hub:
        unknown = trainlab(place, phase, hub.url, "", "fetch")
        known = trainlab(place, phase, hub.url, "", "fetch", SSL_CERT_FILE=str(certificate))
    assert unknown.returncode == 2 and "Traceback" not in unknown.stderr
    assert "CERTIFICATE_VERIFY_FAILED" in unknown.stderr and "site.caConfigMap" in unknown.stderr
    assert known.returncode == 0, known.stderr


def _of_sets(hub: Hub) -> list[str]:
    return [one for one in hub.seen if "datasets" in one]


@pytest.mark.rest
def test_a_gate_a_wrong_revision_and_a_hub_out_of_reach_are_sentences(
    place: Place, remote: Path, tiny_model: Path
) -> None:
    phase = start(place, tiny_model)
    with serving(remote, token="hf_right") as hub:
        gated = trainlab(place, phase, hub.url, "", "fetch")
        hub.revisions = {"2" * 40}
        unknown = trainlab(place, phase, hub.url, "hf_right", "fetch")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{probe.getsockname()[1]}"
        away = trainlab(place, phase, closed, "", "fetch")
    for done in (gated, unknown, away):
        assert done.returncode == 2 and "Traceback" not in done.stderr
        assert f"error: phase.data.source is {SET}: cannot be fetched: " in done.stderr
        assert "phase.data.table.config, the token of a gated set (site.hfTokenSecret)" in done.stderr
    assert "401 Client Error. Cannot access gated repo" in gated.stderr
    assert "404 Client Error. Revision Not Found" in unknown.stderr
    assert "license on its card" not in gated.stderr + away.stderr  # which nobody could read
    assert Counter(path.suffix for path in place.models.iterdir()) == {"": 1, ".lock": 1}
