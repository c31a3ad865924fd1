"""`trainlab lesson`: list the lessons, print one, record a prediction, check by the runs what is done. No torch.

A lesson's text is its page in docs/learn/lessons, N-NAME.md: title, overlay and choices are read from there. Most have the name of
their phase; PHASES has the others. What its runs have to say about the choices is in ANSWERS. What a learner makes lies below artifacts/
(or TRAINLAB_ARTIFACTS).
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainlab import files
from trainlab.config.loading import load_values, phase_hash, read_mapping
from trainlab.errors import UserError

PAGES = Path(__file__).resolve().parents[4] / "docs" / "learn" / "lessons"
EVIDENCE = ("gate.json", "training_summary.json")
"""Of a finished run, next to its manifest; the playbooks fetch them from a cluster's volume."""
PREDICTIONS = "predictions.json"
Evidence = Mapping[str, Any]
"""The content of a run's gate.json and training_summary.json, under the names without .json."""
Answer = tuple[str, str]
PHASES = {"slow-link": "gemma"}
LOCAL, CLUSTER = "Run in local processes", "Run on the embedded cluster"
"""Headings of a page; what needs a cluster has no first one."""
ABOUT, HALF = 0.9, 0.5
"""Shares of the unchanged run's score: from the first on it is about as high, below the second less than half."""


@dataclass(frozen=True)
class Lesson:
    """One page, and where a learner's files of it are."""

    page: Path
    artifacts: Path
    folders: Sequence[Path]
    """Where runs are looked for."""

    @property
    def number(self) -> int:
        """Return the lesson's number."""
        return int(self.page.name.partition("-")[0])

    @property
    def name(self) -> str:
        """Return the lesson's name, as its page and a learner's overlay have it."""
        return self.page.stem.partition("-")[2]

    @property
    def phase(self) -> str:
        """Return the phase, as its values files are named."""
        return PHASES.get(self.name, self.name)

    @property
    def text(self) -> str:
        """Return the page."""
        return self.page.read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        """Return the title of the page without its number."""
        return self.text.partition("\n")[0].partition(": ")[2]

    @property
    def choices(self) -> dict[str, str]:
        """Return letter and text of each choice of the page's question."""
        listed = re.findall(r"^- `([a-z])`: (.+(?:\n  .+)*)", self.section("Predict"), re.MULTILINE)
        return {letter: re.sub(r"\s+", " ", text) for letter, text in listed}

    @property
    def overlay(self) -> dict[str, Any]:
        """Return what the page has the learner write."""
        return dict(yaml.safe_load(re.findall(r"<<'END'\n(.+?)\nEND\n", self.section("Change"), re.DOTALL)[0]))

    @property
    def own(self) -> Path:
        """Return the learner's overlay."""
        return self.artifacts / "lessons" / f"{self.name}.yaml"

    @property
    def files(self) -> list[Path]:
        """Return the values files of the phase on two cores."""
        return [Path("values") / f"{self.phase}.yaml", Path("values") / "local" / f"{self.phase}.yaml"]

    def section(self, title: str) -> str:
        """Return the text below a heading of the page."""
        return re.split(r"^## ", self.text.partition(f"\n## {title}\n")[2], flags=re.MULTILINE)[0].strip()

    def command(self, changed: bool) -> str:
        """Return the line that trains without or with the learner's overlay: in local processes, or else the page's for a cluster."""
        if not self.section(LOCAL):
            return re.findall(r"^ansible-playbook .+", self.section(CLUSTER), re.MULTILINE)[0]
        first, *more = [*self.files, *([self.own] if changed else [])]
        overlays = " ".join(f"-f {file}" for file in more)
        return f"trainlab run {first} {overlays} --models {self.artifacts}/lessons/models --out {self.artifacts}/lessons/runs"

    def run(self, changed: bool) -> Path | None:
        """Return the folder of the newest finished run of the phase, without or with the overlay; None if there is no such run."""
        wanted = phase_hash(load_values([*self.files, *([self.own] if changed else [])]).phase)
        ended = {}
        for folder in self.folders:
            for path in sorted(folder.glob("*/manifest.json")):
                manifest = files.read_json(path)
                if not isinstance(manifest, dict):
                    raise UserError(f"{path}: is no object; remove the folder, and train or fetch the run again")
                if manifest.get("phase_hash") == wanted and manifest.get("ended"):
                    if all((path.parent / name).exists() for name in EVIDENCE):
                        ended[manifest["ended"]] = path.parent
        return ended[max(ended)] if ended else None

    def missing(self) -> Mapping[str, str]:
        """Return the steps that are not done, each with what to do, in the order of the page.

        UserError for values files that are not there, or not valid.
        """
        steps = {}
        if not self.own.exists():
            steps["change"] = f"write {self.own} as the page has it: `trainlab lesson {self.number}`"
        elif read_mapping(self.own) != self.overlay:
            steps["change"] = f"{self.own} is not what the page has you write: `trainlab lesson {self.number}`"
        if self.predicted is None:
            letters = "|".join(self.choices)
            steps["predict"] = f"choose one of the page's answers: `trainlab lesson {self.number} --predict {letters}`"
        if self.run(False) is None:
            steps["base"] = f"no finished run in {_listed(self.folders)}: {self.command(False)}"
        if "change" in steps:
            steps["run"] = "comes after the change"
        elif self.run(True) is None:
            steps["run"] = f"no finished run in {_listed(self.folders)}: {self.command(True)}"
        return steps

    @property
    def predicted(self) -> str | None:
        """Return the letter that the learner predicted; None before, and if the page has no such choice any more."""
        chosen = _predictions(self.artifacts).get(self.name)
        return chosen if isinstance(chosen, str) and chosen in self.choices else None


