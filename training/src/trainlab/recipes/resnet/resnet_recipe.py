"""The hooks of recipe resnet; found by recipes.of. Imports torch only where it is needed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import ResnetPhase
from trainlab.config.types import DIGITS
from trainlab.errors import UserError
from trainlab.models.fetch import named_data
from trainlab.progress import Progress
from trainlab.recipes.base import Recipe, Scores
from trainlab.recipes.resnet import image_sources

LICENSES = {
    DIGITS: "CC-BY-4.0 (Optical Recognition of Handwritten Digits, Alpaydin and Kaynak, UCI, 1998)",
}
STANDARD = f"CIFAR-10: {image_sources.LICENSE}"


class ResnetRecipe(Recipe):
    """A network built from scratch, images from a package or the model volume, the Open Inference Protocol."""

    SCORES = {"accuracy": "images", "test_accuracy": "images"}
    phase: ResnetPhase

    def fetch(self, models: Path, wheels: Path | None) -> Path:
        """As Recipe.fetch: the images, where they do not come with a package."""
        source = self.phase.data.source
        return models if source == DIGITS else image_sources.fetch(source, models)

    def folders(self, models: Path, given: Path | None) -> tuple[Path, Path]:
        """As Recipe.folders; there is no model to start from, so the first folder is the model volume itself."""
        named, source = named_data(given), self.phase.data.source
        if named and source == DIGITS:
            raise UserError(
                f"{'--data' if given else 'DATA_DIR'} {named}: phase.data.source is {source}, whose images come with a "
                "package; remove it, or set another source"
            )
        return models, named or image_sources.place(source, models)

    def preflight(self, model_dir: Path, data_dir: Path) -> None:
        """As Recipe.preflight."""
        from trainlab.recipes.resnet import images

        images.load(self.phase, data_dir)

    def origin(self, model_dir: Path, data_dir: Path) -> dict[str, dict[str, Any]]:
        """As Recipe.origin."""
        from trainlab.recipes.resnet import images

        source = self.phase.data.source
        return {
            "model": {"source": self.phase.model.source, "license": "none needed: trained from scratch"},
            "data": {
                "source": source,
                "license": LICENSES.get(source, STANDARD),
                "sha256": images.digest(self.phase, data_dir),
            },
        }

    def train(
        self, run_dir: Path, model_dir: Path, data_dir: Path, progress: Progress, hardware: Mapping[str, Any]
    ) -> tuple[Scores, Scores]:
        """As Recipe.train; the test images are scored once before and once after, never used to choose."""
        from trainlab.engine import dist
        from trainlab.recipes.resnet import image_score, images, network, resnet_trainer

        with progress.step(f"loading {self.phase.data.source}"):
            data = images.load(self.phase, data_dir)
        if dist.is_main():
            shown = self.phase.vision.shown
            files.write_json(run_dir / "demo_outputs" / "images.json", image_score.pictures(data, shown))
        start = network.untrained(data.channels, len(data.classes), self.phase.vision.width, self.phase.seed)
        self.memory.mark("load")
        before = self._scored(run_dir, "before", start, data, progress)
        self.memory.mark("score")
        with self.memory.training(self.phase, run_dir):
            summary = resnet_trainer.train(resnet_trainer.ImageJob(self.phase, run_dir, data, progress))
        if dist.is_main():
            files.write_json(run_dir / "training_summary.json", {**summary, "hardware": hardware})
        best, _ = network.load(run_dir / "best_model")  # what is scored is what is served
        after = self._scored(run_dir, "after", best, data, progress)
        self.memory.mark("score")
        return before, after

    def _scored(self, run_dir: Path, name: str, network: Any, data: Any, progress: Progress) -> Scores:
        """Return eval_<name>.json; score the test images and those that are shown unless it exists."""
        from trainlab.engine import dist

        path = run_dir / f"eval_{name}.json"
        if dist.gather(path.exists() and (run_dir / "demo_outputs" / path.name.removeprefix("eval_")).exists())[0]:
            progress.say(f"{path.name} already exists")
            return dict(files.read_json(path))
        with progress.step(f"scoring {name} training on {len(data.test)} test images"):
            return self._score(run_dir, name, network, data)

    def _score(self, run_dir: Path, name: str, network: Any, data: Any) -> Scores:
        from trainlab.engine import dist
        from trainlab.models import compute
        from trainlab.recipes.resnet import image_score

        network.to(compute.device())
        scores = image_score.score(network, data.test, data, self.phase)
        if dist.is_main():
            shown = image_score.predictions(network, data, self.phase)
            files.write_json(run_dir / "demo_outputs" / f"{name}.json", shown)
            files.write_json(run_dir / f"eval_{name}.json", scores)
        dist.barrier()
        return scores

    def rescore(self, run_dir: Path, models: Path, given: Path | None) -> None:
        """As Recipe.rescore."""
        from trainlab.recipes.resnet import images, network

        data = images.load(self.phase, self.folders(models, given)[1])
        start = network.untrained(data.channels, len(data.classes), self.phase.vision.width, self.phase.seed)
        self._score(run_dir, "before", start, data)
        self._score(run_dir, "after", network.load(run_dir / "best_model")[0], data)

    def decide(self, before: Scores, after: Scores) -> dict[str, Any]:
        """As Recipe.decide."""
        from trainlab.recipes.resnet import accuracy_gate

        return accuracy_gate.decide(before, after, self.phase)

    def report(self, run_dir: Path) -> tuple[dict[str, Any], str]:
        """As Recipe.report."""
        from trainlab.recipes.resnet import image_report
        from trainlab.report import page

        collected = image_report.collect(run_dir)
        return collected, page.render(collected, image_report.WORDING)

    def serve(self, models: Path, run_dir: Path, host: str, port: int) -> None:
        """As Recipe.serve."""
        from trainlab.recipes.resnet.image_server import serve

        serve(self.phase, run_dir, host, port)

    def probe(self, run_dir: Path, url: str, model: str, timeout: float) -> str:
        """As Recipe.probe: the images of the report, whose predictions must match those that the run recorded."""
        from trainlab.recipes.resnet import image_probe

        return image_probe.ask(run_dir, url, model, timeout)
