"""Curves over the steps as inline SVG; colors come from the page's style. Used by page.py. Numbers in, markup out."""

import math
from collections.abc import Sequence

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 300, 46, 14, 12, 40


def curves(training: Points, validation: Points, what: str = "loss") -> str:
    """Return an SVG of losses (or `what`) over steps; an empty string without finite points."""
    training, validation = _finite(training), _finite(validation)
    points = [*training, *validation]
    if not points:
        return ""
    steps, losses = [x for x, __ in points], [y for __, y in points]
    x_ticks, y_ticks = ticks(min(0.0, *steps), max(steps)), ticks(min(losses), max(losses))
    x_low, x_high = min(0.0, *steps), max(1, *steps)
    y_low, y_high = min(y_ticks[0], *losses), max(y_ticks[-1], *losses)

    def x(value: float) -> float:
        return LEFT + (value - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (y_high - value) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    def line(series: Points, css: str) -> str:
        return f'<polyline class="{css}" points="{" ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in series)}"/>'

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_label(training, validation, what)}">']
    for tick in y_ticks:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 5:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in x_ticks:
        if tick <= x_high:
            parts.append(f'<text x="{x(tick):.1f}" y="{HEIGHT - 20}" text-anchor="middle">{tick:g}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 3}" text-anchor="middle">optimizer step</text>')
    if len(training) > 30:
        parts += [line(training, "raw"), line(smooth(training), "training")]
    else:
        parts.append(line(training, "training"))
    if len(validation) > 1:
        parts.append(line(validation, "validation"))
    for a, b in validation:
        parts.append(f'<circle class="validation" cx="{x(a):.1f}" cy="{y(b):.1f}" r="5"/>')
    return "".join([*parts, "</svg>"])


def smooth(points: Points) -> list[tuple[float, float]]:
    """Return a centered moving average over a tenth of the points."""
    reach = max(1, len(points) // 20)
    values = [value for __, value in points]
    windows = [values[max(0, i - reach) : i + reach + 1] for i in range(len(values))]
    return [(step, sum(window) / len(window)) for (step, __), window in zip(points, windows, strict=True)]


def ticks(low: float, high: float) -> list[float]:
    """Return three to seven round numbers that cover low to high."""
    span = high - low or max(abs(high), 1.0) / 10
    size = 10 ** math.floor(math.log10(span / 3))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if span / (size * factor) <= 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(index * step, 10) for index in range(first, max(last, first + 1) + 1)]


def _finite(points: Points) -> Points:
    return [(step, value) for step, value in points if math.isfinite(value)]


def _label(training: Points, validation: Points, what: str) -> str:
    both = (("training", training), ("validation", validation))
    texts = [f"{name} {what} from {p[0][1]:.3f} to {p[-1][1]:.3f} over {p[-1][0]:g} steps" for name, p in both if p]
    return "; ".join(texts)
