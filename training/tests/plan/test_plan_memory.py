"""The memory that is easily forgotten: whole gradients, a model before it is sharded, a second model, the server's."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plan_jobs as jobs
import pytest
import torch
from accelerate import DistributedDataParallelKwargs
from checkout import VALUES
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from trainlab.engine import acceleration
from trainlab.errors import UserError
from trainlab.plan import devices, estimate
from trainlab.plan.checks import check
from trainlab.plan.device_memory import REDUCED_BYTES, Memory, Server
from trainlab.plan.job import Job
from trainlab.plan.plan_command import command

H100, L40S = devices.DEVICES["H100-80GB"], devices.DEVICES["L40S"]
SHARDED = replace(jobs.PRETRAIN, sharded=True, devices_per_node=8, checkpointing=True, chunked_loss=True)
DPO = replace(SHARDED, from_scratch=False, reference=True, sequences=2, accumulation=1, batch=1)
BYTES = 7_391_678_464
"""Parameters of the full scale: its gradients or weights in float32 are 29.6 GB."""


def planned(job: Job, device: devices.Device = H100) -> Memory:
    """Return the memory of a job."""
    result = estimate.estimate(job, device, 1.25e9).memory
    assert result is not None
    return result


def codes(job: Job, device: devices.Device) -> dict[str, str]:
    return {one.code: one.text for one in check(estimate.estimate(job, device, 1.25e9))}


def test_fsdp_keeps_whole_gradients_while_it_accumulates() -> None:
    assert planned(SHARDED).gradients == pytest.approx(29.6e9, rel=0.002)
    assert planned(replace(SHARDED, accumulation=1)).gradients == 0


def test_ddp_copies_gradients_into_buckets() -> None:
    assert planned(jobs.SURVIVAL, L40S).gradients == pytest.approx(418.9e6 * 4, rel=0.001)
    assert planned(replace(jobs.SURVIVAL, nodes=1), L40S).gradients == 0


def test_what_the_libraries_do() -> None:
    """The planner's sources, in the versions that are installed: FSDP keeps whole gradients in the dtype that the engine has them
    reduced in, DDP's buckets are copies."""
    arguments = SimpleNamespace(fsdp_plugin_args={}, bf16=True)
    acceleration.keep_digits(arguments)
    policy = arguments.fsdp_plugin_args["mixed_precision_policy"]
    assert (policy.param_dtype.itemsize, policy.reduce_dtype.itemsize) == (SHARDED.weight_bytes, REDUCED_BYTES)
    gradient = torch.zeros(1, dtype=policy.param_dtype)
    parameter: Any = SimpleNamespace(reduce_dtype=policy.reduce_dtype, _unsharded_param=SimpleNamespace(grad=gradient))
    FSDPParam.to_accumulated_grad_if_needed(parameter)
    assert parameter.unsharded_accumulated_grad.element_size() == REDUCED_BYTES
    assert DistributedDataParallelKwargs().gradient_as_bucket_view is False


@pytest.mark.parametrize(
    ("accumulation", "weight_bytes", "each"), [(1, 2, 2 + 2 + 4), (4, 2, 4 * (2 + 2) + 4), (1, 4, 4 + 4 + 4)]
)
def test_what_fsdp_sends(accumulation: int, weight_bytes: int, each: int) -> None:
    """Of each weight: for each batch it is gathered forward and backward, in the dtype that computes; its gradient is float32."""
    job = replace(SHARDED, accumulation=accumulation, weight_bytes=weight_bytes)
    cost = estimate.estimate(job, H100, 1.25e9).cost
    assert cost is not None and cost.bytes_per_step == pytest.approx(7 / 8 * BYTES * each)


def test_the_whole_model_is_on_each_gpu_before_it_is_sharded() -> None:
    """Each has it in float32, and its part of it; with a reference, both models."""
    assert planned(SHARDED).sharding == pytest.approx(4 * BYTES * 9 / 8 + 0.8e9)
    assert planned(DPO).sharding == pytest.approx(8 * BYTES + 0.8e9)
    assert planned(DPO).total == planned(DPO).sharding > planned(DPO).training
    assert planned(jobs.PRETRAIN).sharding == 0


