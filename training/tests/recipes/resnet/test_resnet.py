"""Training of the image recipe: resumed = uninterrupted, two ranks = one, broken checkpoints, a full run with its server."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked
import httpx
import pytest
import torch
import uvicorn
from pictures import make_images, make_phase
from safetensors.torch import load_file
from trained import weights
from trainlab import files
from trainlab.config import Phase
from trainlab.config.methods import Vision
from trainlab.engine.stopping import Stop as Signals
from trainlab.engine.stopping import Stopped
from trainlab.errors import UserError
from trainlab.progress import Progress
from trainlab.recipes import image_data as data
from trainlab.recipes import image_network as network
from trainlab.recipes import image_server as servers
from trainlab.recipes import image_training, open_inference, resnet
from trainlab.recipes.base import Run
from trainlab.run import results, verify_run
from trainlab.serve.client import NotServed
from workplace import environment

TWO_RANKS = """
import sys, pathlib
from pictures import make_images, make_phase
from trainlab.engine import dist
from trainlab.engine.stopping import Stop
from trainlab.progress import Progress
from trainlab.recipes import image_training
dist.start(5)
phase = make_phase(train={"batch_size": 4})
image_training.fit(phase, pathlib.Path(sys.argv[1]), make_images(phase), Progress(False), Stop())
dist.finish(0)
"""


class Stop(Exception):
    """What ends a training in the middle."""


class Stopping(Progress):
    """Ends the training at one step."""

    def __init__(self, step: int) -> None:
        super().__init__(False)
        self._stop = f"step {step}/"

    def status(self, text: str) -> None:
        """Raise at the step."""
        if text.startswith(self._stop):
            raise Stop


def train(phase: Phase, folder: Path, progress: Progress | None = None) -> dict[str, Any]:
    with Signals() as stop:
        return image_training.fit(phase, folder, make_images(phase), progress or Progress(False), stop)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    summary = train(make_phase(), folder)
    assert (summary["steps"], summary["effective_batch"], summary["resumed_from_step"]) == (24, 8, 0)
    return folder


def test_it_learns_and_leaves_its_files(whole: Path) -> None:
    history = json.loads((whole / "training_history.json").read_text())
    losses = [entry["loss"] for entry in history if "loss" in entry]
    assert losses[-1] < 0.7 * losses[0] and [e["step"] for e in history if "eval_loss" in e] == [8, 16, 24]
    assert {p.name for p in whole.iterdir()} == {"best_model", "checkpoints", "tensorboard", "training_history.json"}
    assert [p.name for p in sorted((whole / "checkpoints").iterdir())] == ["checkpoint-16", "checkpoint-8"]
    assert any((whole / "tensorboard").iterdir())
    assert not any("_orig_mod" in name or name.startswith("module.") for name in weights(whole))
    config = json.loads((whole / "best_model" / "config.json").read_text())
    assert (config["labels"], config["image_size"]) == (["top", "bottom", "left", "right"], 8)


def test_trackers_get_every_entry_and_the_history_has_the_gpus_use(tmp_path: Path) -> None:
    progress, sent = Progress(False), list[tuple[int, Any]]()
    progress.log = lambda step, entry: sent.append((step, dict(entry)))
    taken = iter([{}, *[{"gpu_utilization": 0.5}] * 100])
    progress.gpu_use = lambda: dict(next(taken))
    train(make_phase(), tmp_path, progress)
    history = json.loads((tmp_path / "training_history.json").read_text())
    assert sent == [(entry["step"], entry) for entry in history]
    assert all(entry["gpu_utilization"] == 0.5 for entry in history if "accuracy" in entry)


def test_resumed_equals_uninterrupted_even_after_a_broken_checkpoint(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(make_phase(), tmp_path, Stopping(19))
    newest = tmp_path / "checkpoints" / "checkpoint-16" / image_training.STATE
    newest.write_bytes(newest.read_bytes()[:1000])
    summary = train(make_phase(), tmp_path)
    assert summary["resumed_from_step"] == 8
    first, second = weights(whole), weights(tmp_path)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (whole / "training_history.json").read_text() == (tmp_path / "training_history.json").read_text()


class Told(Progress):
    """Sends SIGTERM at one step."""

    def __init__(self, step: int) -> None:
        super().__init__(False)
        self._told = f"step {step}/"

    def status(self, text: str) -> None:
        """Send it once that step is taken."""
        if text.startswith(self._told):
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("steps", [[7], [3, 8, 11], [1, 2, 23]], ids=str)
def test_told_to_end_it_keeps_a_checkpoint_and_equals_uninterrupted(
    whole: Path, tmp_path: Path, steps: list[int]
) -> None:
    """Between two checkpoints, at one, and right after another stop."""
    for step in steps:
        with pytest.raises(Stopped, match=f"the checkpoint of step {step} is kept"):
            train(make_phase(), tmp_path, Told(step))
    assert train(make_phase(), tmp_path)["resumed_from_step"] == steps[-1]
    first, second = weights(whole), weights(tmp_path)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (whole / "training_history.json").read_text() == (tmp_path / "training_history.json").read_text()


@pytest.mark.rest
def test_told_to_end_in_the_last_step_it_saves_the_result_first(whole: Path, tmp_path: Path) -> None:
    heard: list[bool] = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append((tmp_path / "best_model").is_dir()))
    try:
        assert train(make_phase(), tmp_path, Told(24))["steps"] == 24
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [True]
    first, second = weights(whole), weights(tmp_path)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.rest
def test_two_ranks_equal_one_with_twice_the_accumulation(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(TWO_RANKS)
    forked.ended(forked.ranks(script, [str(tmp_path / "two")], environment()))
    train(make_phase(train={"batch_size": 4, "gradient_accumulation": 2}), tmp_path / "one")
    # Each rank normalizes by its own half, as each forward pass of one rank does: weights are equal. The running
    # statistics take both halves at once in one case and one after the other in the other: alike, not equal.
    states = [torch.load(tmp_path / n / "checkpoints" / "checkpoint-16" / "state.pt") for n in ("one", "two")]
    one, two = (state["model"] for state in states)
    for name in one:
        if "num_batches" not in name:
            bound = 0.05 * float(one[name].abs().max()) if "running" in name else 1e-4
            assert float((one[name] - two[name]).abs().max()) < bound, name
    losses = [[e["loss"] for e in state["history"] if "loss" in e] for state in states]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


LEARNT: dict[str, Any] = {
    **{"optimizer": "adamw", "momentum": 0.1, "label_smoothing": 0.2, "crop_padding": 3, "flip": True},
    "width": 32,
}
"""Keys of the block that change what is learnt, each with another value than PHASE has."""
ELSEWHERE = {"compile", "image_size", "min_accuracy", "shown"}
"""Those that do not; each has a test of its own in this file, or in test_vision.py."""


@pytest.mark.parametrize("key", LEARNT)
def test_each_key_of_the_block_changes_what_is_learnt(key: str, tmp_path: Path) -> None:
    one, other = ({"epochs": 1, "checkpoints": 1}, {"image_size": 8, "width": 16, "crop_padding": 1})
    for name, block in (("plain", other), ("changed", other | {key: LEARNT[key]})):
        train(make_phase(train=one, vision=block, data={"source": "pvc:bars"}), tmp_path / name)
    first, second = weights(tmp_path / "plain"), weights(tmp_path / "changed")
    assert any(
        a.shape != b.shape or not torch.equal(a, b) for a, b in zip(first.values(), second.values(), strict=True)
    )


def test_every_key_of_the_block_has_a_test() -> None:
    assert {*LEARNT, *ELSEWHERE} == set(Vision.model_fields)


@pytest.mark.slow
def test_compiled_saves_plain_names(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, plain = [], torch.compile

    def eagerly(*given: Any, **more: Any) -> Any:
        compiled.append(given)
        return plain(*given, **more, backend="eager")  # no C compiler needed

    monkeypatch.setattr(torch, "compile", eagerly)
    train(make_phase(vision={"compile": True}), tmp_path)
    assert compiled
    first, second = weights(whole), weights(tmp_path)
    assert first.keys() == second.keys()
    assert max(float((first[name] - second[name]).abs().max()) for name in first) < 1e-3


def test_more_images_a_step_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"phase.train.batch_size is 100: a step takes 100 images .* has 64; lower it"):
        train(make_phase(train={"batch_size": 100}), tmp_path)


def test_without_validation_the_last_network_is_kept(tmp_path: Path) -> None:
    summary = train(make_phase(train={"validation_fraction": 0, "checkpoints": 2, "epochs": 1}), tmp_path)
    assert summary["best_step"] == summary["steps"] == 10 and summary["validation_accuracy"] is None


def test_the_last_network_is_kept_beside_the_best(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_training, "better", lambda new, old: old is None)  # the first validation stays the best
    summary = train(make_phase(train={"save_final_model": True}), tmp_path)
    assert (summary["best_step"], summary["steps"], summary["final_model"]) == (8, 24, True)
    last, best = (load_file(tmp_path / name / "model.safetensors") for name in ("final_model", "best_model"))
    assert network.load(tmp_path / "final_model")[1] == network.load(tmp_path / "best_model")[1]
    kept = torch.load(whole / "checkpoints" / "checkpoint-8" / image_training.STATE, weights_only=True)["model"]
    assert all(torch.equal(best[name], tensor) for name, tensor in kept.items())
    assert not all(torch.equal(last[name], best[name]) for name in best)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run through the hooks, over the bars instead of the digits."""
    folder = tmp_path_factory.mktemp("run")
    phase = make_phase(vision={"min_accuracy": 0.5}, train={"epochs": 6})
    patch = pytest.MonkeyPatch()
    patch.setattr(data, "load", lambda phase, _: make_images(phase))
    files.write_json(folder / "phase.json", {"phase": phase.model_dump(mode="json")})
    before, after = resnet.train(Run(phase, folder, folder, folder))
    files.write_json(folder / "gate.json", resnet.decide(before, after, phase))
    results.write_report(folder)
    patch.undo()
    return folder


