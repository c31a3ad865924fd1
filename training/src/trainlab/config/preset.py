"""The section `preset:`: a phase that the chart carries, chosen by name and scale instead of with files.

The files are those of the checkout's folder values/. Helm reads no file outside of a chart's folder, so `make gen` copies
them into the chart's presets.json.
"""

from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field

from trainlab.config.rule import shown
from trainlab.config.types import Strict

FOLDER = (Path(__file__).parent / "../../../../values").resolve()
Scale = Literal["full", "local"]


class Preset(Strict):
    """A phase that the chart carries: the same run as with its values files. What is given under `phase:` wins over it."""

    phase: str = Field("", description="Name of the phase; empty for none, then `phase:` must be given.")
    scale: Scale = Field("full", description="full: with GPUs. local: small enough for two CPU cores and no GPU.")


def names() -> tuple[str, ...]:
    """Return the phases of the checkout, sorted; none where the package is installed without its checkout."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def files(phase: str, scale: str) -> list[Path]:
    """Return the values files of a phase at a scale; the last wins, and may be missing."""
    full = FOLDER / f"{phase}.yaml"
    return [full] if scale == "full" else [full, FOLDER / scale / full.name]


def mistake(preset: Any) -> str:
    """Return what is wrong with this block beyond its keys and types, as the chart says it; empty if nothing is."""
    if not isinstance(preset, dict):
        return ""
    phase, scale = preset.get("phase", ""), preset.get("scale", "full")
    if scale not in get_args(Scale) or not isinstance(phase, str):  # pydantic reports it
        return ""
    if not phase:
        return "" if scale == "full" else f"preset.scale: {scale} without preset.phase; name the phase there"
    if not (known := names()):
        return (
            "preset.phase: the folder values of the checkout is not beside this package; give the phase's files instead"
        )
    if phase not in known:
        return f"preset.phase is '{shown(phase)}': must be one of {', '.join(known)}; set one of these"
    if not files(phase, scale)[-1].is_file():
        return f"preset.scale: {scale}, which {phase} does not have; set full"
    return ""


def chosen(preset: Any) -> list[Path]:
    """Return the values files that a block stands for; with an unknown scale those of full, so that only the scale is refused."""
    if not isinstance(preset, dict) or preset.get("phase") not in names():
        return []
    scale = preset.get("scale", "full")
    return files(preset["phase"], scale if scale in get_args(Scale) else "full")
