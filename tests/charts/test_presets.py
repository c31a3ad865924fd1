"""`preset: {phase, scale}` renders what the values files render, and what is given beside it wins."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainlab.config import preset, schema
from trainlab.config.loading import load_values, phase_hash

from charts.cli import check, trainlab
from charts.rendering import CHART, HELMS, SITE, VALUES, Case, documents, helm, run_of, template
from charts.test_golden import SCALES
from charts.test_site import LOCAL

EACH = [(case, HELMS[number // 2 % 2]) for number, case in enumerate(SCALES)]
"""Each phase at each scale once, the training APIs and the Helms in turn."""
LYRICS = "preset.phase=lyrics"
BESIDE = {
    "preset": {"phase": "survival", "scale": "local"},
    "phase": {
        "questions": ["One?"],
        "data": {"system_prompt": None, "heldout_rows": 50},
        "train": {"epochs": 7, "cache_frozen_activations": False, "checkpoints": None},
        "lora": None,
        "gate": {"min_gain": 0.0},
    },
}
"""Over a preset: another text, a shorter list, false and 0 over other values, null for keys and for a whole block."""


def written(folder: Path, content: object) -> str:
    """Write a values file; return its path."""
    file = folder / "own.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(("case", "name"), EACH, ids=lambda one: one if isinstance(one, str) else one.name)
def test_a_preset_is_its_files(case: Case, name: str) -> None:
    api = f"site.trainingApi={case.api}"
    files = template(case.files, api, release=case.phase, name=name)
    chosen = template(
        (), api, f"preset.phase={case.phase}", f"preset.scale={case.scale}", release=case.phase, name=name
    )
    assert files.returncode == 0, files.stderr
    assert chosen.stdout == files.stdout, chosen.stderr


def test_full_is_the_scale_that_nobody_names() -> None:
    assert template((), LYRICS).stdout == template((str(VALUES / "lyrics.yaml"),)).stdout != ""


@pytest.mark.parametrize("name", HELMS)
def test_what_is_given_beside_a_preset_wins(name: str, tmp_path: Path) -> None:
    """The same phase as with one more -f, in Helm and in `trainlab`, and the same run."""
    own, over = written(tmp_path, BESIDE), tmp_path / "over.yaml"
    over.write_text(yaml.safe_dump({"phase": BESIDE["phase"]}), encoding="utf-8")
    chosen, files = template((own,), name=name), template((*LOCAL, str(over)), name=name)
    assert chosen.stdout == files.stdout and chosen.returncode == 0, chosen.stderr
    phase = load_values([Path(own)]).phase
    assert phase == load_values([*map(Path, LOCAL), over]).phase
    assert (phase.train.epochs, phase.questions) == (7, ("One?",))
    assert phase.data.system_prompt.startswith("You are a practical skills expert"), "the default"
    assert run_of(documents(chosen)) == f"demo-{phase_hash(phase)}"


@pytest.mark.parametrize("name", HELMS)
def test_a_key_on_the_command_line_wins(name: str) -> None:
    """--set gives integers and null, where a file gives floats and nothing."""
    sets = ("phase.train.epochs=7", "phase.model.chat_template_date=null")
    chosen, files = template((), "preset.phase=survival", *sets, name=name), template(LOCAL[:1], *sets, name=name)
    assert chosen.stdout == files.stdout and chosen.returncode == 0, chosen.stderr
    read = json.loads(next(text for each in documents(chosen) if (text := each.get("data", {}).get("phase.json"))))
    assert read["phase"]["train"]["epochs"] == 7 and "chat_template_date" not in read["phase"]["model"]


@pytest.mark.parametrize("content", [{"scale": None}, {"scale": "full", "phase": None}, None], ids=str)
@pytest.mark.parametrize("name", HELMS)
def test_null_is_no_preset(content: Any, name: str, tmp_path: Path) -> None:
    own = written(tmp_path, {"preset": content})
    assert template((*LOCAL, own), name=name).stdout == template(LOCAL, name=name).stdout != ""
    assert load_values([*map(Path, LOCAL), Path(own)]).phase == load_values(list(map(Path, LOCAL))).phase


def test_any_of_several_files_names_the_preset(tmp_path: Path) -> None:
    """The phase's own keys are always over it, even from an earlier file."""
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("phase: {train: {epochs: 5}}", encoding="utf-8")
    second.write_text("preset: {phase: survival}", encoding="utf-8")
    done, values = template((str(first), str(second))), load_values([first, second])
    assert values.phase.train.epochs == 5
    assert f"name: demo-{phase_hash(values.phase)}\n" in done.stdout