def test_the_run_is_promoted_and_reported_with_its_images(finished: Path) -> None:
    gate = json.loads((finished / "gate.json").read_text())
    assert gate["promoted"] and gate["test_accuracy"]["mean"] > 0.8 > gate["gain"]["before"], gate["reasons"]
    page = (finished / "report.html").read_text()
    assert page.count('src="data:image/png;base64,') == 6 and "PROMOTED" in page and "untrained: " in page
    assert "Accuracy during training" in page and "system prompt" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "40 images</span>" in page and "built-in" not in page
    content = json.loads((finished / "report.json").read_text())
    assert sum(row["questions"] for row in content["topics"]) == 40
    assert results.gate_again(finished)["promoted"]


@pytest.fixture(scope="module")
def url(finished: Path) -> Iterator[str]:
    """Address of a server of the finished run."""
    listener = servers.listen("127.0.0.1", 0)
    app = servers.create_app(results.phase_of(finished), finished)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    for _ in range(600):
        if httpx.get(f"{address}/v2/health/ready").status_code == 200:
            break
        threading.Event().wait(0.1)
    yield address
    server.should_exit = True
    thread.join(20)


def body(shape: list[int], values: Any, **more: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "images", "shape": shape, "datatype": "UINT8", "data": values, **more}]}