STEPS = {
    "change": "change one value",
    "predict": "predict what it does",
    "base": "train without the change",
    "run": "train with the change",
}


def command(number: int | None, predict: str | None, check: bool, runs: Sequence[Path]) -> int:
    """Do what the command line asks for; return 0, or 1 for a lesson that --check finds not done.

    UserError: no such lesson or choice, an option without a number, a prediction after its run, values files or runs that cannot
    be read.
    """
    artifacts = Path(os.environ.get("TRAINLAB_ARTIFACTS") or "artifacts")
    lessons = _lessons(artifacts, runs or [artifacts / "lessons" / "runs", artifacts])
    if number is None:
        if predict or check:
            raise UserError(f"--predict and --check need the number of a lesson: {_numbers(lessons)}")
        for lesson in lessons.values():
            left = lesson.missing()
            state = f"{len(STEPS) - len(left)} of {len(STEPS)} steps" if left else "done"
            print(f"{lesson.number}  {lesson.name:16} {state:14} {lesson.title}")
        return 0
    if number not in lessons:
        raise UserError(f"lesson {number} does not exist; choose {_numbers(lessons)}")
    lesson = lessons[number]
    if predict:
        _predict(lesson, predict)
    if check:
        return _check(lesson)
    if not predict:
        print(lesson.text.partition("\n## What we saw\n")[0])
    return 0


def _lessons(artifacts: Path, folders: Sequence[Path]) -> dict[int, Lesson]:
    pages = sorted(PAGES.glob("[0-9]-*.md"))
    if not pages:
        raise UserError(f"{PAGES}: no pages of lessons; they are in a checkout of trainlab: run it there")
    lessons = [Lesson(page, artifacts, folders) for page in pages]
    return {lesson.number: lesson for lesson in lessons}


def _predict(lesson: Lesson, letter: str) -> None:
    if letter not in lesson.choices:
        raise UserError(f"--predict {letter}: lesson {lesson.number} has the answers {', '.join(lesson.choices)}")
    if lesson.own.exists() and (run := lesson.run(True)):
        raise UserError(
            f"--predict {letter}: {run} has already measured it, and a prediction comes first: remove that folder, predict, and "
            "train or fetch the run again"
        )
    files.write_json(_record(lesson.artifacts), _predictions(lesson.artifacts) | {lesson.name: letter})
    print(f"lesson {lesson.number}: you predict {letter}: {lesson.choices[letter]}")


def _check(lesson: Lesson) -> int:
    print(f"lesson {lesson.number}: {lesson.title}")
    left = lesson.missing()
    for step, what in STEPS.items():
        print(f"{'missing' if step in left else 'done':8} {what}{': ' + left[step] if step in left else ''}")
    base, changed = lesson.run(False), lesson.run(True) if "change" not in left else None
    if left or base is None or changed is None:
        return 1
    try:
        letter, measured = ANSWERS[lesson.name](_evidence(base), _evidence(changed))
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{base} or {changed}: no score {error} in {' or '.join(EVIDENCE)}; remove the folder, and train or fetch the run again"
        ) from None
    print(f"\nwithout the change: {base}\nwith the change:    {changed}\nmeasured: {measured}")
    print(f"That is {letter}: {lesson.choices[letter]}")
    print("You predicted it." if lesson.predicted == letter else f"You predicted {lesson.predicted}. Why it is not so:")
    print(f"\n{lesson.section('Explain')}")
    return 0


def _evidence(run: Path) -> Evidence:
    return {name.partition(".")[0]: files.read_json(run / name) for name in EVIDENCE}


def _record(artifacts: Path) -> Path:
    return artifacts / "lessons" / PREDICTIONS


