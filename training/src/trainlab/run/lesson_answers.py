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


def _staged(base: Evidence, changed: Evidence) -> Answer:
    losses = [run["gate"]["perplexity"]["after"] for run in (base, changed)]
    gate = changed["gate"]
    letter = "a" if gate["promoted"] else "b" if gate["verdict"] == "better" else "c"
    return letter, f"perplexity {losses[0]:.0f} without and {losses[1]:.0f} with the change; {_gate(changed)}."


ANSWERS: Mapping[str, Callable[[Evidence, Evidence], Answer]] = {
    "quick": _quick,
    "resnet": _resnet,
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
