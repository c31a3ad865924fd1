"""TRAINLAB_DATASETS: data sets in a folder of their own, for every recipe; without it they lie beside the models."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT, VALUES
from tiny import make_phase, write_text
from trainlab import config, recipes
from trainlab.config import Phase
from trainlab.config.loading import load_values
from trainlab.data import corpus
from trainlab.models import fetch, parents

PHASES = {
    load_values([path]).phase.recipe: path for path in (*VALUES.glob("*.yaml"), VALUES / "room" / "adapters.yaml")
}
"""A phase of each recipe."""


def phase_of(recipe: str, tmp_path: Path) -> Phase:
    """Return the phase of a recipe with data from a folder of the volume."""
    overlay = tmp_path / "own.yaml"
    overlay.write_text("phase: {data: {source: 'pvc:own/set'}}", encoding="utf-8")
    return load_values([PHASES[recipe], overlay]).phase


def test_every_recipe_has_a_phase() -> None:
    assert set(PHASES) == set(config.PHASES)


@pytest.mark.parametrize("recipe", PHASES)
def test_data_has_a_folder_of_its_own_and_the_model_stays(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase, models, datasets = phase_of(recipe, tmp_path), tmp_path / "models", tmp_path / "datasets"
    for root in (models, datasets):
        (root / "own" / "set").mkdir(parents=True)
    hook = recipes.get_recipe(phase)
    monkeypatch.delenv("TRAINLAB_DATASETS", raising=False)
    assert hook.data_dir(phase, models, None) == models / "own" / "set"
    monkeypatch.setenv("TRAINLAB_DATASETS", str(datasets))
    assert hook.data_dir(phase, models, None) == datasets / "own" / "set"
    assert phase.parent or parents.model_dir(phase, models, tmp_path / "run").is_relative_to(models)


def test_an_empty_variable_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINLAB_DATASETS", "")
    assert fetch.datasets_dir(tmp_path) == tmp_path


def test_what_is_fetched_for_data_goes_there(
    phase_dict: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hub's data set; nothing of it, no lock either, is left in the model volume, which may be read-only then."""
    write_text(tmp_path / "own" / "set" / "train.jsonl")  # datasets takes a folder of that name for the hub's
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINLAB_DATASETS", str(tmp_path / "datasets"))
    changed = {"recipe": "cpt", "data": {"source": "hf:own/set@" + "0" * 40}, "gate": {"metric": "perplexity"}}
    phase = make_phase({**phase_dict, "unfreeze": {}}, **changed)
    models = tmp_path / "models"
    target = corpus.fetch(phase, models)
    assert target is not None and target.parent.parent == tmp_path / "datasets" and not models.exists()
    assert corpus.place(phase, models, None) == target


def test_the_command_fetches_images_from_there(tmp_path: Path) -> None:
    """A fresh process, as the init container: the sentence names the folder that is looked into."""
    overlay = tmp_path / "own.yaml"
    overlay.write_text("phase: {data: {source: 'pvc:pics'}}", encoding="utf-8")
    command = [sys.executable, "-m", "trainlab.cli", "fetch", str(ROOT / "values" / "resnet.yaml"), "-f", str(overlay)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "training" / "src"), "TRAINLAB_DATASETS": str(tmp_path / "sets")}
    call = [*command, "--models", str(tmp_path / "models")]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 2 and f"no folder {tmp_path}/sets/pics/cifar-10-batches-py; put it there" in done.stderr
    (tmp_path / "sets" / "pics" / "cifar-10-batches-py").mkdir(parents=True)
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/sets/pics\n"), done.stderr
