"""The sentences and tables of a report, with numbers and without promises; used by answer_report.py."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trainlab.config.rule import shown
from trainlab.data.table_rows import account
from trainlab.engine import gpu_use, memory
from trainlab.evaluation.answer_gate import HIGHER, REPEATS, moved
from trainlab.evaluation.gate import reach
from trainlab.evaluation.paired_comparison import BETTER, SAME, TOO_FEW, WORSE
from trainlab.progress import where

Facts = list[tuple[str, str]]  # label, text


def summary(content: Any) -> list[str]:
    """Return what an audience should take away, bad news included; content: answer_report.Content."""
    gate, before, after = content.gate, content.before, content.after
    sentences = [verdict(gate), *_loss(gate.get("answer_loss")), *_shares(gate)]
    if before and after:
        scored = [item for item in before["items"] if item["loss"] is not None]
        later = {item["id"]: item["loss"] for item in after["items"]}
        worse = sum(later.get(item["id"], 0.0) > item["loss"] for item in scored)
        sentences.append(f"On {worse} of {len(scored)} questions the answer loss got worse.")
        lengths = before.get("answer_tokens"), after.get("answer_tokens")
        if all(length is not None for length in lengths):
            sentences.append(
                f"Its answers have {lengths[1]:.0f} tokens on average, the base model's {lengths[0]:.0f}; length is not scored."
            )
    return sentences + took(content.summary, content.manifest)


def training(phase: Mapping[str, Any], summary: Mapping[str, Any]) -> Facts:
    """Return what was trained and how."""
    train, lora = phase["train"], phase.get("lora") or {}
    what = "all weights"
    if phase.get("unfreeze") and not phase.get("stage"):
        head = "and the language-model head" if phase["unfreeze"]["lm_head"] else "without the language-model head"
        what = f"the last {phase['unfreeze']['layers']} layers {head}"
    if lora.get("rank"):
        where = ", ".join(lora["target_modules"]) or "all linear layers except the head"
        if lora["layers"]:
            depth = f"{lora['layers']} decoder layers" if lora["layers"] > 1 else "decoder layer"
            where += f", in the last {depth}"
        owners = f"{summary['adapters']} owners' " if summary.get("adapters") else ""
        what = f"{owners}LoRA adapters of rank {lora['rank']} (alpha {lora['alpha']}) on {where}"
    rows: Facts = [
        ("Recipe", f"{phase['recipe']}: {what}"),
        ("Learning rate", learning_rate(train)),
        ("Seed", str(phase["seed"])),
    ]
    if not summary:
        return rows
    unit = "packed sequences" if train.get("packing") else "rows"
    counts = summary.get("parameters") or {}
    if counts:
        share = f"{counts['trainable']:,} of {counts['total']:,} parameters ({counts['share']:.1%})"
        rows.insert(1, ("Trained weights", share))
    rows += [
        ("Rows", f"{summary['rows']} for training, {summary['validation_rows']} for choosing the best checkpoint"),
        ("Steps", f"{summary['steps']} of {summary['effective_batch']} {unit} each, {summary['epochs']:g} epochs"),
        ("Arithmetic", str(summary.get("dtype", "unknown"))),
    ]
    return rows + speed(summary, "rows", "samples_per_second") + ending(summary)


def speed(summary: Mapping[str, Any], unit: str, key: str) -> Facts:
    """Return how many of a unit were trained on in a second, and of how much of the GPUs' peak that made use."""
    if not summary.get(key):
        return []
    used = f", {summary['mfu']:.0%} of the GPUs' peak (MFU)" if summary.get("mfu") else ""
    return [("Speed", f"{summary[key]:g} {unit}/s across all processes{used}")]


def ending(summary: Mapping[str, Any]) -> Facts:
    """Return which checkpoint was best, by which metric, and the step training was resumed from."""
    rows: Facts = []
    for label, metric, spec in (("checkpoint", "loss", ".3f"), ("network", "accuracy", ".1%")):
        if (value := summary.get(f"validation_{metric}")) is not None:
            rows.append((f"Best {label}", f"step {summary['best_step']}, validation {metric} {value:{spec}}"))
    if summary.get("final_model"):
        last = summary.get("last_validation_loss")
        loss = f", validation loss {last:.3f}" if last is not None else ""
        rows.append(("Last weights", f"step {summary['steps']}{loss}, in final_model/"))
    if summary.get("resumed_from_step"):
        rows.append(("Resumed", f"from step {summary['resumed_from_step']}; times cover only the steps since then"))
    return rows


