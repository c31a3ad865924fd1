"""Times of the plan against what was measured on a GPU: the rows of docs/evidence/benchmarks.md, each within 30 %."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from checkout import ROOT, VALUES
from one_gpu_cases import CASES
from trainlab.config.loading import load_values
from trainlab.errors import UserError
from trainlab.plan import devices, estimate, source, units, volumes
from trainlab.plan.checks import check
from trainlab.plan.estimate import Plan
from trainlab.plan.job import Job

PAGE = (ROOT / "docs" / "evidence" / "benchmarks.md").read_text(encoding="utf-8")
TEXT_ROWS = 2176
"""Blocks of 1,024 tokens of the text that the bench of staged-pretrain wrote: 2.2 million tokens."""


VARIED = {"staged-sft": 2.0}
"""Rows that were measured while packed rows had many lengths: compiled layers took twice the time of their kernels."""


def recorded() -> dict[str, tuple[str, float]]:
    """Return of each phase the GPU and the seconds of a step; of gemma, whose steps were not timed, of the training."""
    rows = {}
    for line in PAGE.partition("\n## One GPU\n")[2].partition("\n\n- ")[0].splitlines():
        if match := re.match(
            r"\| ([a-z-]+),?(.*?) \| [\d.]+ \| [\d., ]+ \| (\d+) \| ([\d.]+) \| ([\d.]+|-) \|",
            line.replace(" | resnet", ""),
        ):
            name, text, steps, training, step = match.groups()
            rows[name] = (
                "H200" if "H200" in text else "H100",
                float(training) / int(steps) if step == "-" else float(step),
            )
    return rows


def planned(name: str, gpu: str, folder: Path) -> Plan:
    """Return the plan of a case of the bench."""
    case = CASES[name]
    overlay = folder / "change.yaml"
    change = (
        {**case.change, "data": {**case.change["data"], "train_rows": 1}} if name == "staged-pretrain" else case.change
    )
    overlay.write_text(yaml.safe_dump({"phase": dict(change)}), encoding="utf-8")
    paths = [*(VALUES / file for file in case.files), overlay]
    values = load_values(paths)
    job, device, _ = source.device_of(values, source.job_of(values, paths), gpu)
    if name == "resnet":
        return estimate.estimate_images(values.phase, job, device, 1.25e9)  # type: ignore[arg-type]
    return estimate.estimate(replace(job, rows=TEXT_ROWS) if name == "staged-pretrain" else job, device, 1.25e9)


def test_all_rows_are_read() -> None:
    assert set(recorded()) == set(CASES) - {"survival-small"}, "a row for each phase that was run"


@pytest.mark.parametrize(("name", "gpu", "measured"), [(name, *row) for name, row in recorded().items()])
def test_a_step_takes_what_was_measured(name: str, gpu: str, measured: float, tmp_path: Path) -> None:
    cost = planned(name, gpu, tmp_path).cost
    assert cost is not None and cost.step_seconds * VARIED.get(name, 1.0) == pytest.approx(measured, rel=0.3)
    assert cost.seconds == pytest.approx(cost.step_seconds * planned(name, gpu, tmp_path).schedule.steps, rel=0.05)  # type: ignore[union-attr]


def test_a_step_on_another_gpu_waits_for_the_same_python(tmp_path: Path) -> None:
    fast, slow = (planned("survival", gpu, tmp_path).cost for gpu in ("H200", "L40S"))
    assert fast and slow and fast.step_seconds == slow.step_seconds == fast.dispatch_seconds
    assert fast.compute_seconds < slow.compute_seconds < slow.step_seconds


def stage(name: str, **changes: object) -> Plan:
    paths = [VALUES / f"staged-{name}.yaml"]
    values = load_values(paths)
    job, device, _ = source.device_of(values, replace(source.job_of(values, paths), **changes), None)  # type: ignore[arg-type]
    return estimate.estimate(job, device, 1.25e9)


def test_gpus_of_one_node_send_by_their_link() -> None:
    cost = stage("sft").cost
    assert cost and cost.network_seconds == pytest.approx(cost.bytes_per_step / 450e9)
    assert devices.DEVICES["L40S"].link == 25e9


def test_checkpoints_and_loading_take_what_the_volume_takes() -> None:
    """Checkpoints of 88.71 GB: none in the seconds of staged-sft, in 18 hours one of three that may be, beside the training."""
    cost, long = stage("sft").cost, stage("pretrain").cost
    assert cost and long and (cost.checkpoints, cost.checkpoint_seconds) == (0, 0)
    assert cost.checkpoint_bytes == pytest.approx(88.71e9, rel=0.01)
    assert cost.load_seconds == pytest.approx(14.78e9 / 300e6, rel=0.01)
    assert cost.total_seconds == pytest.approx(cost.seconds + cost.load_seconds + cost.compile_seconds)
    assert (long.checkpoints, long.checkpoint_seconds) == (9, 0)
    alone = stage("pretrain", sharded=False, nodes=1, devices_per_node=1, timeout_seconds=1e9).cost
    assert alone and alone.checkpoint_seconds == pytest.approx(alone.checkpoints * 88.71e9 / 300e6, rel=0.01)
    assert 0 < alone.checkpoint_seconds < alone.seconds / volumes.SHARE


def test_compiled_layers_compute_padding_and_take_time_to_compile() -> None:
    """Eight ranks of 1,792 tokens where the rows have 14,068; three lengths of a curriculum, whose blocks are full."""
    packed, blocks, plain = stage("sft"), stage("pretrain"), stage("sft", compiled_lengths=0)
    assert packed.schedule and plain.schedule and blocks.schedule and packed.cost and blocks.cost and plain.cost
    assert round(packed.schedule.tokens_per_step) == 14068 and packed.schedule.computed_per_step == 14336
    assert plain.schedule.computed_per_step == plain.schedule.tokens_per_step == packed.schedule.tokens_per_step
    assert blocks.schedule.computed_per_step == blocks.schedule.tokens_per_step
    assert packed.cost.compute_seconds / plain.cost.compute_seconds == pytest.approx(14336 / 14068, rel=1e-3)
    assert (packed.cost.graphs, blocks.cost.graphs, plain.cost.graphs) == (1, 3, 0)
    assert (packed.cost.compile_seconds, blocks.cost.compile_seconds) == (estimate.COMPILE, 3 * estimate.COMPILE)


def test_the_seconds_of_a_graph_are_those_of_the_page() -> None:
    match = re.search(r"each new length of the curriculum anew: ([\d.]+) and ([\d.]+) s", " ".join(PAGE.split()))
    assert match and pytest.approx(sum(map(float, match.groups())) / 2, rel=0.05) == estimate.COMPILE


def codes(plan: Plan) -> set[str]:
    return {finding.code for finding in check(plan) if finding.level == "refuse"}


@pytest.mark.parametrize(
    ("name", "code", "bad", "good"),
    [
        ("dpo", "host-memory", {"memory_per_pod": 2**34}, {"memory_per_pod": 2**39}),  # 8 ranks of 29.6 GB in float32
        ("pretrain", "deadline", {"timeout_seconds": 3600.0}, {"timeout_seconds": 48 * 3600.0}),
        ("dpo", "server-start", {"serve_start_seconds": 60.0}, {"serve_start_seconds": 300.0}),
    ],
)
def test_what_cannot_work_is_refused(name: str, code: str, bad: dict[str, float], good: dict[str, float]) -> None:
    assert code in codes(stage(name, **bad)) and code not in codes(stage(name, **good))


def test_a_deadline_on_an_unknown_processor_has_twice_the_time() -> None:
    paths = [VALUES / "quick.yaml"]
    values = load_values(paths)
    for share, refused in ((0.6, False), (0.4, True)):
        job, device, _ = source.device_of(values, source.job_of(values, paths), None)
        cost = estimate.estimate(job, device, 1.25e9).cost
        assert cost is not None
        short = replace(job, timeout_seconds=share * cost.total_seconds)
        assert ("deadline" in codes(estimate.estimate(short, device, 1.25e9))) is refused


def test_the_servers_limit_is_that_of_its_startup_probe() -> None:
    probe = (ROOT / "charts/trainjob/templates/_serving.tpl").read_text("utf-8").partition("startupProbe:")[2]
    period, failures = re.search(r"periodSeconds: (\d+)", probe), re.search(r"ternary 240 (\d+)", probe)
    assert period and failures and int(period[1]) * int(failures[1]) == Job("", "", None).serve_start_seconds


@pytest.mark.parametrize(("text", "rate"), [("300MB/s", 3e8), ("1.5GB/s", 1.5e9), ("100 MB", 1e8)])
def test_speeds_of_volumes(text: str, rate: float) -> None:
    assert units.storage(text) == rate


@pytest.mark.parametrize("text", ["fast", "300", "0MB/s", "10Gbit"])
def test_wrong_speeds_of_volumes(text: str) -> None:
    with pytest.raises(UserError, match="300MB/s"):
        units.storage(text)
