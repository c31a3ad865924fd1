"""Values files: merging, overrides, and one sentence for each mistake."""

import json
from pathlib import Path

import pytest
import yaml
from checkout import ROOT
from trainlab.config.loading import load_values, phase_hash, run_name, used_overrides
from trainlab.errors import UserError

FULL, LOCAL = ROOT / "values/survival.yaml", ROOT / "values/local/survival.yaml"


def overlay(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "over.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(tmp_path: Path, text: str) -> str:
    """Return the error of survival.yaml with `text` over it, without the folder of the file."""
    path = overlay(tmp_path, text)
    with pytest.raises(UserError) as caught:
        load_values([FULL, path])
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_overlay_merges_blocks_and_replaces_lists() -> None:
    full, local = load_values([FULL]).phase, load_values([FULL, LOCAL]).phase
    assert local.train.batch_size == 2 and local.train.warmup_fraction == full.train.warmup_fraction
    assert len(full.questions) == 6 and len(local.questions) == 3
    assert full.model.chat_template_date == "2026-01-01" and local.model.chat_template_date is None


def test_unknown_key_names_file_key_known_keys_and_a_guess(tmp_path: Path) -> None:
    assert refused(tmp_path, "phase: {train: {epoch: 2}}") == (
        "over.yaml: phase.train.epoch: unknown key; known keys: adam_beta1, adam_beta2, batch_size, cache_frozen_activations, checkpoints, "
        "dataloader_workers, epochs, "
        "gradient_accumulation, gradient_checkpointing, keep_checkpoints, learning_rate, max_grad_norm, memory_snapshot, packing, "
        "resume_from, save_final_model, tf32, "
        "validation_fraction, warmup_fraction, weight_decay (did you mean epochs?)"
    )
    assert "site.storage.models.access_mode: unknown key; known keys: accessMode" in refused(
        tmp_path, "site: {storage: {models: {access_mode: ReadWriteMany}}}"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "phase: {train: {batch_size: 0}}",
            "over.yaml: phase.train.batch_size is 0: must be 1 or more; the default is 8",
        ),
        ("phase: {resources: {nodes: 0}}", "over.yaml: phase.resources.nodes is 0: must be 1 or more"),
        (
            'phase: {train: {learning_rate: "0.0003"}}',
            "must be a number; write it without quotes in a file, and with --set-json",
        ),
        ('phase: {seed: "42"}', "write it without quotes in a file"),
        ("phase: {train: {learning_rate: fast}}", "phase.train.learning_rate is 'fast': must be a number"),
        ("phase: {train: {batch_size: '8'}}", "phase.train.batch_size is '8': must be a whole number"),
        (
            "phase: {resources: {cpu: '0'}}",
            "over.yaml: phase.resources.cpu is '0': has the wrong format; it must match",
        ),
        ("phase: {serve: {cpu: 0m}}", "over.yaml: phase.serve.cpu is '0m': has the wrong format; it must match"),
        ("phase: {resources: {cpu: 6}}", "phase.resources.cpu is 6: must be text; put it in quotes"),
        (
            "phase: {model: {source: gpt}}",
            "phase.model.source is 'gpt': has the wrong format; write it as pypi:NAME==VERSION",
        ),
        (
            "phase: {gate: {metric: luck}}",
            "phase.gate.metric is 'luck': must be one of answer_loss, taught_recall, fact_recall or form_adherence",
        ),
        ("phase: {recipe: null}", "over.yaml: phase.recipe: missing"),
        ("site: {gpuResource: gpu}", "over.yaml: site.gpuResource: 'gpu' is not an extended resource name"),
    ],
)
def test_wrong_value_names_file_key_value_and_remedy(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refused(tmp_path, text)


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    assert len(refused(tmp_path, "phase: {train: {epochs: -1, batch_size: 0}, seed: x}").splitlines()) == 3


def test_a_long_value_is_cut_in_a_rule(tmp_path: Path) -> None:
    file = tmp_path / "over.yaml"
    file.write_text(f"site: {{gpuResource: {'x' * 3000}}}", encoding="utf-8")
    with pytest.raises(UserError, match=r"gpuResource: 'x{77}\.\.\.' is not an extended resource name"):
        load_values([FULL, file])


def test_broken_files_name_file_and_line(tmp_path: Path) -> None:
    assert "over.yaml:3: not valid YAML" in refused(tmp_path, "phase:\n  a: [1\n  b: 2\n")
    assert "over.yaml:2: not valid YAML: key 'a' is given twice" in refused(tmp_path, "a: 1\na: 2\n")
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(UserError, match=r"empty.yaml: phase: missing"):
        load_values([tmp_path / "empty.yaml"])
    assert "holds a list" in refused(tmp_path, "- 1")
    with pytest.raises(UserError, match=r"nope.yaml: no such file"):
        load_values([tmp_path / "nope.yaml"])
    (tmp_path / "latin.yaml").write_bytes(b"title: caf\xe9")
    with pytest.raises(UserError, match=r"latin.yaml: not UTF-8 at byte 10"):
        load_values([tmp_path / "latin.yaml"])


def test_numbers_and_dates_as_helm_reads_them(tmp_path: Path) -> None:
    phase = load_values(
        [FULL, overlay(tmp_path, "phase: {train: {learning_rate: 3e-4}, model: {chat_template_date: 2026-02-03}}")]
    ).phase
    assert phase.train.learning_rate == 3e-4 and phase.model.chat_template_date == "2026-02-03"


def test_environment_overrides_are_typed_and_change_the_hash() -> None:
    env = {"EPOCHS": "2.5", "BATCH_SIZE": "3", "LEARNING_RATE": "1e-3", "DATA_DIR": "/d", "OTHER": "x"}
    phase = load_values([FULL], env).phase
    assert (phase.train.epochs, phase.train.batch_size, phase.train.learning_rate) == (2.5, 3, 1e-3)
    assert phase_hash(phase) != phase_hash(load_values([FULL]).phase)
    numbers = {"EPOCHS": "2.5", "BATCH_SIZE": "3", "LEARNING_RATE": "1e-3"}
    assert used_overrides(env, Path("/d"), Path("/runs")) == {**numbers, "DATA_DIR": "/d"}
    with pytest.raises(
        UserError, match=r"^environment variable BATCH_SIZE: phase.train.batch_size is 'many': must be a"
    ):
        load_values([FULL], {"BATCH_SIZE": "many"})


def test_a_folder_that_the_command_line_replaced_is_no_override() -> None:
    env = {"DATA_DIR": "/d", "OUTPUT_DIR": "/o"}
    assert used_overrides(env, Path("/other"), Path("/o")) == {"OUTPUT_DIR": "/o"}
    assert used_overrides(env, Path("/d"), Path("/runs")) == {"DATA_DIR": "/d"}


def test_an_override_under_a_name_that_is_fixed_is_refused() -> None:
    """The chart names a run by the hash of its values: with another learning rate it would be another run of the same name."""
    phase = load_values([FULL]).phase
    with pytest.raises(
        UserError,
        match=r"^environment variable LEARNING_RATE: would change what run r trains, not its name \(TRAINLAB_RUN\); "
        r"remove it, and set phase.train.learning_rate$",
    ):
        run_name(phase, {"TRAINLAB_RUN": "r", "LEARNING_RATE": "0.5"})
    assert run_name(phase, {"LEARNING_RATE": "0.5"}).startswith("survival-")


def test_phase_json_gives_the_same_phase_and_run_name(tmp_path: Path) -> None:
    path = tmp_path / "phase.json"
    phase = load_values([FULL, LOCAL]).phase
    path.write_text('{"phase": ' + phase.model_dump_json() + "}", encoding="utf-8")
    assert load_values([path]).phase == phase
    assert run_name(phase, {}) == f"survival-{phase_hash(phase)}" and run_name(phase, {"TRAINLAB_RUN": "r"}) == "r"


def test_site_does_not_change_the_hash(tmp_path: Path) -> None:
    other = load_values([FULL, overlay(tmp_path, yaml.safe_dump({"site": {"queue": "q"}}))])
    assert phase_hash(other.phase) == phase_hash(load_values([FULL]).phase)


def test_a_pod_judges_no_site(tmp_path: Path) -> None:
    """What the chart gives a pod has no site, which the chart has judged: the default image would be refused for vLLM on CPU."""
    text = "phase: {serve: {runtime: vllm, gpus: 0}}"
    assert "vLLM's image for GPUs" in refused(tmp_path, text)
    phase = yaml.safe_load(FULL.read_text())["phase"]
    phase["serve"] = phase["serve"] | {"runtime": "vllm", "gpus": 0}
    given = tmp_path / "phase.json"
    given.write_text(json.dumps({"phase": phase}))
    assert load_values([given]).phase.serve.runtime == "vllm"
    given.write_text(json.dumps({"phase": phase, "site": {}}))
    with pytest.raises(UserError, match="vLLM's image for GPUs"):
        load_values([given])
