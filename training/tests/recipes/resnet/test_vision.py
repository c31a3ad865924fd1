"""Pieces of the image recipe: network, augmentation, data, gate, values, plan."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkout import ROOT
from pictures import make_images, make_phase
from torchvision.datasets import CIFAR10
from trainlab import cli
from trainlab.config.loading import load_values
from trainlab.errors import UserError
from trainlab.evaluation.paired_comparison import wilson
from trainlab.plan import estimate as plan
from trainlab.recipes import image_data as data
from trainlab.recipes import image_network as network
from trainlab.recipes import image_sources, image_training, resnet
from trainlab.recipes.image_data import augment, draws, normalize

FULL, LOCAL = ROOT / "values" / "resnet.yaml", ROOT / "values" / "local" / "resnet.yaml"


def test_the_network_is_the_one_of_the_paper_for_small_images() -> None:
    big = network.ResNet18(3, 10)
    assert network.parameters(big) == 11_173_962 == plan.image_counts(64, 3, 10, 32)[0]
    assert 6 * plan.image_counts(64, 3, 10, 32)[1] == pytest.approx(
        3.34e9, rel=0.01
    )  # forward and backward, 2 FLOP each
    small = network.ResNet18(1, 4, width=4)
    sizes: list[int] = []
    for block in small.features:
        block.register_forward_hook(lambda _m, _i, out: sizes.append(out.shape[-1]))
    assert small(torch.zeros(2, 1, 32, 32)).shape == (2, 4)
    assert sizes == [32, 32, 32, 32, 32, 16, 16, 8, 8, 4, 4]  # no pixel is lost before the first block


def test_augmentation_keeps_shape_and_pixels_where_they_belong() -> None:
    images = torch.arange(4 * 3 * 6 * 6).reshape(4, 3, 6, 6).to(torch.uint8)
    shifts = torch.tensor([[2, 2], [0, 2], [2, 4], [2, 2]])
    flags = torch.tensor([False, False, False, True])
    found = augment(images, 2, shifts, flags)
    assert found.shape == images.shape and found.dtype == torch.uint8
    assert torch.equal(found[0], images[0])  # the middle crop
    assert torch.equal(found[1, :, 2:], images[1, :, :-2]) and not found[1, :, :2].any()
    assert torch.equal(found[2, :, :, :-2], images[2, :, :, 2:]) and not found[2, :, :, -2:].any()
    assert torch.equal(found[3], images[3].flip(-1))
    shifts, flags = draws(5000, 4, False, torch.Generator().manual_seed(1))
    assert not flags.any() and (int(shifts.min()), int(shifts.max())) == (0, 8)
    assert 0.4 < float(draws(5000, 4, True, torch.Generator().manual_seed(1))[1].float().mean()) < 0.6


def test_normalized_images_have_mean_0_and_deviation_1() -> None:
    images = torch.randint(0, 256, (64, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    values = images.float() / 255
    mean, std = values.mean(dim=(0, 2, 3)).tolist(), values.std(dim=(0, 2, 3)).tolist()
    found = normalize(images, mean, std)
    assert found.mean(dim=(0, 2, 3)).abs().max() < 1e-5 and (found.std(dim=(0, 2, 3)) - 1).abs().max() < 1e-5
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_parts_share_no_image_and_the_seed_does_not_choose_the_test() -> None:
    first = data.load(load_values([FULL, LOCAL]).phase, Path())
    other = data.load(load_values([FULL, LOCAL]).phase.model_copy(update={"seed": 7}), Path())
    assert [len(part) for part in (first.train, first.validation, first.test)] == [1212, 135, 450]
    assert not set(first.train.ids.tolist()) & set(first.validation.ids.tolist())
    assert torch.equal(first.test.images, other.test.images)
    assert not torch.equal(first.validation.ids, other.validation.ids)
    everything = torch.cat([first.train.images, first.validation.images, first.test.images])
    assert len(everything) == 1797 and everything.max() == 255
    assert torch.bincount(first.test.labels).min() > 30


def test_rate_rises_straight_and_falls_as_a_cosine() -> None:
    train = make_phase(train={"warmup_fraction": 0.1}).train
    rates = [network.rate(step, 100, train) for step in range(100)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert rates[10] == 1 and rates[55] == pytest.approx(0.5) and rates[99] < 0.001


def test_better_means_accuracy_then_loss() -> None:
    best = {"step": 1, "accuracy": 0.5, "loss": 1.0}
    assert image_training.better({"step": 2, "accuracy": 0.5, "loss": 0.9}, best)
    assert not image_training.better({"step": 2, "accuracy": 0.4, "loss": 0.1}, best)
    assert image_training.better({"step": 2, "accuracy": None, "loss": None}, best) and image_training.better(
        best, None
    )


def scores(right: int, count: int = 100) -> dict[str, Any]:
    return {"items": [{"id": i, "correct": int(i < right)} for i in range(count)]}


def test_the_gate_flips_at_the_threshold_and_needs_a_gain() -> None:
    low, high = wilson(97, 100, 0.95)
    assert (low, high) == (pytest.approx(0.9155, abs=5e-4), pytest.approx(0.9897, abs=5e-4))  # Wilson's formula by hand
    assert wilson(100, 100, 0.95)[0] == pytest.approx(0.963, abs=1e-3)
    for bound, promoted in ((low - 1e-6, True), (low + 1e-6, False)):
        decision = resnet.decide(scores(10), scores(97), make_phase(vision={"min_accuracy": bound}))
        assert decision["promoted"] is promoted and decision["verdict"] == "better" and len(decision["reasons"]) == 2
    same = resnet.decide(scores(97), scores(97), make_phase())
    assert not same["promoted"] and same["verdict"] == "no difference"
    assert resnet.decide(scores(97), scores(50), make_phase())["verdict"] == "worse"


def test_check_and_plan_take_both_scales(capsys: pytest.CaptureFixture[str]) -> None:
    for files in ([str(FULL)], [str(FULL), "-f", str(LOCAL)]):
        for command in ("check", "plan"):
            with pytest.raises(SystemExit) as ended:
                cli.main([command, *files])
            assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.count("fine: 0 refusals, 0 warnings") == 2 and "parameters            11.2 M, trained 11.2 M" in said
    with pytest.raises(SystemExit):
        cli.main(["plan", str(FULL), "--json"])
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["parameters"] == 11_173_962 and numbers["schedule"]["steps"] == 30 * (45_000 // 512)


def test_a_plan_refuses_what_a_card_cannot_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = tmp_path / "big.yaml"
    big.write_text("phase: {train: {batch_size: 4096}, vision: {image_size: 64}}\n", encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        cli.main(["plan", str(FULL), "-f", str(big), "--gpu", "L4"])
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert "REFUSED [memory]" in said and "usable of L4" in said and "phase.train.batch_size" in said


def test_the_plan_counts_what_autograd_keeps() -> None:
    small = network.ResNet18(3, 10, width=8)
    weights = {weight.data_ptr() for weight in small.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = small(torch.zeros(2, 3, 16, 16)).sum()
    assert sum(kept.values()) / 2 == pytest.approx(plan.image_counts(8, 3, 10, 16)[2], rel=0.05)
    loss.backward()


def test_a_folder_without_images_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="put it there"):
        image_sources.fetch("pvc:mine", tmp_path)
    with pytest.raises(UserError, match=r"no complete CIFAR-10 .*trainlab fetch"):
        image_sources.cifar10(tmp_path)


def test_cifar10_is_read_as_torchvision_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of the true format, few images; only the MD5 sums of the real ones are taken out."""
    folder = tmp_path / "pics" / image_sources.FOLDER
    folder.mkdir(parents=True)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    rng = np.random.default_rng(0)
    pixels = {name: rng.integers(0, 256, (4, 3072), dtype=np.uint8) for name in names}
    for name in names:
        (folder / name).write_bytes(pickle.dumps({"data": pixels[name], "labels": [0, 1, 2, 9]}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class{i}" for i in range(10)]}))
    monkeypatch.setattr(CIFAR10, "train_list", [[name, None] for name in names[:5]])
    monkeypatch.setattr(CIFAR10, "test_list", [[names[5], None]])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": None})
    assert image_sources.fetch("pvc:pics", tmp_path) == tmp_path / "pics"
    phase = make_phase(
        data={"source": "pvc:pics"}, vision={"image_size": 32, "flip": True}, train={"validation_fraction": 0.25}
    )
    found = data.load(phase, tmp_path / "pics")
    assert (len(found.train), len(found.validation), len(found.test)) == (15, 5, 4)
    assert found.channels == 3 and found.classes[9] == "class9" and found.test.labels.tolist() == [0, 1, 2, 9]
    assert np.array_equal(found.test.images.numpy().reshape(4, -1), pixels["test_batch"])  # red plane first, row by row
    assert len(data.digest(phase, tmp_path / "pics")) == 64


def test_evenly_drawn_rows_and_sizes() -> None:
    images = make_images(make_phase())
    few = data._even(images.test, 5)
    assert len(few) == 5 and few.ids[0] == 0 and few.ids[-1] == len(images.test) - 1
    assert data.resize(images.test.images, 16).shape[-2:] == (16, 16)
    assert data.resize(images.test.images, 8) is images.test.images