def test_the_server_speaks_the_open_inference_protocol(url: str) -> None:
    assert httpx.get(f"{url}/v2").json()["name"] == "trainlab"
    assert httpx.get(f"{url}/v2/health/live").json() == {"live": True}
    assert httpx.get(f"{url}/v2/health/ready").json()["ready"] is True
    assert httpx.get(f"{url}/v2/models/tuned/ready").json() == {"name": "tuned", "ready": True}
    found = httpx.get(f"{url}/v2/models/tuned").json()
    assert found["inputs"] == [{"name": "images", "datatype": "UINT8", "shape": [-1, 1, 8, 8]}]
    assert [tensor["name"] for tensor in found["outputs"]] == ["probabilities", "label"]
    flat = httpx.post(f"{url}/v2/models/tuned/infer", json={"id": "7", **body([2, 1, 8, 8], [9] * 128)}).json()
    assert (flat["model_name"], flat["id"]) == ("tuned", "7")
    probabilities, label = flat["outputs"]
    assert probabilities["shape"] == [2, 4] and sum(probabilities["data"]) == pytest.approx(2, abs=1e-4)
    assert label["datatype"] == "BYTES" and set(label["data"]) <= {"top", "bottom", "left", "right"}
    nested = body([2, 1, 8, 8], [[[[9] * 8] * 8]] * 2) | {"outputs": [{"name": "label"}]}
    answer = httpx.post(f"{url}/v2/models/tuned/infer", json=nested).json()
    assert "id" not in answer and answer["outputs"] == [label]
    assert 'trainlab_images_total{model="tuned"} 4.0' in httpx.get(f"{url}/metrics").text
    assert [model["id"] for model in httpx.get(f"{url}/v1/models").json()["data"]] == ["base", "tuned"]
    assert "data:image/png" in httpx.get(f"{url}/").text