def test_more_gpus_do_not_help_before_the_model_is_sharded() -> None:
    """59 GB do not fit 48: refused with the reason, however many GPUs there are; 80 GB hold them."""
    for world in (8, 64):
        text = codes(replace(DPO, devices_per_node=world), L40S)["memory"]
        assert "before they are sharded, and the reference" in text and "use a larger GPU or a smaller model" in text
    assert "memory" not in codes(DPO, H100)


def test_gradients_can_be_what_does_not_fit() -> None:
    tight = replace(SHARDED, batch=1)
    assert "gradient_accumulation 1" in codes(tight, L40S)["memory"]
    assert "memory" not in codes(replace(tight, accumulation=1), L40S)


def served(job: Job, device: devices.Device) -> Server:
    result = estimate.estimate(job, device, 1.25e9).server
    assert result is not None
    return result


def test_vllm_by_hand() -> None:
    """SmolLM3 with a head of its own: 3.34 B weights; 36 layers with 4 heads of 128: 73,728 bytes a token."""
    job = replace(jobs.SURVIVAL, tie_word_embeddings=False, serve_runtime="vllm", serve_gpus=1, serve_tokens=768)
    found = served(job, L40S)
    assert found.weights == pytest.approx(2 * 3_337_767_000, rel=0.001) and found.cache == 73_728 * 768
    assert found.room == pytest.approx(0.9 * 44.99 * 2**30)
    assert served(replace(job, serve_gpus=2), L40S).weights == found.weights / 2
    assert "engine-memory" not in codes(job, L40S)
    assert (
        "use more GPUs or a larger one"
        in codes(replace(job, arch=jobs.SEVEN, trainable="all"), devices.DEVICES["T4"])["engine-memory"]
    )


def test_vllm_on_cpu_by_hand() -> None:
    """The same in float32 in a pod: 147,456 bytes a token, and a quarter of the pod in whole GiB kept for them."""
    job = replace(jobs.SURVIVAL, tie_word_embeddings=False, serve_runtime="vllm", serve_gpus=0, serve_tokens=768)
    job = replace(job, served_bytes=4, serve_memory=24 * 2**30)
    found = served(job, H100)  # wherever it was trained
    assert found.weights == pytest.approx(4 * 3_337_767_000, rel=0.001) and found.cache == 147_456 * 768
    assert found.room == pytest.approx(found.weights + 2.65e9 + 6 * 2**30) and found.requests == 56
    assert "server-memory" not in codes(job, H100)
    text = codes(replace(job, serve_memory=16 * 2**30), H100)["server-memory"]
    assert "phase.serve.memory is 16Gi: vLLM on CPU needs" in text and "raise it" in text
    long = replace(job, serve_tokens=50_000)  # one request is more than what is kept
    assert "lower phase.model.max_length" in codes(long, H100)["server-memory"]


def test_our_own_server_holds_base_and_tuned() -> None:
    job = replace(jobs.PRETRAIN, serve_runtime="trainlab", serve_memory=32e9, serve_tokens=2304)
    assert served(job, H100).weights == 4 * BYTES
    short = codes(replace(job, serve_memory=24 * 2**30), H100)["server-memory"]
    assert "phase.serve.memory is 24Gi: the server needs 28.66 GiB" in short
    assert short.endswith("raise it, or lower phase.serve.max_concurrency")
    assert "server-memory" not in codes(job, H100)


