"""Stages of one model share a Helm release, and with it the volumes in which a stage finds its parent's run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible.plugins.filter.core import regex_replace
from jinja2 import Environment
from trainlab.config.section_stage import STAGES

ROOT = Path(__file__).resolve().parents[2]
INVENTORIES = sorted(ROOT.glob("inventory/*/group_vars/all.yml"))
WORKLOAD = ROOT / "roles" / "ocp4_workload_trainlab" / "tasks" / "main.yml"


def release(template: str, phase: str) -> str:
    """Return the name of the release that a template of a variable gives a phase."""
    jinja = Environment(autoescape=False)
    jinja.filters["regex_replace"] = regex_replace
    return jinja.from_string(template).render(trainlab_phase=phase, ocp4_workload_trainlab_phase=phase)


def templates() -> list[str]:
    """Return what each inventory, and the workload of AgnosticD, says of the release."""
    found = [yaml.safe_load(path.read_text(encoding="utf-8"))["trainlab_release"] for path in INVENTORIES]
    return [*found, yaml.safe_load(WORKLOAD.read_text(encoding="utf-8"))[0]["vars"]["trainlab_release"]]


@pytest.mark.parametrize("template", templates())
def test_a_phase_names_its_release_and_stages_share_one(template: str) -> None:
    for path in (ROOT / "values").glob("*.yaml"):
        stage = yaml.safe_load(path.read_text(encoding="utf-8"))["phase"].get("stage", {}).get("name")
        assert release(template, path.stem) == (path.stem.removesuffix(f"-{stage}") if stage else path.stem)
    assert release(template, "my-lora-phase") == "my-lora-phase"
    assert re.findall(r"\(([a-z|]+)\)\$", template) == ["|".join(STAGES)]
