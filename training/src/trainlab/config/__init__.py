"""What a values file may contain: name, type, bounds and help of every key, and what may not be combined.

This is the single source of truth: `make gen` derives the chart's values.schema.json, its tables and its README from
it, the pod reads its phase.json through it, Ansible checks a phase with it. It must not import torch (`trainlab check`
runs in 0.5 s). Field names under `phase:` are snake_case (three languages read them), under `site:` camelCase as Helm
users expect.
"""

from typing import Self

from pydantic import ValidationInfo, model_validator

from trainlab.config.phases import (
    NOT_TRAINING,
    PHASES,
    AdaptersPhase,
    AnyPhase,
    ChatPhase,
    CptPhase,
    DpoPhase,
    LanguagePhase,
    Phase,
    PretrainPhase,
    ResnetPhase,
    SftPhase,
    TextPhase,
)
from trainlab.config.preset import Preset
from trainlab.config.rule import computed
from trainlab.config.rules import RULES
from trainlab.config.site import Site
from trainlab.config.types import Strict

__all__ = [
    "NOT_TRAINING",
    "PHASES",
    "AdaptersPhase",
    "ChatPhase",
    "CptPhase",
    "DpoPhase",
    "LanguagePhase",
    "Phase",
    "Preset",
    "PretrainPhase",
    "ResnetPhase",
    "SftPhase",
    "Site",
    "TextPhase",
    "Values",
]


class Values(Strict):
    """A whole values file: what is trained (`phase`, or `preset` for one that the chart carries) and where it runs (`site`)."""

    preset: Preset = Preset()
    phase: AnyPhase
    site: Site = Site()

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        values = self.model_dump(mode="json", by_alias=True)
        rules = [rule for rule in RULES if not info.context or not rule.key.startswith(info.context["elsewhere"])]
        if sentences := [*filter(None, (rule.broken(values) for rule in rules)), *computed(values)]:
            raise ValueError("\n".join(dict.fromkeys(sentences)))
        return self
