"""`trainlab lesson`: what it lists, prints and records, and that --check is true only of what the runs show."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from trainlab import cli
from trainlab.config.loading import load_values, phase_hash, trained
from trainlab.errors import UserError
from trainlab.run import lesson as lessons
from trainlab.run.lesson import ANSWERS

ROOT = lessons.PAGES.parents[2]
PAGES = sorted(lessons.PAGES.glob("*.md"))
LAST = len(PAGES)


def gate(after: float = 0.9, **more: Any) -> dict[str, Any]:
    """The scores of a gate.json that the lessons compare."""
    score = {"before": 3.0, "after": after, "pairs": 16}
    names = ("taught_recall", "accuracy", "refused", "harm", "gain", "perplexity")
    return {"promoted": True, "verdict": "better"} | dict.fromkeys(names, score) | more


REFUSED = {"promoted": False, "verdict": "worse"}
SUMMARY = {
    **{"steps": 180, "effective_batch": 64, "seconds": 40.0},
    **{"step_seconds": 2.0, "step_parts": {"communication": 1.0}},
}
CASES = [
    ("quick", gate(0.94), SUMMARY, gate(0.9), SUMMARY, "a"),
    ("quick", gate(0.94), SUMMARY, gate(0.6), SUMMARY, "b"),
    ("quick", gate(0.94), SUMMARY, gate(0.1, promoted=False), SUMMARY, "c"),
    ("resnet", gate(), SUMMARY, gate(), SUMMARY, "a"),
    ("resnet", gate(), SUMMARY, gate(), SUMMARY | {"steps": 90}, "b"),
    ("resnet", gate(), SUMMARY, gate(), SUMMARY | {"steps": 360}, "c"),
    ("survival", gate(0.83), SUMMARY, gate(0.8), SUMMARY, "a"),
    ("survival", gate(0.83), SUMMARY, gate(0.5), SUMMARY, "b"),
    ("survival", gate(0.83), SUMMARY, gate(0.2), SUMMARY, "c"),
    ("gemma", gate(2.9), SUMMARY, gate(2.8), SUMMARY, "a"),
    ("gemma", gate(2.9), SUMMARY, gate(2.95), SUMMARY, "b"),
    ("gemma", gate(2.9), SUMMARY, gate(6.0, **REFUSED), SUMMARY, "c"),
    ("staged-pretrain", gate(112.0), SUMMARY, gate(290.0), SUMMARY, "a"),
    ("staged-pretrain", gate(112.0), SUMMARY, gate(500.0, promoted=False), SUMMARY, "b"),
    ("staged-pretrain", gate(112.0), SUMMARY, gate(4000.0, **REFUSED), SUMMARY, "c"),
    ("slow-link", gate(), SUMMARY, gate(), SUMMARY | {"step_seconds": 2.5}, "a"),
    ("slow-link", gate(), SUMMARY, gate(), SUMMARY | {"step_seconds": 1.9}, "b"),
    ("slow-link", gate(), SUMMARY, gate(), SUMMARY | {"step_seconds": 1.5}, "c"),
]
"""Name, gate and summary without and with the change, and the letter that they give."""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the values of the checkout, and nothing that a learner has made."""
    (tmp_path / "values").symlink_to(ROOT / "values")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRAINLAB_ARTIFACTS", raising=False)
    return tmp_path