def machine(
    summary: Mapping[str, Any], manifest: Mapping[str, Any], history: Sequence[Mapping[str, Any]] = ()
) -> Facts:
    """Return where it ran, for how long, and how busy its GPUs were."""
    hardware = manifest.get("hardware") or summary.get("hardware")
    if not hardware:
        return []
    gpus = hardware.get("gpus") or []
    placed = where(hardware["hosts"], hardware.get("nodes") or [])
    rows: Facts = [
        ("Processes", f"{manifest.get('world_size') or summary.get('world_size')} {placed}"),
        ("GPU", ", ".join(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)) or "none"),
        ("CPU", f"{hardware['cpu']}, {hardware['cores']} cores, threads per process: {hardware['threads_per_rank']}"),
        ("Memory", f"{hardware['memory_gib']:g} GiB"),
        ("System", str(hardware.get("system", "unknown"))),
    ]
    if manifest.get("memory"):
        rows.append(("Peak memory", memory.sentence(manifest["memory"])))
    if use := gpu_use.summary(history):
        rows.append(("GPU use", f"{use[0]} of the time of the steps, {use[1]}"))
    if summary.get("seconds"):
        rows.append(("Training time", duration(summary["seconds"])))
    if manifest.get("seconds"):
        rows.append(("Whole run", f"{duration(manifest['seconds'])}, including loading and scoring"))
    if again := restarts(manifest):
        rows.append(("Started again", again))
    return rows


def restarts(manifest: Mapping[str, Any]) -> str:
    """Return how often the run was started again and what that cost, empty if never."""
    attempts = manifest.get("attempts") or {}
    if not attempts.get("restarts"):
        return ""
    times, steps = attempts["restarts"], attempts["repeated_steps"]
    return f"{'once' if times == 1 else f'{times} times'}, {steps} {'step' if steps == 1 else 'steps'} repeated"


def provenance(phase: Mapping[str, Any], manifest: Mapping[str, Any]) -> Facts:
    """Return where model, data and code came from, with licenses and digests."""
    model, data = manifest.get("model") or {}, manifest.get("data") or {}
    rows: Facts = [("Base model", str(model.get("source") or phase["model"]["source"]))]
    if model:
        rows.append(("Its license", str(model.get("license") or "not recorded")))
    if model.get("sha256"):
        rows.append(("Its SHA-256", model["sha256"]))
    if manifest.get("parent"):
        parent = manifest["parent"]
        rows.append(("Its run", f"{parent['run']}, stage {parent['stage']}{_let_through(parent['gate'])}"))
    rows.append(("Data set", str(data.get("source") or phase["data"]["source"])))
    if data.get("license"):
        rows.append(("Its license", str(data["license"])))
    elif phase["data"]["source"].startswith("builtin:"):
        rows.append(
            (
                "Its license",
                "CC-BY-4.0 if it is the one of that name that trainlab brings; see README.md next to the data",
            )
        )
    if data.get("rows"):
        rows.append(("Its rows", account(data["rows"])))
    if data.get("sha256"):
        rows.append(("Its SHA-256", data["sha256"]))
    if manifest.get("phase_hash"):
        rows.append(("Phase", f"{manifest['phase']}, hash {manifest['phase_hash']}"))
    if manifest.get("options"):
        rows.append(("Options", "; ".join(f"{key}: {shown(set_to)}" for key, set_to in manifest["options"].items())))
    if manifest.get("environment_overrides"):
        changed = ", ".join(f"{name}={value}" for name, value in manifest["environment_overrides"].items())
        rows.append(("Overridden by environment", changed))
    versions = manifest.get("versions") or {}
    if versions:
        rows.append(("Versions", ", ".join(f"{name} {number}" for name, number in versions.items())))
    return rows