REFUSED = [
    (
        "preset: {phase: magic}",
        f"preset.phase is 'magic': must be one of {', '.join(preset.names())}; set one of these",
    ),
    ("preset: {scale: local}", "preset.scale: local without preset.phase; name the phase there"),
    ("preset: {fase: lyrics}", "preset.fase: unknown key; known keys: phase, scale"),
    (
        "preset: {phase: lyrics}\nphase: {vision: {flip: true}}",
        "phase.vision: recipe sft does not read it, only resnet",
    ),
    (
        "preset: {phase: survival}\nsite: {storage: {runs: {accessMode: ReadWriteOnce}}}",
        "site.storage.runs.accessMode: ReadWriteOnce with phase.resources.nodes 4",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED, ids=[text for text, _ in REFUSED])
@pytest.mark.parametrize("name", HELMS)
def test_helm_says_the_sentence_of_the_check(text: str, sentence: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text, encoding="utf-8")
    told = check(str(file))
    done = helm("template", "demo", str(CHART), "-f", str(SITE), "-f", str(file), "--skip-schema-validation", name=name)
    assert done.returncode != 0 and told.returncode == 2
    assert sentence in told.stderr and sentence in done.stderr


@pytest.mark.parametrize("name", HELMS)
def test_the_schema_lists_what_there_is(name: str) -> None:
    """An unknown name is refused before a template runs; all names that exist are listed."""
    done = template((), "preset.phase=magic", name=name)
    assert done.returncode != 0 and "at '/preset/phase': value must be one of" in done.stderr
    assert all(f"'{known}'" in done.stderr for known in preset.names())
    done = template((), LYRICS, "preset.scale=demo", name=name)
    assert "at '/preset/scale': value must be one of 'full', 'local'" in done.stderr


def test_a_phase_that_has_no_small_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = "preset.scale: local, which lyrics does not have; set full"
    chart, values = tmp_path / "trainjob", tmp_path / "values"
    shutil.copytree(CHART, chart)
    presets = json.loads((chart / "presets.json").read_text(encoding="utf-8"))
    del presets["lyrics"]["local"]
    (chart / "presets.json").write_text(json.dumps(presets), encoding="utf-8")
    done = helm("template", "demo", str(chart), "--set", f"{LYRICS},preset.scale=local")
    assert done.returncode != 0 and sentence in done.stderr
    values.mkdir()
    shutil.copy(VALUES / "lyrics.yaml", values)
    monkeypatch.setattr(preset, "FOLDER", values)
    own = written(tmp_path, {"preset": {"phase": "lyrics", "scale": "local"}})
    assert sentence in check(own).stderr
    assert schema.presets() == {
        "lyrics": {"full": yaml.safe_load((values / "lyrics.yaml").read_text("utf-8"))["phase"]}
    }


def test_without_the_checkout_the_files_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the image, or installed by pip: no folder values lies beside the package."""
    monkeypatch.setattr(preset, "FOLDER", tmp_path / "none")
    told = check(written(tmp_path, {"preset": {"phase": "lyrics"}}))
    assert told.returncode == 2 and "preset.phase: the folder values of the checkout is not beside this" in told.stderr


def test_the_check_resolves_to_a_phase_alone(tmp_path: Path) -> None:
    """What `trainlab check --json` prints can be checked again, and is the same phase: no preset comes below it."""
    own = written(tmp_path, {"preset": {"phase": "survival"}, "phase": {"model": {"chat_template_date": None}}})
    resolved = json.loads(trainlab("check", own, "--json").stdout)
    assert "preset" not in resolved
    again = written(tmp_path, {key: resolved[key] for key in ("phase", "site")})
    assert json.loads(trainlab("check", again, "--json").stdout)["hash"] == resolved["hash"]


def test_no_phase_names_both_ways() -> None:
    done = template(())
    assert done.returncode != 0
    assert (
        "phase: missing; give one of your own with -f values/<phase>.yaml, or set preset.phase to one of" in done.stderr
    )
    assert ", ".join(preset.names()) in done.stderr