def _predictions(artifacts: Path) -> dict[str, str]:
    path = _record(artifacts)
    content = files.read_json(path) if path.exists() else {}
    if not isinstance(content, dict):
        raise UserError(f"{path}: is no object of predictions; remove it, and predict again")
    return content


def _listed(folders: Sequence[Path]) -> str:
    return " or ".join(map(str, folders))


def _numbers(lessons: Mapping[int, Lesson]) -> str:
    return f"{min(lessons)} to {max(lessons)}"


def _quick(base: Evidence, changed: Evidence) -> Answer:
    scores = [run["gate"]["taught_recall"]["after"] for run in (base, changed)]
    letter = _share(scores[0], scores[1])
    asked = changed["gate"]["taught_recall"]["pairs"]
    return letter, f"taught recall {_percent(scores)}, the latter over {asked} questions; {_gate(changed)}."


def _resnet(base: Evidence, changed: Evidence) -> Answer:
    steps, batches, seconds = (
        [run["training_summary"][key] for run in (base, changed)] for key in ("steps", "effective_batch", "seconds")
    )
    letter = "b" if steps[1] < steps[0] else "c" if steps[1] > steps[0] else "a"
    accuracy = _percent([run["gate"]["accuracy"]["after"] for run in (base, changed)])
    return letter, (
        f"{steps[0]} steps of {batches[0]} images without, {steps[1]} steps of {batches[1]} images with the change; "
        f"test accuracy {accuracy}; {seconds[0]:.0f} s and {seconds[1]:.0f} s of training."
    )


def _survival(base: Evidence, changed: Evidence) -> Answer:
    scores = [run["gate"]["refused"]["after"] for run in (base, changed)]
    letter = _share(scores[0], scores[1])
    recall = _percent([run["gate"]["taught_recall"]["after"] for run in (base, changed)])
    harm = " and ".join(f"{run['gate']['harm']['after'] * run['gate']['harm']['pairs']:.0f}" for run in (base, changed))
    return letter, (
        f"questions never taught that are refused {_percent(scores)}; taught recall {recall}; emergencies answered with "
        f"another question's answer: {harm} of {changed['gate']['harm']['pairs']}; {_gate(changed)}."
    )


def _gemma(base: Evidence, changed: Evidence) -> Answer:
    losses = [run["gate"]["gain"]["after"] for run in (base, changed)]
    verdict, untrained = changed["gate"]["verdict"], changed["gate"]["gain"]["before"]
    letter = "c" if verdict == "worse" else "a" if losses[1] < losses[0] else "b"
    return letter, (
        f"loss per token {untrained:.2f} before training, {losses[0]:.2f} after it without and {losses[1]:.2f} with the "
        f"change; {_gate(changed)}."
    )


def _staged(base: Evidence, changed: Evidence) -> Answer:
    losses = [run["gate"]["perplexity"]["after"] for run in (base, changed)]
    gate = changed["gate"]
    letter = "a" if gate["promoted"] else "b" if gate["verdict"] == "better" else "c"
    return letter, f"perplexity {losses[0]:.0f} without and {losses[1]:.0f} with the change; {_gate(changed)}."


def _slow_link(base: Evidence, changed: Evidence) -> Answer:
    summaries = [run["training_summary"] for run in (base, changed)]
    rates = [each["effective_batch"] / each["step_seconds"] for each in summaries]
    letter = "a" if rates[1] < ABOUT * rates[0] else "b" if rates[1] * ABOUT <= rates[0] else "c"
    step, sent = summaries[0]["step_seconds"], summaries[0]["step_parts"]["communication"]
    return letter, (
        f"{rates[0]:.2f} rows a second on two nodes and {rates[1]:.2f} on one node; a step of two nodes took {step:.1f} s, of it "
        f"communication {sent:.1f} s ({sent / step:.0%})."
    )


ANSWERS: Mapping[str, Callable[[Evidence, Evidence], Answer]] = {
    "quick": _quick,
    "resnet": _resnet,
    "survival": _survival,
    "gemma": _gemma,
    "staged-pretrain": _staged,
    "slow-link": _slow_link,
}
"""By the name of the lesson. Raises KeyError or TypeError for a run whose files lack a score."""


def _share(base: float, changed: float) -> str:
    """Return a for about as high, b for lower, c for less than half as high."""
    if changed >= ABOUT * base:
        return "a"
    return "b" if changed >= HALF * base else "c"


def _percent(shares: list[float]) -> str:
    return "{:.1%} without and {:.1%} with the change".format(*shares)


def _gate(run: Evidence) -> str:
    verdict = "promoted" if run["gate"]["promoted"] else "did not promote"
    return f"the gate {verdict} the changed run"
