"""What options of training cost by the plan, which counts nothing for those that are not set."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import plan_jobs as jobs
import pytest
from checkout import VALUES
from trainlab.config.loading import load_values
from trainlab.plan import devices, estimate
from trainlab.plan.checks import check
from trainlab.plan.device_memory import LOADER_BYTES, host_bytes
from trainlab.plan.job import Job
from trainlab.plan.source import job_of

GBIT = 1.25e8


def planned(job: Job, device: str = "H100-80GB", **changes: Any) -> estimate.Plan:
    return estimate.estimate(replace(job, **changes), devices.DEVICES[device], GBIT)


def job(tmp_path: Path, name: str, overlay: str) -> Job:
    over = tmp_path / "over.yaml"
    over.write_text(f"phase: {overlay}", encoding="utf-8")
    paths = [VALUES / f"{name}.yaml", over]
    return job_of(load_values(paths), paths)


def test_the_keys_reach_the_plan(tmp_path: Path) -> None:
    stage = "{compile: true, compile_mode: max-autotune}"
    train = "{dataloader_workers: 3, save_final_model: true}"
    asked = job(tmp_path, "staged-pretrain", f"{{stage: {stage}, train: {train}}}")
    assert (asked.autotuned, asked.compiled_lengths, asked.loaders, asked.final_model) == (True, 3, 6, True)
    plain = job(tmp_path, "staged-pretrain", "{stage: {compile_mode: default}}")
    assert (plain.autotuned, plain.loaders, plain.final_model, plain.tf32) == (False, 0, False, False)
    assert job(tmp_path, "staged-dpo", "{model: {dtype: float32}, train: {tf32: true}}").arithmetic == "tf32"


def test_timing_kernels_takes_longer_than_compiling(tmp_path: Path) -> None:
    plain = job(tmp_path, "staged-pretrain", "{}")
    seconds = [planned(plain, autotuned=tuned).cost.compile_seconds for tuned in (False, True)]  # type: ignore[union-attr]
    assert seconds == [21.0, 3 * (7.0 + 21 * 3.0)]
    assert planned(plain, compiled_lengths=0, autotuned=True).cost.compile_seconds == 0.0  # type: ignore[union-attr]
    hurried = planned(plain, autotuned=True, timeout_seconds=60.0)
    assert any(f.code == "deadline" and "compiling 3.5 min" in f.text for f in check(hurried))


def test_tf32_halves_the_bf16_peak_where_float32_is_multiplied() -> None:
    for name in ("A100-80GB", "H100-80GB", "L40S"):
        device = devices.DEVICES[name]
        assert device.peak("fp32") < device.peak("tf32") == device.bf16 / 2
    assert devices.DEVICES["T4"].peak("tf32") == devices.DEVICES["T4"].peak("fp32")
    slow, fast = (planned(jobs.SURVIVAL, precision="fp32", tf32=on).cost for on in (False, True))
    assert slow and fast and slow.compute_seconds == pytest.approx(8 * fast.compute_seconds)  # 1/16 and 1/2
    told = [f for f in check(planned(jobs.SURVIVAL, tf32=True)) if f.code == "tf32"]
    assert [f.level for f in told] == ["warn"] and "TF32 changes nothing" in told[0].text


def test_processes_that_make_batches_take_memory_of_the_pod() -> None:
    plain, loading = replace(jobs.LYRICS, batch=8), replace(jobs.LYRICS, batch=8, loaders=4, shared_memory=2**30)
    ahead = 4 * 2 * 8 * jobs.LYRICS.max_length * 24
    more = host_bytes(loading, 10**9, 10**6) - host_bytes(plain, 10**9, 10**6)
    assert more == jobs.LYRICS.devices_per_node * (4 * LOADER_BYTES + ahead)
    on_cpu = [
        estimate.estimate(replace(each, on_gpu=False), devices.cpu(4, 2**36), GBIT).memory for each in (plain, loading)
    ]
    assert on_cpu[0] and on_cpu[1] and on_cpu[1].context - on_cpu[0].context == more
    assert not [f for f in check(planned(loading)) if f.code == "shared-memory"]


def test_the_last_weights_take_room_in_the_run_volume() -> None:
    small = {"keep_checkpoints": 1, "checkpoints": 1}
    plain, both = (planned(jobs.SURVIVAL, final_model=wish, **small).volumes[-1] for wish in (False, True))
    assert both.bytes > plain.bytes and any("tuned model and final_model" in part for part in both.parts)


def test_rows_of_their_own_leave_all_others_to_the_training(tmp_path: Path) -> None:
    plain, own = (job(tmp_path, "gemma", text) for text in ("{}", "{data: {validation: pvc:own}}"))
    assert own.keeps_best and plain.keeps_best
    assert own.rows and plain.rows and own.rows > plain.rows


def test_with_gpus_cached_activations_are_in_the_pods_memory() -> None:
    """Each rank keeps them for all rows: 20,000 of 300 tokens of Phi-3-mini are 34 GiB a rank."""
    plain = replace(jobs.LYRICS, rows=20_000, tokens_per_row=300.0, on_gpu=True)
    more = host_bytes(replace(plain, activations_cached=True), 10**9, 10**6) - host_bytes(plain, 10**9, 10**6)
    assert more == plain.devices_per_node * 20_000 * 300 * 3072 * plain.weight_bytes
