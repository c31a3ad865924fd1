"""A run has one name: Helm in the cluster, and Python in `trainlab check`, manifest and report, compute the same."""

from pathlib import Path

import pytest
import yaml
from trainlab.config.loading import load_values, phase_hash

from charts.rendering import VALUES, Case, cases, documents, rendered, run_of, template

AWKWARD = {
    "model": {"chat_template_date": None},
    "data": {"system_prompt": '<b>&</b> \u2028\u2029 \\u2028 "quoted" \t\x0b\x7f \U0001f525 caf\u00e9'},
    "train": {
        "learning_rate": 1e-7,
        "epochs": 3.0,
        "weight_decay": 0.000001,
        "warmup_fraction": 0.1,
        "max_grad_norm": 1e21,
    },
    "seed": 2**32 - 1,
    "evaluate": {"generate_rows": None, "tasks": ["arc_easy"]},
}


@pytest.mark.parametrize("case", [case for case in cases() if case.api == "pytorchjob"], ids=lambda case: case.name)
def test_every_phase_has_one_hash(case: Case) -> None:
    assert run_of(rendered(case)) == f"{case.phase}-{phase_hash(load_values([Path(f) for f in case.files]).phase)}"


@pytest.mark.parametrize("name", ["helm", "helm4"])
def test_numbers_and_characters_that_languages_write_differently(name: str, tmp_path: Path) -> None:
    files = (str(VALUES / "survival.yaml"), str(tmp_path / "awkward.yaml"))
    Path(files[1]).write_text(yaml.safe_dump({"phase": AWKWARD}, allow_unicode=True), encoding="utf-8")
    found = documents(template(files, "site.trainingApi=pytorchjob", name=name))
    assert run_of(found) == f"demo-{phase_hash(load_values([Path(f) for f in files]).phase)}"


def test_a_block_that_is_absent_unless_given(tmp_path: Path) -> None:
    files = (str(VALUES / "lyrics.yaml"), str(tmp_path / "hub.yaml"))
    data = {"source": f"hf:somebody/songs@{'0' * 40}", "table": {"accept_license": True}}
    Path(files[1]).write_text(yaml.safe_dump({"phase": {"data": data}}), encoding="utf-8")
    found = documents(template(files, "site.trainingApi=pytorchjob"))
    assert run_of(found) == f"demo-{phase_hash(load_values([Path(f) for f in files]).phase)}"