@pytest.mark.parametrize(
    ("path", "request_", "status", "words"),
    [
        ("tuned", body([1, 1, 8, 9], [0] * 72), 400, "shape is [1, 1, 8, 9]: this model takes one input 'images'"),
        ("tuned", body([1, 8, 8], [0] * 64), 400, "UINT8, shape [N, 1, 8, 8]"),
        ("tuned", body([1, 1, 8, 8], [0] * 63), 400, "data has 63 values: shape [1, 1, 8, 8] has 64"),
        ("tuned", body([1, 1, 8, 8], [300] * 64), 400, "300 to 300; pixels are 0 to 255"),
        ("tuned", body([1, 1, 8, 8], [0.5] * 64), 400, "not an integer"),
        ("tuned", body([1, 1, 8, 8], [[0] * 9, [0] * 55]), 400, "different lengths"),
        ("tuned", body([0, 1, 8, 8], []), 400, "0 images; send 1 to 256"),
        ("tuned", body([1, 1, 8, 8], [0] * 64, datatype="FP32"), 400, "datatype is FP32: must be UINT8"),
        ("tuned", body([1, 1, 8, 8], [0] * 64, name="x"), 400, "inputs: x; this model takes"),
        ("tuned", body([1, 1, 8, 8], [0] * 64) | {"outputs": [{"name": "y"}]}, 400, "outputs: y does not exist"),
        ("tuned", {"inputs": 3}, 400, "inputs: Input should be a valid list"),
        ("tuned", {"inputs": "x" * 400_000}, 413, "the body has 400013 bytes; this server reads at most 327680 bytes"),
        ("other", body([1, 1, 8, 8], [0] * 64), 404, "model 'other' does not exist; this server has base, tuned"),
    ],
)
def test_wrong_requests_get_the_protocols_error(
    url: str, path: str, request_: dict[str, Any], status: int, words: str
) -> None:
    reply = httpx.post(f"{url}/v2/models/{path}/infer", json=request_)
    assert reply.status_code == status and list(reply.json()) == ["error"] and words in reply.json()["error"]


def test_verify_run_compares_the_served_labels(
    url: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify_run.command(finished, [url]) == verify_run.command(finished, [url], "base") == 0
    assert "labels 6 images as the run recorded" in capsys.readouterr().out
    (tmp_path / "demo_outputs").mkdir()
    shown = json.loads((finished / "demo_outputs" / "after.json").read_text())
    shown[0]["prediction"] = "sideways"
    files.write_json(tmp_path / "demo_outputs" / "after.json", shown)
    pictures = json.loads((finished / "demo_outputs" / "images.json").read_text())
    files.write_json(tmp_path / "demo_outputs" / "images.json", pictures)
    with pytest.raises(NotServed, match="1 of 6 labels differ"):
        open_inference.ask(tmp_path, url, "tuned", 30)


def test_data_dir_names_the_images_and_is_refused_where_they_come_with_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = make_phase(data={"source": "torchvision:cifar10"}, vision={"image_size": 32})
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    assert resnet.data_dir(phase, tmp_path / "models", None) == tmp_path
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "gone"))
    with pytest.raises(UserError, match=r"DATA_DIR .*gone: no such file or folder; correct the path"):
        resnet.data_dir(phase, tmp_path / "models", None)
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    with pytest.raises(UserError, match=r"DATA_DIR .*: phase.data.source is builtin:digits, .*; remove it"):
        resnet.data_dir(make_phase(), tmp_path / "models", None)


def test_a_run_without_a_network_is_said(tmp_path: Path) -> None:
    (tmp_path / "best_model").mkdir()
    files.write_json(tmp_path / "best_model" / "config.json", {"channels": 1, "classes": 4, "width": 16})
    with pytest.raises(UserError, match="the network cannot be loaded"):
        network.load(tmp_path / "best_model")


@pytest.mark.slow
def test_the_command_line_runs_the_digits_and_goes_on_where_it_is_complete(tmp_path: Path) -> None:
    phase = make_phase(train={"epochs": 1, "batch_size": 64, "checkpoints": 1})
    (tmp_path / "phase.json").write_text(json.dumps({"phase": phase.model_dump(mode="json")}))
    folders = ["--models", str(tmp_path / "models"), "--out", str(tmp_path), "--run", "digits"]
    for words in ("trainlab: gate: ", "is complete: nothing to do"):
        run = forked.Run(["run", str(tmp_path / "phase.json"), *folders], environment())
        output, _ = run.communicate()
        assert run.returncode == 0 and words in output, output
    manifest = json.loads((tmp_path / "digits" / "manifest.json").read_text())
    assert manifest["data"]["license"].startswith("CC-BY-4.0") and len(manifest["data"]["sha256"]) == 64
    assert len(json.loads((tmp_path / "digits" / "eval_after.json").read_text())["items"]) == 450
