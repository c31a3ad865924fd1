"""Every values file is a phase, and the pod reads exactly that phase from the chart's ConfigMap."""

import json
import re
from pathlib import Path

import pytest
import yaml
from charts.rendering import HELMS, VALUES, Case, cases, rendered, template
from trainlab.config import PHASES
from trainlab.config.loading import load_values
from trainlab.config.phases import Needs
from trainlab.recipes import RECIPES

FULL = sorted(VALUES.glob("*.yaml"))
LOCAL = sorted((VALUES / "local").glob("*.yaml"))
EVERY = sorted([*FULL, *LOCAL, *(VALUES / "demo").glob("*.yaml")])


def test_every_overlay_has_its_phase() -> None:
    assert FULL
    assert {path.name for path in LOCAL} <= {path.name for path in FULL}


SEEDS = sorted((VALUES / "seeds").glob("*.yaml"))


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
def test_the_numbers_of_a_source_document_are_an_overlay(path: Path) -> None:
    """`trainlab check` and the chart take them, whatever the planner says of them."""
    full = VALUES / f"{path.stem.partition('-')[2]}.yaml"
    assert load_values([full, path]).phase.name == full.stem
    done = template((str(full), str(path)))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted((VALUES / "data").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_data_set_of_full_scale_is_an_overlay(path: Path) -> None:
    """Of the phase that its head names; check and chart take both."""
    full = re.search(r"-f values/([\w-]+\.yaml)", path.read_text(encoding="utf-8"))
    assert full
    assert load_values([VALUES / full[1], path]).phase.name == Path(full[1]).stem
    done = template((str(VALUES / full[1]), str(path)))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", FULL, ids=lambda path: path.stem)
def test_full_scale_is_correct_and_named_after_its_file(path: Path) -> None:
    assert load_values([path]).phase.name == path.stem


@pytest.mark.parametrize("path", LOCAL, ids=lambda path: path.stem)
def test_local_scale_needs_no_gpu_and_keeps_the_subject(path: Path) -> None:
    full, local = load_values([VALUES / path.name]).phase, load_values([VALUES / path.name, path]).phase
    assert local.resources.gpus_per_node == 0 == local.serve.gpus
    assert (local.name, local.recipe) == (full.name, full.recipe)
    if local.recipe == "sft":  # the others' full data sets have to be downloaded: a small one shows the same network
        assert local.data.source == full.data.source
    assert local.resources.nodes == full.resources.nodes


@pytest.mark.parametrize("path", EVERY, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_titles_count_what_the_values_decide(path: Path) -> None:
    """Processes, and never nodes: the scheduler, `NODES=1` and `make demo-alone` decide those."""
    phase = load_values([VALUES / path.name, *([path] if path.parent != VALUES else [])]).phase
    told = re.search(r"(\w+) processes", phase.title)
    assert not re.search(r"\b(node|machine|pod)s?\b", phase.title)
    assert not told or {"two": 2, "four": 4}[told[1]] == phase.resources.nodes * phase.resources.processes_per_node


@pytest.mark.parametrize("path", EVERY, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_values_files_hold_nothing_of_the_site(path: Path) -> None:
    """Presets of the chart carry the section `phase` only."""
    assert list(yaml.safe_load(path.read_text(encoding="utf-8"))) == ["phase"]


@pytest.mark.parametrize("path", LOCAL, ids=lambda path: path.stem)
def test_local_scale_asks_for_the_default_sizes(path: Path) -> None:
    needs = load_values([VALUES / path.name, path]).phase.needs
    assert (needs.models, needs.runs) == (Needs().models, Needs().runs)


def test_stages_ask_for_the_same_sizes() -> None:
    """They share their claims, and a claim cannot shrink."""
    for folder in (VALUES, VALUES / "demo", VALUES / "local"):
        stages = [[VALUES / path.name, path] for path in sorted(folder.glob("staged-*.yaml"))]
        assert len(stages) == 4
        assert len({load_values(files).phase.needs for files in stages}) == 1, folder


@pytest.mark.parametrize("name", HELMS)
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_pod_reads_the_phase_of_the_values_files(case: Case, name: str, tmp_path: Path) -> None:
    (data,) = [one["data"] for one in rendered(case, name) if "phase.json" in one.get("data", {})]
    file = tmp_path / "phase.json"
    file.write_text(data["phase.json"], encoding="utf-8")
    assert list(json.loads(data["phase.json"])) == ["phase"]
    assert load_values([file]).phase == load_values([Path(one) for one in case.files]).phase


def test_every_recipe_is_a_module_of_its_name() -> None:
    assert RECIPES.keys() == PHASES.keys()
    assert {name: module.__name__ for name, module in RECIPES.items()} == {
        name: f"trainlab.recipes.{name}" for name in RECIPES
    }
