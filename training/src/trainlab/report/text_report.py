"""What the report of continued pre-training says, as one dict with the keys of report/page.html.j2; used by recipes/cpt.py."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainlab.evaluation.gate import reach
from trainlab.report import answer_report, page, words

WORDING = {
    **page.WORDING,
    "unit": "blocks",
    "scores": "Loss on text that was not trained on",
    "same": "Same blocks of tokens for both models; whole documents were set aside for them.",
    "legend": ["training blocks", "validation blocks"],
    "topics": "Loss by document",
    "topic": "Document in which the block begins",
    "worse": "Worse: blocks whose loss rose.",
    "answers": "The same beginnings continued, before and after",
    "answers_note": "Not scored: a lower perplexity guarantees neither truth nor sense. Read them critically.",
}
TOPICS = 20  # documents that the page lists, those with the most blocks first


def collect(run_dir: Path) -> dict[str, Any]:
    """Return the content of report.json; raises UserError without a readable phase.json."""
    content = answer_report.Content(run_dir, answer_report.PARTS)
    phase, before, after = content.phase, content.before, content.after
    return {
        **answer_report.frame(content, _summary, _training(phase, content.summary)),
        "scores": _scores(content.gate, before, after, phase),
        "topics": sorted(answer_report.topics(before, after), key=lambda row: -row["questions"])[:TOPICS],
        "curves": answer_report.curves(content.history),
        "answers": answer_report.answers(*content.demo, phase),
    }


def _summary(content: answer_report.Content) -> list[str]:
    """Return what an audience should take away, bad news included."""
    gate, before, after = content.gate, content.before, content.after
    sentences = [words.verdict(gate)]
    both = gate.get("perplexity")
    if both:
        sentences.append(
            f"Perplexity on unseen text: {both['before']:.2f} before, {both['after']:.2f} after, divided by "
            f"{both['factor']:.2f} ({reach(both, '.2f', 'interval ')})."
        )
    guessed = gate.get("next_token_accuracy")
    if guessed:
        sentences.append(
            f"The next token is the model's first guess for {guessed['before']:.1%} of the text before and {guessed['after']:.1%} "
            "after."
        )
    if before and after:
        later = {item["id"]: item["loss"] for item in after["items"]}
        worse = sum(later.get(item["id"], 0.0) > item["loss"] for item in before["items"])
        sentences.append(f"On {worse} of {len(before['items'])} blocks the loss got worse.")
    sentences.append(
        "Perplexity measures how well the text is predicted, in this tokenizer's tokens; it says nothing about truth."
    )
    return sentences + words.took(content.summary, content.manifest)


def _scores(gate: Any, before: Any, after: Any, phase: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each score of both models with its interval and the paired gain."""
    if not (gate and before and after):
        return []
    nats = "nats per token, lower is better; the perplexity is its exponential"
    kinds = (  # name in gate.json, key of an item, title, whether it is a share, what it counts
        ("heldout_loss", "loss", "Held-out loss", False, nats),
        ("next_token_accuracy", "right", "Next token guessed", True, "share of tokens that were the likeliest guess"),
    )
    scores = []
    for name, key, title, share, unit in kinds:
        if gate.get(name):
            bars = answer_report.bars(before["items"], after["items"], key, phase)
            scores.append(
                {"name": name, "title": title, "share": share, "unit": unit, "bars": bars, "gain": gate[name]}
            )
    return scores


def _training(phase: Mapping[str, Any], summary: Mapping[str, Any]) -> words.Facts:
    train, what = phase["train"], "all weights"
    if not phase["text"].get("train_all", True):
        head = "and the language-model head" if phase["unfreeze"]["lm_head"] else "without the language-model head"
        what = f"the last {phase['unfreeze']['layers']} layers {head}"
    kind = "continued pre-training" if phase["recipe"] == "cpt" else "pre-training from random weights"
    rows: words.Facts = [
        ("Recipe", f"{phase['recipe']}: {kind} of {what}"),
        ("Learning rate", words.learning_rate(train)),
        ("Seed", str(phase["seed"])),
    ]
    if not summary:
        return rows
    counts = summary["parameters"]
    rows.insert(1, ("Trained weights", f"{counts['trainable']:,} of {counts['total']:,} ({counts['share']:.1%})"))
    text = (
        f"{summary['rows']} blocks of {phase['model']['max_length']} tokens out of {summary['documents']} documents; "
        f"{summary['remainder_tokens']} tokens that did not fill a block were left out"
    )
    rows += [
        ("Text", text),
        ("Validation", f"{summary['validation_rows']} blocks for choosing the best checkpoint"),
        ("Steps", f"{summary['steps']} of {summary['effective_batch']} blocks each, {summary['epochs']:g} epochs"),
        ("Arithmetic", f"{summary['dtype']}, attention by {summary['attention']}"),
    ]
    return rows + words.speed(summary, "tokens", "tokens_per_second") + words.ending(summary)