def duration(seconds: float) -> str:
    """Return a duration as text, always with its seconds."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds:.0f} s ({seconds / 60:.1f} min)"


def verdict(gate: Mapping[str, Any]) -> str:
    """Return the gate's decision in a sentence."""
    metric = gate["metric"].replace("_", " ")
    text = {
        BETTER: f"By {metric} the tuned model is better than the base model",
        SAME: f"By {metric} no difference between base and tuned model could be shown",
        WORSE: f"By {metric} the tuned model is worse than the base model",
        TOO_FEW: f"Too little was measured to tell by {metric} whether the tuned model is better than the base model",
    }[gate["verdict"]]
    passed = gate["promoted"] and not gate.get("override")
    return f"{text}, and the gate {'promoted it' if passed else 'did not promote it'}{_let_through(gate)}."


def _let_through(gate: Mapping[str, Any]) -> str:
    note = gate.get("override")
    return f"; {note['who']} overrode the gate: {note['why']}" if note else ""


def _loss(loss: Any) -> list[str]:
    if not loss or loss["verdict"] not in (BETTER, WORSE):
        return []
    return [
        f"The tuned model gives each token of a right answer {math.exp(loss['mean']):.2f} times the probability that the base "
        f"model does (geometric mean over {loss['pairs']} held-out questions)."
    ]


def _shares(gate: Mapping[str, Any]) -> list[str]:
    """Return the sentences on the shares that were measured, or one saying that none was."""
    recall, form, taught = gate.get("fact_recall"), gate.get("form_adherence"), gate.get("taught_recall")
    label = _label(gate.get("label_accuracy"))
    if taught:
        return [*_taught(taught, gate.get("lookup_recall")), *(_untaught(recall, taught) if recall else []), *label]
    if not form:
        return [*_recall(recall), *label]
    numbers = f"{form['before']:.0%} before, {form['after']:.0%} after, {form['pairs']} verses"
    limits = "It counts lines, syllables and rhymes by spelling; it cannot tell a good poem from a bad one."
    return [*(_recall(recall) if recall else []), f"Form adherence {moved(form)} ({numbers}). {limits}"]


def _taught(taught: Any, lookup: Any) -> list[str]:
    """Return the sentences on the facts that were taught, with a search as baseline."""
    sentences = [
        f"Taught facts, asked in wording that was never trained on: recall {moved(taught)}, {taught['before']:.0%} before, "
        f"{taught['after']:.0%} after ({taught['pairs']} questions, {reach(taught, '+.0%', 'change ')})."
    ]
    if lookup:
        sentences.append(
            f"Searching for the nearest taught question by its words, without a model, gives {lookup['mean']:.0%} "
            f"({reach(lookup, '.0%')})."
        )
    return sentences


def _label(label: Any) -> list[str]:
    if not label:
        return []
    return [
        f"Topic and emergency, named in the first line, {moved(label)} on questions that were never taught: both right in "
        f"{label['before']:.0%} before, {label['after']:.0%} after ({label['pairs']} questions)."
    ]


def _untaught(recall: Any, taught: Any) -> list[str]:
    numbers = f"{recall['before']:.0%} before, {recall['after']:.0%} after, {recall['pairs']} questions"
    if recall["verdict"] == SAME:
        lesson = ": it learned what it was taught, and no more" if taught["verdict"] == BETTER else ""
        return [f"Facts that were never taught did not measurably move ({numbers}){lesson}."]
    return [f"Recall of facts that were never taught {moved(recall)} ({numbers}).{_repeats(recall)}"]


def _repeats(recall: Any) -> str:
    return f" {REPEATS}" if recall["verdict"] == HIGHER else ""


def _recall(recall: Any) -> list[str]:
    if not recall:
        return ["Whether the answers contain the right facts was not measured."]
    numbers = f"{recall['before']:.0%} before, {recall['after']:.0%} after, {recall['pairs']} answered questions"
    if recall["verdict"] == SAME:
        return [
            f"Fact recall did not measurably move ({numbers}): these numbers do not show that the model knows more than before."
        ]
    return [f"Fact recall {moved(recall)} ({numbers}).{_repeats(recall)}"]


def took(training: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """Return the sentence with the time of the training and of the whole run; none while they are unknown."""
    if not training.get("seconds"):
        return []
    run = f", the whole run {duration(manifest['seconds'])}" if manifest.get("seconds") else ""
    return [f"Training took {duration(training['seconds'])}{run}."]


def learning_rate(train: Mapping[str, Any]) -> str:
    """Return the peak learning rate and its warm-up."""
    return f"{train['learning_rate']:g}, warm-up over {train['warmup_fraction']:.0%} of the steps"