def test_our_own_server_answers_several_and_keeps_adapters_of_other_runs() -> None:
    """SmolLM3 in float32, 147,456 bytes a token; a batch holds no more than its context; rank 64: four times rank 16."""
    own: dict[str, Any] = {"serve_runtime": "trainlab", "serve_tokens": 768, "serve_memory": 64e9, "served_bytes": 4}
    job = replace(jobs.SURVIVAL, trainable="lora", lora_rank=16, serve_concurrency=8, **own)
    arch = job.arch
    assert arch
    found = served(job, H100)
    assert found.cache == 2 * 8 * 768 * 147_456 and found.others == 0
    long = served(replace(job, serve_tokens=30_000), H100).cache
    assert long == pytest.approx(2 * arch.context * 147_456)
    kept = replace(job, serve_adapters=16, serve_rank=64)
    other = served(kept, H100)
    assert other.others == 16 * 4 * 4 * arch.lora(16, arch.layers)
    assert other.total == found.total + other.others
    text = codes(replace(kept, serve_memory=16 * 2**30), H100)["server-memory"]
    assert "adapters of 16 other runs" in text and text.endswith(
        "or lower phase.serve.max_concurrency or phase.serve.max_adapters"
    )


@pytest.mark.parametrize("label", ["NVIDIA-L40S-SHARED", "NVIDIA-A100-SXM4-80GB-SHARED"])
def test_a_share_of_a_gpu_is_told_and_is_for_one_rank(
    label: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.yaml"
    site = f"site: {{nodeSelector: {{nvidia.com/gpu.product: {label}}}}}"
    own.write_text(site, encoding="utf-8")
    with pytest.raises(UserError, match=rf"{label} is a part of a GPU, and the job has \d+ ranks"):
        command(VALUES / "survival.yaml", [own])
    own.write_text(f"{site}\nphase: {{resources: {{nodes: 1, gpus_per_node: 1}}}}", encoding="utf-8")
    command(VALUES / "survival.yaml", [own])
    assert "a share: its memory is that of all who have one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("site", "device"),
    [
        ("gpuResource: nvidia.com/mig-1g.10gb", "A100-80GB mig-1g.10gb (assumed"),
        ("gpuResource: nvidia.com/mig-1c.3g.20gb.me", "A100-80GB mig-1c.3g.20gb (assumed"),
        ("nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB-MIG-1g.5gb}", "A100-40GB mig-1g.5gb (site"),
        (
            "gpuResource: nvidia.com/mig-1g.18gb, nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}",
            "H200 mig-1g.18gb",
        ),
    ],
)
def test_a_slice_has_its_own_memory_and_a_phase_that_does_not_fit_is_refused(
    site: str, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, gigabytes = tmp_path / "own.yaml", int(re.findall(r"(\d+)gb", device)[0])
    own.write_text(f"site: {{{site}}}\nphase: {{train: {{batch_size: 16}}}}", encoding="utf-8")
    assert command(VALUES / "lyrics.yaml", [own]) == 1
    said = capsys.readouterr().out
    usable = gigabytes * 1e9 / 2**30 * devices.USABLE_SHARE
    assert device in said and re.search(rf"REFUSED \[memory\] .*{usable:.2f} GiB usable", said), said
    whole = devices.find(device.split()[0])
    part = devices.slice_of(whole, device)
    assert 0 < part.bf16 < whole.bf16 and 0 < part.bandwidth < whole.bandwidth and part.nominal_gib == gigabytes


def test_the_gpu_of_the_values_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node selector names another; a name that is not in the table is refused with those that are."""
    own = tmp_path / "own.yaml"
    phase = "phase: {needs: {gpu_model: A40}}"
    for values, device in (
        (phase, "A40 (phase.needs.gpu_model)"),
        (
            f"{phase}\nsite: {{nodeSelector: {{nvidia.com/gpu.product: NVIDIA-L4}}}}",
            "L4 (site.nodeSelector nvidia.com/gpu.product)",
        ),
    ):
        own.write_text(values, encoding="utf-8")
        command(VALUES / "survival.yaml", [own])
        assert device in capsys.readouterr().out
    own.write_text("phase: {needs: {gpu_model: Z1}}", encoding="utf-8")
    with pytest.raises(UserError, match=r"phase.needs.gpu_model: 'Z1' is not in the table; set one of L40S"):
        command(VALUES / "survival.yaml", [own])
