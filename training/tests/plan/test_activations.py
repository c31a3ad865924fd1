"""What the planner says is kept for the backward pass, against what autograd keeps of a layer of transformers."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from checkout import VALUES
from peft import LoraConfig, get_peft_model
from trainlab.config.loading import load_values
from trainlab.models.architectures import Architecture
from trainlab.plan import device_memory, devices, source
from trainlab.plan.job import Job
from transformers import AutoConfig, AutoModel

H100 = devices.DEVICES["H100-80GB"]
CPU = devices.cpu(1.0, 2**30)
TOKENS, RANK = 256, 8
SIZES = {"hidden": 256, "heads": 8, "kv_heads": 4, "intermediate": 704, "vocab": 128, "tied": True, "context": 512}
LLAMA = Architecture("llama", layers=2, **SIZES)
PHI3 = Architecture("phi3", layers=2, fused=True, **SIZES)
GEMMA = Architecture("gemma3_text", layers=2, head_dim=32, norms=4, qk_norm=True, **SIZES)
ALL = Job("job", "a model", LLAMA)
LORA = replace(ALL, trainable="lora", lora_rank=RANK)


def planned(arch: Architecture, job: Job, device: devices.Device) -> float:
    """Bytes that the planner counts per token of one layer."""
    one = replace(arch, layers=1)
    return device_memory.activation_bytes(replace(job, arch=one), one, device, 1.0)


def kept(arch: Architecture, job: Job, autocast: bool) -> float:
    """Bytes that autograd keeps per token of one layer, without weights and autocast's copies of them: two layers less one."""
    both = [_kept(replace(arch, layers=layers), job, autocast) for layers in (1, 2)]
    return (both[1] - both[0]) / TOKENS


def _kept(arch: Architecture, job: Job, autocast: bool) -> float:
    model = _model(arch, job, autocast)
    own = {parameter.untyped_storage().data_ptr() for parameter in (*model.parameters(), *model.buffers())}
    found: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.randint(arch.vocab, (2, TOKENS // 2))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one), torch.autocast("cpu", enabled=autocast):
        model(input_ids=ids)
    total = sum(one.untyped_storage().nbytes() for place, one in found.items() if place not in own)
    copies = sum(
        parameter.numel() * 2 for parameter in model.parameters() if parameter.requires_grad and parameter.dim() == 2
    )
    return total - (copies if autocast and not job.sharded else 0)


def _model(arch: Architecture, job: Job, autocast: bool) -> Any:
    config = AutoConfig.for_model(arch.name, **arch.config, pad_token_id=0)
    half = autocast and (job.sharded or job.trainable == "lora")
    model = AutoModel.from_config(config, dtype=torch.bfloat16 if half else torch.float32).train()
    if job.trainable != "lora":
        return model
    rate = 0.05 if job.lora_dropout else 0.0
    return get_peft_model(model, LoraConfig(r=RANK, lora_dropout=rate, target_modules="all-linear"))


@pytest.mark.parametrize("arch", [LLAMA, PHI3, GEMMA], ids=lambda arch: arch.name)
@pytest.mark.parametrize(
    ("job", "device"),
    [(ALL, CPU), (ALL, H100), (LORA, CPU), (replace(LORA, lora_dropout=True), CPU), (LORA, H100)],
    ids=["float32", "autocast", "adapters", "adapters-dropout", "adapters-autocast"],
)
def test_as_autograd_keeps(arch: Architecture, job: Job, device: devices.Device) -> None:
    assert kept(arch, job, autocast=not device.is_cpu) == pytest.approx(planned(arch, job, device), rel=0.01)


def test_half_weights_as_fsdp_gathers_them() -> None:
    job = replace(ALL, sharded=True)
    assert kept(LLAMA, job, autocast=True) == pytest.approx(planned(LLAMA, job, H100), rel=0.01)


def test_compiled_adapters_are_counted_as_others() -> None:
    """What compilation saves was measured of whole layers only."""
    assert planned(LLAMA, replace(LORA, compiled_lengths=1), H100) == planned(LLAMA, LORA, H100)
    assert planned(LLAMA, replace(ALL, compiled_lengths=1), H100) < planned(LLAMA, ALL, H100)


def test_on_a_gpu_a_dropped_value_is_a_byte() -> None:
    """torch.native_dropout, which CUDA takes, keeps a mask of bool."""
    dropped = replace(LORA, lora_dropout=True)
    read = 5 * 256 + 256 + 704
    assert planned(LLAMA, dropped, H100) - planned(LLAMA, LORA, H100) == read
    assert torch.native_dropout(torch.ones(4), 0.5, True)[1].element_size() == 1


def test_checkpointing_keeps_the_input_of_each_layer() -> None:
    """Of all weights the stream is float32, of adapters and of what FSDP2 gathers it is half of that."""
    for job, width in ((ALL, 4), (LORA, 2), (replace(ALL, sharded=True), 2)):
        ten = replace(LLAMA, layers=10)
        saving = replace(job, arch=ten, checkpointing=True)
        got = device_memory.activation_bytes(saving, ten, H100, 1.0)
        assert got == planned(LLAMA, job, H100) + 10 * width * 256


@pytest.mark.parametrize(
    ("names", "measured"),
    [
        (["staged-pretrain", "demo/staged-pretrain"], 15.01),
        (["staged-lora", "demo/staged-lora"], 6.43),
        (["lyrics"], 15.09),
        (["gemma"], 9.83),
    ],
    ids=["staged-pretrain", "staged-lora", "lyrics", "gemma"],
)
def test_as_measured_on_one_gpu(names: list[str], measured: float) -> None:
    """GiB that PyTorch had allocated at most, with rows of the full length (docs/evidence/benchmarks.md, One GPU); the context is not among
    them."""
    paths = [VALUES / f"{name}.yaml" for name in names]
    job = replace(source.job_of(load_values(paths, {}), paths), nodes=1, devices_per_node=1)
    assert job.arch
    need = device_memory.memory(job, job.arch, H100)
    assert (need.training - need.context) / 2**30 == pytest.approx(measured, rel=0.08)
