"""Stages of one model share a Helm release, and thus the volumes in which a stage finds its parent's run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml
from ansible.plugins.filter.core import regex_replace
from jinja2 import Environment
from trainlab.config.methods import STAGES

ROOT = Path(__file__).resolve().parents[2]
VARS = "roles/phase/vars/main.yml"
RULE = yaml.safe_load((ROOT / VARS).read_text(encoding="utf-8"))["__phase_own_release"]


def release(phase: str) -> str:
    """Return the name of the release that the default of trainlab_release gives a phase."""
    jinja = Environment(autoescape=False)
    jinja.filters["regex_replace"] = regex_replace
    return jinja.from_string(RULE).render(trainlab_phase=phase)


def test_a_phase_names_its_release_and_stages_share_one() -> None:
    for path in (ROOT / "values").glob("*.yaml"):
        stage = yaml.safe_load(path.read_text(encoding="utf-8"))["phase"].get("stage", {}).get("name")
        assert release(path.stem) == (path.stem.removesuffix(f"-{stage}") if stage else path.stem)
    assert release("my-lora-phase") == "my-lora-phase"
    assert re.findall(r"\(([a-z|]+)\)\$", RULE) == ["|".join(STAGES)]


def test_the_rule_is_written_down_once() -> None:
    rule = "|".join(STAGES)
    found = subprocess.run(["git", "grep", "-lF", rule], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(found.split()) == {VARS}