def called(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """Run `trainlab lesson`; return its exit code and all that it prints."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["lesson", *argv])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out + said.err


def lesson(phase: str) -> lessons.Lesson:
    """The lesson of a phase, with the files of the working directory."""
    (page,) = (page for page in PAGES if page.stem.partition("-")[2] == phase)
    artifacts = Path("artifacts")
    return lessons.Lesson(page, artifacts, [artifacts / "lessons" / "runs", artifacts])


def changed(one: lessons.Lesson) -> None:
    """Paste the page's block."""
    (block,) = re.findall(r"^```bash\n(.*?)^```", one.section("Change"), re.MULTILINE | re.DOTALL)
    subprocess.run(["bash", "-e", "-c", block], check=True)


def finish(one: lessons.Lesson, change: bool, folder: Path, gate: object, summary: object, ended: str = "2026") -> Path:
    """Write what a finished run of the lesson leaves in `folder`."""
    phase = load_values([*one.files, *([one.own] if change else [])]).phase
    run = folder / f"release-{phase_hash(phase)}"
    run.mkdir(parents=True)
    content = {"manifest": {"phase_hash": phase_hash(phase), "ended": ended}, "gate": gate, "training_summary": summary}
    for name, value in content.items():
        (run / f"{name}.json").write_text(json.dumps(value))
    return run


def test_each_lesson_has_a_page_and_the_answers_of_its_runs() -> None:
    assert [page.stem.partition("-")[2] for page in PAGES] == list(ANSWERS)
    assert [int(page.name[0]) for page in PAGES] == list(range(1, len(PAGES) + 1))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_changes_one_value_and_says_what_to_type(page: Path, checkout: Path) -> None:
    """The overlay that the learner pastes is valid and sets one key; the lines to train are those that --check prints."""
    one = lesson(page.stem.partition("-")[2])
    changed(one)
    before, after = (trained(load_values(files).phase) for files in (one.files, [*one.files, one.own]))

    def differences(old: Any, new: Any) -> int:
        if isinstance(old, dict) and isinstance(new, dict):
            return sum(differences(old.get(key), new.get(key)) for key in old.keys() | new.keys())
        return int(old != new)

    assert differences(before, after) == 1
    assert list(one.choices) == ["a", "b", "c"]
    assert {letter for phase, *_, letter in CASES if phase == one.name} == set(one.choices)
    for change in (False, True):
        assert f"\n{one.command(change)}\n" in one.text
    (answer,) = re.findall(r"The answer is `([a-z])`", one.section("What we saw"))
    assert answer in one.choices and one.section("Explain")


@pytest.mark.parametrize(("phase", "base", "first", "new", "second", "letter"), CASES)
def test_what_the_runs_show_is_one_of_the_answers(
    checkout: Path,
    capsys: pytest.CaptureFixture[str],
    phase: str,
    base: object,
    first: object,
    new: object,
    second: object,
    letter: str,
) -> None:
    """Whatever was predicted: the lesson is done, and the answer is that of the runs."""
    one = lesson(phase)
    changed(one)
    assert called(capsys, str(one.number), "--predict", "b")[0] == 0
    finish(one, False, Path("artifacts/lessons/runs"), base, first)
    finish(one, True, Path("artifacts"), new, second)
    code, said = called(capsys, str(one.number), "--check")
    assert code == 0, said
    assert f"\nThat is {letter}: {one.choices[letter]}\n" in said and said.count("\ndone ") == 4
    assert ("You predicted it." in said) == (letter == "b") and ("You predicted b." in said) == (letter != "b")
    assert one.section("Explain") in said


def test_each_step_that_is_missing_is_said_with_what_to_do(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = lesson("quick")

    def missing() -> dict[str, str]:
        code, said = called(capsys, "1", "--check")
        result = dict(re.findall(r"^missing  (.+?): (.+)$", said, re.MULTILINE))
        assert code == int(bool(result)), said
        return result

    first = missing()
    assert list(first) == list(lessons.STEPS.values())
    assert first["change one value"].startswith("write artifacts/lessons/quick.yaml")
    assert first["predict what it does"].endswith("`trainlab lesson 1 --predict a|b|c`")
    assert first["train without the change"].endswith(f": {one.command(False)}")
    one.own.parent.mkdir(parents=True)
    one.own.write_text("phase:\n  data: {taught_wordings: 3}\n")
    assert "is not what the page has you write" in missing()["change one value"]
    changed(one)
    assert missing()["train with the change"].endswith(f": {one.command(True)}")
    called(capsys, "1", "--predict", "c")
    run = finish(one, True, Path("artifacts"), gate(0.1), SUMMARY)
    unfinished = finish(one, False, Path("artifacts"), gate(), SUMMARY, ended="")
    assert list(missing()) == ["train without the change"], "a run that has not ended is no evidence"
    shutil.rmtree(unfinished)
    finish(one, False, Path("artifacts"), gate(), SUMMARY)
    assert missing() == {}
    (run / "gate.json").unlink()
    assert list(missing()) == ["train with the change"], "nor is one without a gate's decision"
    one.own.unlink()
    assert list(missing()) == ["change one value", "train with the change"]


def test_the_list_says_how_far_each_lesson_is(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = called(capsys)
    assert code == 0 and len(said.splitlines()) == said.count("0 of 4 steps") == len(PAGES)
    one = lesson("quick")
    changed(one)
    called(capsys, "1", "--predict", "a")
    for change in (False, True):
        finish(one, change, Path("artifacts"), gate(), SUMMARY)
    assert re.match(rf"1 +quick +done +{re.escape(one.title)}\n", called(capsys)[1])


def test_a_lesson_is_printed_without_its_result(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = called(capsys, "1")
    one = lesson("quick")
    assert code == 0 and one.text.startswith(said.rstrip("\n"))
    assert "## Predict" in said and one.section("Explain") not in said


def test_a_prediction_comes_before_the_run(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It can be changed until then, and a lesson's does not touch that of another."""
    one = lesson("quick")
    changed(one)
    for number, letter in (("1", "a"), ("2", "c"), ("1", "b")):
        assert called(capsys, number, "--predict", letter)[0] == 0
    assert (one.predicted, lesson("resnet").predicted) == ("b", "c")
    run = finish(one, True, Path("artifacts"), gate(), SUMMARY)
    code, said = called(capsys, "1", "--predict", "a")
    assert code == 2 and said.startswith(f"error: --predict a: {run} has already measured it") and one.predicted == "b"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["9"], f"error: lesson 9 does not exist; choose 1 to {LAST}\n"),
        (["0"], f"error: lesson 0 does not exist; choose 1 to {LAST}\n"),
        (["--check"], f"error: --predict and --check need the number of a lesson: 1 to {LAST}\n"),
        (["1", "--predict", "z"], "error: --predict z: lesson 1 has the answers a, b, c\n"),
    ],
)
def test_mistakes_are_a_sentence(
    checkout: Path, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    assert called(capsys, *argv) == (2, said)


def test_files_that_cannot_be_read_are_named(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = lesson("quick")
    changed(one)
    record = Path("artifacts/lessons/predictions.json")
    for content in ("[]", "{", '{"quick": "z"}', '{"quick": [1]}'):
        record.write_text(content)
        code, said = called(capsys, "1", "--check")
        if content.startswith('{"'):
            assert code == 1 and "missing  predict" in said, "no choice of the page"
        else:
            assert code == 2 and said.startswith(f"lesson 1: {one.title}\nerror: {record}: "), said
    called(capsys, "1", "--predict", "a")
    finish(one, False, Path("artifacts"), gate(), SUMMARY)
    run = finish(one, True, Path("artifacts"), {"promoted": True}, SUMMARY)
    code, said = called(capsys, "1", "--check")
    assert code == 2 and f"{run}: no score 'taught_recall' in gate.json" in said
    (run / "gate.json").write_text("{")
    code, said = called(capsys, "1", "--check")
    assert code == 2 and f"error: {run / 'gate.json'}: cannot be read as JSON" in said


def test_a_manifest_that_is_no_object_is_named(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path("artifacts/lessons/runs/quick-1")
    run.mkdir(parents=True)
    (run / "manifest.json").write_text("[]")
    with pytest.raises(UserError, match=r"quick-1/manifest.json: is no object; remove the folder"):
        lesson("quick").missing()


def test_other_folders_are_searched_on_request(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = lesson("quick")
    changed(one)
    called(capsys, "1", "--predict", "a")
    for change in (False, True):
        finish(one, change, Path("elsewhere"), gate(), SUMMARY)
    assert called(capsys, "1", "--check")[0] == 1
    assert called(capsys, "1", "--check", "--runs", "elsewhere")[0] == 0


def test_without_a_checkout_there_are_no_pages(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the image."""
    monkeypatch.setattr(lessons, "PAGES", checkout / "lessons")
    code, said = called(capsys)
    assert code == 2 and "no pages of lessons; they are in a checkout of trainlab" in said
