"""Image classification from scratch, judged by its accuracy: a ResNet for small images, served by the Open Inference Protocol.

Its files: image_sources.py and image_data.py are the images, image_network.py the network and its scores, image_training.py the
loop, open_inference.py and image_server.py the protocol. The test images are scored once before and once after training, never used to
choose.
"""

from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import ResnetPhase
from trainlab.config.types import DIGITS
from trainlab.errors import UserError
from trainlab.evaluation import gate
from trainlab.evaluation.paired_comparison import wilson
from trainlab.models.fetch import named_data
from trainlab.recipes import image_sources
from trainlab.recipes.base import Run, Scores, trained_before

SCORES = {"accuracy": "images", "test_accuracy": "images"}
IMAGES = gate.Unit("images", "images", "raise phase.data.heldout_rows, or add images")
LICENSES = {DIGITS: "CC-BY-4.0 (Optical Recognition of Handwritten Digits, Alpaydin and Kaynak, UCI, 1998)"}


def fetch(phase: ResnetPhase, models: Path, wheels: Path | None) -> Path:
    """Fetch the images, where they do not come with a package; return their folder."""
    return models if phase.data.source == DIGITS else image_sources.fetch(phase.data.source, models)


def data_dir(phase: ResnetPhase, models: Path, data: Path | None) -> Path:
    """Return the folder of the images."""
    named, source = named_data(data), phase.data.source
    if named and source == DIGITS:
        raise UserError(
            f"{'--data' if data else 'DATA_DIR'} {named}: phase.data.source is {source}, whose images come with a "
            "package; remove it, or set another source"
        )
    return named or image_sources.place(source, models)


def preflight(phase: ResnetPhase, model_dir: Path, data_dir: Path, models: Path | None = None) -> None:
    """Raise UserError for images that are missing or cannot be read."""
    from trainlab.recipes import image_data

    image_data.load(phase, data_dir)


def origin(
    phase: ResnetPhase, model_dir: Path, data_dir: Path, models: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Return where the images come from."""
    from trainlab.recipes import image_data

    source = phase.data.source
    license = LICENSES.get(source, f"CIFAR-10: {image_sources.LICENSE}")
    return {
        "model": {"source": phase.model.source, "license": "none needed: trained from scratch"},
        "data": {"source": source, "license": license, "sha256": image_data.digest(phase, data_dir)},
    }


def preload() -> None:
    """Import the loop and its scores."""
    import torch.utils.tensorboard  # noqa: F401

    from trainlab.recipes import image_training  # noqa: F401


def train(run: Run) -> tuple[Scores, Scores]:
    """Load, score, train, score what is served; every rank calls it."""
    from trainlab.engine import dist
    from trainlab.engine.stopping import Stop
    from trainlab.recipes import image_data, image_network, image_training

    phase: ResnetPhase = run.phase
    with run.progress.step(f"loading {phase.data.source}"):
        images = image_data.load(phase, run.data_dir)
    if dist.is_main():
        pictures = image_network.pictures(images, phase.vision.shown)
        files.write_json(run.run_dir / "demo_outputs" / "images.json", pictures)
    run.memory.mark("load")
    before = _scored(run, "before", _untrained(phase, images), images)
    if not trained_before(run, "best_model"):
        with Stop() as stop:  # also while the result is saved
            with run.memory.training(phase, run.run_dir):
                summary = image_training.fit(phase, run.run_dir, images, run.progress, stop)
            if dist.is_main():
                files.write_json(run.run_dir / "training_summary.json", {**summary, "hardware": run.hardware})
    best, __ = image_network.load(run.run_dir / "best_model")  # what is scored is what is served
    return before, _scored(run, "after", best, images)


def rescore(run: Run) -> None:
    """Score both networks of a finished run again."""
    from trainlab.recipes import image_data, image_network

    images = image_data.load(run.phase, run.data_dir)
    _score(run, "before", _untrained(run.phase, images), images)
    _score(run, "after", image_network.load(run.run_dir / "best_model")[0], images)


def _untrained(phase: ResnetPhase, images: Any) -> Any:
    from trainlab.recipes import image_network

    return image_network.untrained(images.channels, len(images.classes), phase.vision.width, phase.seed)


def _scored(run: Run, name: str, network: Any, images: Any) -> Scores:
    """Return eval_<name>.json; score the test images and those that are shown unless it exists."""
    from trainlab.engine import dist

    path = run.run_dir / f"eval_{name}.json"
    if dist.gather(path.exists() and (run.run_dir / "demo_outputs" / f"{name}.json").exists())[0]:
        run.progress.say(f"{path.name} already exists")
        return dict(files.read_json(path))
    with run.progress.step(f"scoring {name} training on {len(images.test)} test images"):
        scores = _score(run, name, network, images)
    run.memory.mark("score")
    return scores


def _score(run: Run, name: str, network: Any, images: Any) -> Scores:
    from trainlab.engine import dist
    from trainlab.models import compute
    from trainlab.recipes import image_network

    network.to(compute.device())
    scores = image_network.score(network, images.test, images, run.phase)
    if dist.is_main():
        shown = image_network.predictions(network, images, run.phase)
        files.write_json(run.run_dir / "demo_outputs" / f"{name}.json", shown)
        files.write_json(run.run_dir / f"eval_{name}.json", scores)
    dist.barrier()
    return scores


def decide(before: Scores, after: Scores, phase: ResnetPhase) -> dict[str, Any]:
    """Return the content of gate.json for two results of `image_network.score` over the same images.

    Promoted only if the gain's interval lies above `gate.min_gain` and the accuracy's own interval (Wilson) above
    `vision.min_accuracy`. `reasons` holds a sentence per condition, whichever way it went.
    """
    pairs = gate.paired(before, after)
    gain = gate.compared(pairs, "correct", phase)
    right = [item["correct"] for __, item in pairs]
    level = phase.evaluate.confidence
    low, high = wilson(sum(right), len(right), level)
    change = ""
    if gain:
        change = (
            f"Test accuracy went from {gain['before']:.1%} (untrained) to {gain['after']:.1%} over {IMAGES.count(gain)}: "
            f"a gain of {gain['mean']:+.1%}"
        )
    accurate = gate.Condition("min_accuracy", low, gate.ABOVE, phase.vision.min_accuracy)
    accurate = accurate.because(
        f"The {level:.0%} interval of the test accuracy is {low:.1%} to {high:.1%}; its lower end is "
        f"{'above' if accurate.passed else 'not above'} the required {accurate.bound:.1%}."
    )
    accuracy = {"mean": sum(right) / len(right), "low": low, "high": high, "images": len(right)}
    scores = {"accuracy": gain, "test_accuracy": accuracy}
    return gate.decision(phase, gain, [gate.min_gain(gain, phase, IMAGES, change, "+.1%"), accurate], scores)


def report(run_dir: Path) -> tuple[dict[str, Any], str]:
    """Return the content of report.json and the page."""
    from trainlab.report import image_report, page

    collected = image_report.collect(run_dir)
    return collected, page.render(collected, image_report.WORDING)


def serve(phase: ResnetPhase, models: Path, run_dir: Path, host: str, port: int, pages: Any = None) -> None:
    """Serve the Open Inference Protocol until a signal arrives; its page is the report."""
    from trainlab.recipes import image_server

    image_server.serve(phase, run_dir, host, port)


def probe(run_dir: Path, url: str, model: str, timeout: float) -> str:
    """Send the images of the report, whose predictions must match those that the run recorded."""
    from trainlab.recipes import open_inference

    return open_inference.ask(run_dir, url, model, timeout)
