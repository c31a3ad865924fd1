"""What the report of an image classifier says, as one dict with the keys of report/page.html.j2; used by recipes/resnet.py."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainlab.evaluation.paired_comparison import wilson
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
    content = answer_report.Content(run_dir, PARTS)
    if not content.manifest.get("data"):
        content.manifest["data"] = {"license": "not recorded"}
    phase, before, after = content.phase, content.before, content.after
    demo = content.demo[1] or content.demo[0] or [{"probabilities": {}}]
    return {
        **answer_report.frame(content, _summary, _training(phase, content.summary)),
        "scores": _scores(content.gate, before, after, phase),
        "topics": _classes(before, after, [str(name) for name in demo[0]["probabilities"]]),
        "curves": answer_report.curves(content.history),
        "accuracy": answer_report.curves(content.history, "accuracy", 100),
        "answers": [],
        "pictures": _pictures(content.images, *content.demo),
        "system_prompt": "",
    }


def _summary(content: answer_report.Content) -> list[str]:
    gate, rate = content.gate, content.gate["test_accuracy"]
    done = "promoted it" if gate["promoted"] else "did not promote it"
    return [
        f"The trained network classifies {rate['mean']:.1%} of {rate['images']} test images correctly, and the gate {done}.",
        f"Untrained, it got {gate['gain']['before']:.1%} right; guessing among ten classes gives about 10%.",
        *words.took(content.summary, content.manifest),
    ]


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
        answer_report.topic_row(
            classes[label] if label < len(classes) else str(label), pairs, sum(a > b for a, b in pairs)
        )
        for label, pairs in sorted(groups.items())
    ]


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
            label = part["prediction"]
            row[name] = {"said": label, "sure": part["probabilities"][label], "right": label == entry["label"]}
        rows.append(row)
    return rows


def _training(phase: Mapping[str, Any], summary: Mapping[str, Any]) -> words.Facts:
    vision, train = phase["vision"], phase["train"]
    shifts = f"shifts of up to {vision['crop_padding']} pixels" if vision["crop_padding"] else "no shifts"
    rows: words.Facts = [
        ("Recipe", f"resnet: ResNet-18 for small images, width {vision['width']}, input {vision['image_size']} pixels"),
        ("Augmentation", f"{shifts}, {'horizontal flips' if vision['flip'] else 'no horizontal flips'}"),
        ("Optimizer", f"{vision['optimizer']}, weight decay {train['weight_decay']:g}"),
        ("Learning rate", f"{words.learning_rate(train)}, cosine"),
        ("Seed", str(phase["seed"])),
    ]
    if not summary:
        return rows
    rows.insert(1, ("Trained weights", f"{summary['parameters']['trainable']:,}, all of them"))
    parts = f"{summary['rows']} for training, {summary['validation_rows']} for choosing the best"
    rows += [
        ("Images", f"{parts}, {summary['test_rows']} for the one final score"),
        ("Steps", f"{summary['steps']} of {summary['effective_batch']} images each, {summary['epochs']:g} epochs"),
        ("Arithmetic", str(summary["dtype"])),
    ]
    if summary.get("samples_per_second"):
        rows.append(("Speed", f"{summary['samples_per_second']:g} images/s across all processes"))
    return rows + words.ending(summary)
