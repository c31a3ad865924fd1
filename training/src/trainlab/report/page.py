"""Render the content of a report as HTML; used by the recipes. Jinja escapes everything from outside."""

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files as package_files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from trainlab.evaluation import facts
from trainlab.report import charts

WORDING = {
    "names": {"base": "base", "tuned": "tuned"},
    "unit": "questions",
    "scores": "Scores on questions that were not trained on",
    "same": "Same prompts, same template, greedy decoding for both models.",
    "curve": "Loss during training",
    "legend": ["training rows", "validation questions"],
    "topics": "Answer loss by topic",
    "topic": "Topic",
    "topic_share": False,
    "worse": "Worse: questions whose loss rose.",
    "answers": "The demo's questions, before and after",
    "answers_note": "Not scored: there are no reference facts for these answers. Read them critically.",
    "footer": "Language models can be wrong: do not act on an answer where health or safety is at stake.",
}
ONLY_SOME = ("pictures", "stages", "tasks", "clearest", "worst", "unsafe", "missed", "emergencies")
"""Content that not every report has."""
SHOWN = 4  # held-out answers shown expanded; the others are folded


def render(content: Mapping[str, Any], wording: Mapping[str, Any]) -> str:
    """Return the page: one file, no script, no external resources; `wording` has the keys of WORDING.

    Content that not every recipe has: `pictures` (images with predictions) and `accuracy` (a second pair of curves).
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"score": score, "marked": marked, "perplexity": perplexity, "reach": reach}
    curves, second = content["curves"], content.get("accuracy")
    more = charts.curves(second["training"], second["validation"], "accuracy in %") if second else ""
    return environment.from_string(text("page.html.j2")).render(
        **{**dict.fromkeys(ONLY_SOME, ()), **content},
        wording=wording,
        style=style(),
        chart=Markup(charts.curves(curves["training"], curves["validation"])),
        second_chart=Markup(more),
        trace_charts=[
            {"what": trace["what"], "chart": Markup(charts.curves(trace["points"], [], trace["what"]))}
            for trace in content.get("traces", [])
        ],
        bars=[bar_chart(entry) for entry in content["scores"]],
        shown=SHOWN,
    )


def style() -> Markup:
    """Return the style sheet that all pages of reports have."""
    return Markup(text("style.css"))


def text(name: str) -> str:
    """Return a template or style sheet of this folder."""
    return package_files("trainlab.report").joinpath(name).read_text(encoding="utf-8")


def score(value: float, share: bool, signed: bool = False) -> str:
    """Return a score as text: a share in per cent, a loss to three decimals."""
    text = f"{value:{'+' if signed else ''}.{1 if share else 3}{'%' if share else 'f'}}"
    return text.replace("-", "\u2212")


def reach(entry: Mapping[str, Any], share: bool) -> str:
    """Return the interval of a gain as text."""
    if entry["low"] is None:
        return "no interval"
    return f"interval {score(entry['low'], share, True)} to {score(entry['high'], share, True)}"


def perplexity(loss: float) -> str:
    """Return exp(loss) as text."""
    return f"{math.exp(loss):,.2f}" if loss < 20 else "over 10^8"


def marked(text: str, spellings: Sequence[Sequence[str]]) -> Markup:
    """Return a text with the facts it states in <mark>."""
    pieces = facts.marked(text, spellings)
    return Markup().join(Markup("<mark>{}</mark>").format(piece) if stated else piece for piece, stated in pieces)


def bar_chart(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return one score with positions in per cent of the chart's width, for bars and for the interval of the gain."""
    ends = [_ends(drawn) for drawn in entry["bars"]]
    top = 1.0 if entry["share"] else max(high for __, high in ends) * 1.08 or 1.0
    bars = [
        {**drawn, "width": 100 * drawn["mean"] / top, "start": 100 * low / top, "end": 100 * high / top}
        for drawn, (low, high) in zip(entry["bars"], ends, strict=True)
    ]
    gain = {**entry["gain"], **dict(zip(("low", "high"), _ends(entry["gain"]), strict=True))}
    low, high = min(gain["low"], 0.0), max(gain["high"], 0.0)
    room = (high - low or 1.0) * 0.15

    def place(value: float) -> float:
        return 100 * (value - low + room) / (high - low + 2 * room)

    places = {name: place(value) for name, value in (("zero", 0.0), *((n, gain[n]) for n in ("low", "mean", "high")))}
    return {**entry, "bars": bars, "places": places}


def _ends(score: Mapping[str, Any]) -> tuple[float, float]:
    """Return the ends of a score's interval, its mean where there is none: a point instead of a bar."""
    return (score["mean"], score["mean"]) if score["low"] is None else (score["low"], score["high"])
