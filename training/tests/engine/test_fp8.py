"""FP8 on rows of any length, as torch would check them on a GPU; and one choice for all ranks that a resumed run keeps."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from stages import SFT, phase_of
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from trainlab.engine import acceleration
from trainlab.errors import UserError

Matrix = tuple[tuple[int, ...], tuple[int, ...]]  # shape, strides


def on_a_gpu(product: tuple[Matrix, ...]) -> None:
    """Run torch's own check of a product for GPUs, on tensors without content; raises RuntimeError as a GPU does."""
    with FakeTensorMode():
        left, right = (
            torch.empty_strided(shape, stride, dtype=torch.float8_e4m3fn, device="cuda") for shape, stride in product
        )
        one = torch.empty((), dtype=torch.float32, device="cuda")
        torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


@pytest.mark.parametrize("tokens", [61, 64])
def test_packed_rows_of_any_length_are_multiplied_as_a_gpu_demands(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, plain = (nn.Sequential(nn.Linear(32, 64, bias=False)).to(torch.bfloat16) for _ in range(2))
    model.load_state_dict(plain.state_dict())
    acceleration.convert(model)
    rows = torch.randn(1, tokens, 32, dtype=torch.bfloat16, requires_grad=True)
    multiply, products = torch._scaled_mm, []

    def recorded(left: torch.Tensor, right: torch.Tensor, **more: Any) -> torch.Tensor:
        products.append(((tuple(left.shape), left.stride()), (tuple(right.shape), right.stride())))
        return multiply(left, right, **more)

    with monkeypatch.context() as watched:
        watched.setattr(torch, "_scaled_mm", recorded)
        model(rows).square().sum().backward()
    assert len(products) == 3  # output, gradient of the input, gradient of the weight
    for product in products:
        on_a_gpu(product)
    plain(rows).square().sum().backward()
    both = [part[0].weight.grad.float().flatten() for part in (model, plain)]
    assert torch.nn.functional.cosine_similarity(*both, dim=0) > 0.99


def test_the_check_is_that_of_a_gpu() -> None:
    with pytest.raises(RuntimeError, match="divisible by 16"):
        on_a_gpu((((64, 61), (61, 1)), ((61, 32), (1, 61))))


@pytest.fixture
def phase(phase_dict: dict[str, Any]) -> Any:
    gpu = {"gpus_per_node": 2, "processes_per_node": 2}
    return phase_of(phase_dict, SFT, stage={"fp8": "auto", "compile": True}, resources=gpu)


def test_on_asks_no_probe_and_is_refused_with_the_reason_where_it_cannot_be(
    phase: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced = phase.model_copy(update={"stage": phase.stage.model_copy(update={"fp8": "on"})})
    with pytest.raises(
        UserError, match=r"phase\.stage\.fp8 is on: no GPU; use other GPUs, or set auto, which computes"
    ):
        acceleration.choose_fp8(None, forced, tmp_path)
    assert acceleration.chosen_fp8(tmp_path) is None
    monkeypatch.setattr(acceleration, "why_not_fp8", lambda _: None)  # and no probe is there to be asked: it needs CUDA
    assert acceleration.choose_fp8(None, forced, tmp_path) == {"on": True, "reason": None}


def test_a_missing_torchao_is_said_after_what_the_gpu_lacks(
    phase: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = phase.model.model_copy(update={"dtype": "bfloat16"})
    forced = phase.model_copy(update={"model": model, "stage": phase.stage.model_copy(update={"fp8": "on"})})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    assert acceleration.why_not_fp8(forced) is None
    acceleration.choose_fp8(None, forced, tmp_path / "begun")
    monkeypatch.setitem(sys.modules, "torchao", None)  # as Python finds a package that is not installed
    said = r"Python's package torchao is missing"
    with pytest.raises(
        UserError, match=rf"fp8 is on: {said}; install torchao, or set auto, which computes in bfloat16"
    ):
        acceleration.choose_fp8(None, forced, tmp_path)
    with pytest.raises(UserError, match=rf"is not possible here \({said}\); install torchao, or name a new run"):
        acceleration.choose_fp8(None, forced, tmp_path / "begun")
    auto = forced.model_copy(update={"stage": phase.stage})
    assert acceleration.choose_fp8(None, auto, tmp_path) == {"on": False, "reason": said}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))
    assert acceleration.why_not_fp8(forced) == "compute capability 8.0, FP8 needs 8.9"


def test_one_rank_times_and_a_resumed_run_keeps_its_choice(
    phase: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[str | None] = [None, "the probe ran at 1.01 times the speed of bfloat16, 1.05 is needed"]
    monkeypatch.setattr(acceleration, "why_not_fp8", lambda _: None)
    monkeypatch.setattr(acceleration, "_slow", lambda _: timed.pop(0))
    assert acceleration.choose_fp8(None, phase, tmp_path) == {"on": True, "reason": None}
    assert acceleration.choose_fp8(None, phase, tmp_path) == {"on": True, "reason": None}  # not timed again
    assert len(timed) == 1 and acceleration.chosen_fp8(tmp_path) == {"on": True, "reason": None}
    monkeypatch.setattr(acceleration, "why_not_fp8", lambda _: "compute capability 8.0, FP8 needs 8.9")
    with pytest.raises(
        UserError, match=r"phase.stage.fp8 is auto: .*fp8.json says that this run computes in FP8, which"
    ):
        acceleration.choose_fp8(None, phase, tmp_path)
