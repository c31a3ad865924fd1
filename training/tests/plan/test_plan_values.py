"""`trainlab plan` of every phase of this repository at every scale: what it refuses is told in docs, and nothing else."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import VALUES
from trainlab.config.loading import STDIN, load_values
from trainlab.errors import UserError
from trainlab.plan import devices
from trainlab.plan.plan_command import command

SCALES = [
    [full, *overlay]
    for full in sorted(VALUES.glob("*.yaml"))
    for overlay in ([], *([path] for path in sorted(VALUES.glob(f"*/{full.name}"))))
]
EACH = pytest.mark.parametrize("paths", SCALES, ids=lambda paths: f"{paths[-1].parent.name}-{paths[-1].stem}")


def planned(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Return exit code and JSON of the command."""
    code = command(paths[0], paths[1:], as_json=True)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


@EACH
def test_no_phase_is_refused(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, plan = planned(paths, capsys)
    assert [each["line"] for each in plan["findings"] if each["level"] == "refuse"] == [] and code == 0


@EACH
def test_the_gpu_is_the_one_that_the_comment_names(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """A comment that names the memory of a GPU, and the GPU that the plan takes from the same file, agree."""
    head = paths[-1].read_text("utf-8").partition("\nphase:")[0]
    named = re.search(r"(?:GPUs? of|one) ([0-9]+) GB", head)
    plan = planned(paths, capsys)[1]
    if plan["job"]["on_gpu"]:
        assert plan["device"]["from"] == "phase.needs.gpu_model"
        assert named is None or plan["device"]["nominal_gib"] == int(named[1])


@EACH
def test_a_finding_is_one_line_with_its_key(paths: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """The line of the JSON, which playbooks print, is that of the text."""
    plan = planned(paths, capsys)[1]
    command(paths[0], paths[1:])
    text = capsys.readouterr().out.splitlines()
    for each in plan.get("findings", []):
        assert each["line"] in text and each["line"].endswith(f"({each['key']})")
    assert plan.get("verdict", text[-1]) == text[-1]


def test_a_release_comes_on_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = VALUES / "survival.yaml"
    expected = planned([path], capsys)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    monkeypatch.chdir(VALUES)  # data/ is looked for in the parents of the working directory
    assert planned([STDIN], capsys) == expected


def test_wordings_of_taught_facts_are_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taught = tmp_path / "taught.yaml"
    taught.write_text("phase: {data: {taught: null}, gate: {metric: answer_loss}}", encoding="utf-8")
    survival = VALUES / "survival.yaml"
    rows = [planned([survival, *more], capsys)[1]["job"]["rows"] for more in ([taught], [])]
    facts = VALUES.parent / "data" / "survival" / "taught"
    wordings = [json.loads(line) for path in facts.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    refused = load_values([survival]).phase.data.refused_rows
    assert rows[1] - rows[0] == sum(1 + len(fact["phrasings"]) for fact in wordings) + refused > 0


def finding(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, *paths: str, over: str = "", gpu: str | None = None
) -> dict[str, str]:
    """Return code -> line of what the planner says about these values, with those of `over` last."""
    (tmp_path / "over.yaml").write_text(over or "{}", encoding="utf-8")
    files = [*(VALUES / path for path in paths), tmp_path / "over.yaml"]
    command(files[0], files[1:], gpu=gpu, as_json=True)
    return {each["code"]: each["line"] for each in json.loads(capsys.readouterr().out)["findings"]}


def test_refusals_are_trained_behind_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [VALUES / "survival.yaml", VALUES / "local" / "survival.yaml"]
    data = load_values(paths).phase.data
    assert planned(paths, capsys)[1]["job"]["rows"] == data.train_rows + data.refused_rows


@pytest.mark.parametrize(
    ("paths", "over", "code"),
    [
        (["survival.yaml"], "phase: {lora: {rank: 0, layers: null}, unfreeze: {layers: 60}}", "layers"),
        (["lyrics.yaml"], "phase: {lora: {layers: 60}}", "layers"),
        (["staged-sft.yaml", "demo/staged-sft.yaml"], "phase: {serve: {runtime: vllm, gpus: 6}}", "serve-heads"),
        (
            ["resnet.yaml"],
            "phase: {data: {source: 'builtin:digits'}, vision: {flip: false, image_size: 8, crop_padding: 1}, train: {batch_size: 2048}}",
            "batch",
        ),
    ],
    ids=["unfreeze", "lora", "heads of keys", "images"],
)
def test_what_ends_a_run_after_the_base_was_scored_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, paths: list[str], over: str, code: str
) -> None:
    assert finding(capsys, tmp_path, *paths, over=over)[code].startswith("REFUSED")


def test_a_gpu_without_bfloat16_computes_auto_in_float32(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As models/compute.py does; bfloat16 by its name is refused."""
    assert "bf16" not in finding(capsys, tmp_path, "gemma.yaml", gpu="T4")
    assert "bf16" not in finding(capsys, tmp_path, "gemma.yaml", gpu="Tesla-T4"), "as GPU feature discovery names it"
    assert "bf16" in finding(capsys, tmp_path, "gemma.yaml", over="phase: {model: {dtype: bfloat16}}", gpu="T4")


def test_no_server_is_judged_where_none_is_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    over = "phase: {serve: {runtime: vllm, gpus: 7}}\n"
    assert "serve-heads" in finding(capsys, tmp_path, "lyrics.yaml", over=over)
    assert "serve-heads" not in finding(capsys, tmp_path, "lyrics.yaml", over=f"{over}site: {{serving: false}}")


@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.10gb", "MIG-1g.10gb"])
def test_a_slice_without_its_gpu_is_a_sentence(name: str) -> None:
    with pytest.raises(UserError, match=r"names no GPU; name it before the slice, as in A100-80GB-MIG-1g\.10gb"):
        devices.find(name)
    assert devices.find("A100-80GB mig-1g.10gb").nominal_gib == 10, "as the planner prints it"
