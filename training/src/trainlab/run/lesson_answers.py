"""Which answer of a lesson's question its two runs give: for each phase a letter of the page, and what was measured. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

Evidence = Mapping[str, Any]
"""The content of a run's gate.json and training_summary.json, under the names without .json."""
Answer = tuple[str, str]
ABOUT, HALF = 0.9, 0.5
"""Shares of the unchanged run's score: from the first on it is about as high, below the second less than half."""


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


ANSWERS: Mapping[str, Callable[[Evidence, Evidence], Answer]] = {
    "quick": _quick,
    "resnet": _resnet,
    "survival": _survival,
    "gemma": _gemma,
    "staged-pretrain": _staged,
}
"""By the phase of the lesson. Raises KeyError or TypeError for a run whose files lack a score."""


def _share(base: float, changed: float) -> str:
    """Return a for about as high, b for lower, c for less than half as high."""
    if changed >= ABOUT * base:
        return "a"
    return "b" if changed >= HALF * base else "c"


def _percent(shares: list[float]) -> str:
    return "{:.1%} without and {:.1%} with the change".format(*shares)


def _gate(run: Evidence) -> str:
    said = "promoted" if run["gate"]["promoted"] else "did not promote"
    return f"the gate {said} the changed run"
