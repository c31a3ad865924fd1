"""What the report of an image classifier says, as one dict with the keys of report/page.html.j2; used by resnet_recipe.py."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.recipes.resnet.accuracy_gate import wilson
from trainlab.report import answer_report, words

PARTS = {  # file -> what the report lacks without it
    "training_history.json": "no curves",
    "training_summary.json": "no record of the training",
    "manifest.json": "no record of versions, data and machines",
    "eval_before.json": "no scores of the untrained network",
    "eval_after.json": "no scores of the trained network",
    "gate.json": "no verdict: this network must not be served",
    "demo_outputs/images.json": "no images",
    "demo_outputs/before.json": "no predictions of the untrained network",
    "demo_outputs/after.json": "no predictions of the trained network",
}
WORDING = {
    "names": {"base": "untrained", "tuned": "trained"},
    "unit": "images",
    "scores": "Scores on images that were not trained on",
    "same": "Same images for both networks; nothing was selected on them.",
    "curve": "Loss during training",
    "legend": ["training images", "validation images"],
    "topics": "Accuracy by class",
    "topic": "Class",
    "topic_share": True,
    "worse": "Worse: images that only the untrained network, by chance, classified correctly.",
    "footer": "An image classifier always answers with one of its classes, however unfamiliar the image is.",
}


def collect(run_dir: Path) -> dict[str, Any]:
    """Return the content of report.json; raises UserError without a readable phase.json."""
    phase = files.read_json(run_dir / "phase.json")["phase"]
    found, missing = answer_report.read(run_dir, PARTS)
    manifest, summary = found.get("manifest.json") or {}, found.get("training_summary.json") or {}
    before, after, gate = found.get("eval_before.json"), found.get("eval_after.json"), found.get("gate.json")
    history = found.get("training_history.json") or []
    demo = [found.get(f"demo_outputs/{name}.json") for name in ("images", "before", "after")]
    classes = [str(name) for name in (demo[2] or demo[1] or [{"probabilities": {}}])[0]["probabilities"]]
    return {
        **answer_report.frame(run_dir, phase, found, _summary(gate, summary, manifest)),
        "scores": _scores(gate, before, after, phase),
        "topics": _classes(before, after, classes),
        "curves": _curves(history, "loss"),
        "accuracy": _curves(history, "accuracy"),
        "answers": [],
        "heldout": [],
        "pictures": _pictures(*demo),
        "training": _training(phase, summary),
        "machine": words.machine(summary, manifest),
        "provenance": words.provenance(
            phase, {**manifest, "data": manifest.get("data") or {"license": "not recorded"}}
        ),
        "system_prompt": "",
        "missing": missing,
    }


def _summary(gate: Any, summary: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    if gate is None:
        return ["This run has no verdict. Draw no conclusions from it."]
    rate = gate["test_accuracy"]
    done = "promoted it" if gate["promoted"] else "did not promote it"
    sentences = [
        f"The trained network classifies {rate['mean']:.1%} of {rate['images']} test images correctly, and the gate {done}.",
        f"Untrained, it got {gate['gain']['before']:.1%} right; guessing among ten classes gives about 10%.",
    ]
    if summary.get("seconds"):
        whole = f", the whole run {words.duration(manifest['seconds'])}" if manifest.get("seconds") else ""
        sentences.append(f"Training took {words.duration(summary['seconds'])}{whole}.")
    return sentences


def _scores(gate: Any, before: Any, after: Any, phase: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not (gate and before and after):
        return []
    bars = []
    for label, part in (("base", before), ("tuned", after)):
        right = [item["correct"] for item in part["items"]]
        low, high = wilson(sum(right), len(right), phase["evaluate"]["confidence"])
        bars.append({"model": label, "mean": sum(right) / len(right), "low": low, "high": high})
    unit = "share of images classified correctly, higher is better"
    return [
        {"name": "accuracy", "title": "Test accuracy", "share": True, "unit": unit, "bars": bars, "gain": gate["gain"]}
    ]


def _classes(before: Any, after: Any, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return accuracy per class, before and after."""
    if not (before and after):
        return []
    later = {item["id"]: item["correct"] for item in after["items"]}
    groups: dict[int, list[tuple[int, int]]] = {}
    for item in before["items"]:
        groups.setdefault(item["label"], []).append((item["correct"], later.get(item["id"], 0)))
    return [
        {
            "topic": classes[label] if label < len(classes) else str(label),
            "questions": len(pairs),
            "before": sum(a for a, _ in pairs) / len(pairs),
            "after": sum(b for _, b in pairs) / len(pairs),
            "worse": sum(a > b for a, b in pairs),
        }
        for label, pairs in sorted(groups.items())
    ]


def _curves(history: Sequence[Mapping[str, Any]], name: str) -> dict[str, list[tuple[int, float]]]:
    """Return (step, value) of training and validation; accuracies in per cent."""
    scale = 100 if name == "accuracy" else 1
    keys = {"training": name, "validation": f"eval_{name}"}
    return {
        series: [(entry["step"], scale * entry[key]) for entry in history if entry.get(key) is not None]
        for series, key in keys.items()
    }


def _pictures(images: Any, before: Any, after: Any) -> list[dict[str, Any]]:
    """Return the images that both networks classified, in the order of the set."""
    if not (images and before and after):
        return []
    later = {entry["id"]: entry for entry in after}
    rows = []
    for entry in before:
        other = later.get(entry["id"])
        if other is None or str(entry["id"]) not in images:
            continue
        row = {"id": entry["id"], "png": images[str(entry["id"])], "label": entry["label"]}
        for name, part in (("base", entry), ("tuned", other)):
            said = part["prediction"]
            sure = part["probabilities"][said]
            row[name] = {"said": said, "sure": sure, "right": said == entry["label"]}
        rows.append(row)
    return rows


def _training(phase: Mapping[str, Any], summary: Mapping[str, Any]) -> words.Facts:
    vision, train = phase["vision"], phase["train"]
    shifts = f"shifts of up to {vision['crop_padding']} pixels" if vision["crop_padding"] else "no shifts"
    rows: words.Facts = [
        ("Recipe", f"resnet: ResNet-18 for small images, width {vision['width']}, input {vision['image_size']} pixels"),
        ("Augmentation", f"{shifts}, {'horizontal flips' if vision['flip'] else 'no horizontal flips'}"),
        ("Optimizer", f"{vision['optimizer']}, weight decay {train['weight_decay']:g}"),
        (
            "Learning rate",
            f"{train['learning_rate']:g}, warm-up over {train['warmup_fraction']:.0%} of the steps, cosine",
        ),
        ("Seed", str(phase["seed"])),
    ]
    if not summary:
        return rows
    rows.insert(1, ("Trained weights", f"{summary['parameters']['trainable']:,}, all of them"))
    rows += [
        (
            "Images",
            f"{summary['rows']} for training, {summary['validation_rows']} for choosing the best, "
            f"{summary['test_rows']} for the one final score",
        ),
        ("Steps", f"{summary['steps']} of {summary['effective_batch']} images each, {summary['epochs']:g} epochs"),
        ("Arithmetic", str(summary["dtype"])),
    ]
    if summary.get("samples_per_second"):
        rows.append(("Speed", f"{summary['samples_per_second']:g} images/s across all processes"))
    return rows + words.ending(summary)
