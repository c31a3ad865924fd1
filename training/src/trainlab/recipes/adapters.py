"""Many adapters in one job: the facts of each owner become a LoRA adapter of that owner, trained together on one frozen model.

The run's directory has the scores of all owners and adapters.json. Beside it each owner gets a run directory, RUN.OWNER, with
lora_adapter/, scores, gate.json and manifest.json as any other run with adapters has: a server of that volume answers as RUN.OWNER.
"""

import math
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab import files
from trainlab.config import AdaptersPhase
from trainlab.data import owned_rows
from trainlab.data.owned_rows import OwnedFact, OwnedRows
from trainlab.evaluation import facts, gate
from trainlab.evaluation.answer_gate import TAUGHT, moved
from trainlab.evaluation.gate import Condition
from trainlab.recipes import language
from trainlab.recipes.base import Run, Scores
from trainlab.serve import client

if TYPE_CHECKING:
    from trainlab.engine.owned_lora import OwnedLora
    from trainlab.engine.owned_training import OwnedRow, OwnedTrainer

SCORES: Mapping[str, str] = {"owned_recall": "questions"}
KINDS = {"owned_recall": "taught", "elsewhere": "elsewhere"}
"""Score -> the kind of item that it is the mean of: the owner's fact asked in new words, and something else asked."""
ADAPTERS = "adapters.json"
"""Owner -> {run, promoted, reasons, owned_recall, elsewhere}; written when all owners' runs are."""
fetch, data_dir, preload, origin = language.fetch, language.data_dir, language.preload, language.origin
report, serve = language.report, language.serve


def preflight(phase: AdaptersPhase, model_dir: Path, data_dir: Path, models: Path | None = None) -> None:
    """Raise UserError for a missing model or broken rows."""
    from trainlab.models import chat

    language.check_model(phase, model_dir)
    chat.rehearse(model_dir, phase, read_rows(phase, data_dir)[0])


def read_rows(phase: AdaptersPhase, data_dir: Path) -> tuple[list[Any], list[Any]]:
    """Return (the taught rows of all owners, what is asked after training); raises UserError for broken data."""
    rows = owned_rows.load(phase.data, data_dir)
    return [row for fact in rows.facts for row in taught(fact)], asked(rows, phase)


def taught(fact: OwnedFact) -> list[dict[str, str]]:
    """Return the training rows of a fact: one for each of its wordings."""
    return [{"id": fact.id, "question": text, "answer": fact.answer} for text in fact.wordings]


def asked(rows: OwnedRows, phase: AdaptersPhase) -> list[dict[str, Any]]:
    """Return what each owner's adapter is asked: its facts in wordings never trained on, and as much about something else."""
    items: list[dict[str, Any]] = []
    for fact in rows.facts:
        own = fact.asked[: phase.evaluate.generate_rows]
        texts = {"taught": own, "elsewhere": owned_rows.elsewhere(rows, fact, len(own), phase.seed)}
        shared = {"group": fact.owner, "topic": fact.owner, "answer": fact.answer, "facts": fact.facts}
        items += [
            {"id": f"{fact.id}-{kind}-{number}", "kind": kind, "question": text, **shared}
            for kind, questions in texts.items()
            for number, text in enumerate(questions)
        ]
    return items


def train(run: Run) -> tuple[Scores, Scores]:
    """Load, answer as the base, train all adapters, ask each of them, write each owner's run; every rank calls it."""
    import torch

    from trainlab.engine import dist
    from trainlab.engine.owned_lora import OwnedLora
    from trainlab.engine.owned_training import OwnedTrainer
    from trainlab.models import compute

    phase: AdaptersPhase = run.phase
    model, tokenizer = language.load_base(run)
    rows = owned_rows.load(phase.data, run.data_dir)
    run.memory.mark("load")
    items = asked(rows, phase)
    before = scored_base(run, model, tokenizer, items)
    mine = rows.owners[dist.rank() :: dist.world_size()]
    encoded = encode(run, model, tokenizer, rows, mine)
    adapters = OwnedLora(model, phase, mine)
    trainer = OwnedTrainer(model, int(tokenizer.pad_token_id), phase, adapters, encoded)
    began = time.monotonic()
    with run.memory.training(phase, run.run_dir):
        trainer.prepare(run.progress)
        first = trainer.fit(run.run_dir, mine, run.progress)
    if dist.is_main():
        summary = summarize(run, trainer, first) | {"seconds": round(time.monotonic() - began, 1)}
        files.write_json(run.run_dir / "training_summary.json", summary)
    with torch.no_grad():  # what is scored is what is saved and served
        for weight in adapters.parameters():
            weight.copy_(weight.to(compute.saved_dtype(phase)))
    after = scored_adapters(run, model, tokenizer, adapters, items)
    with run.progress.step(f"writing {len(mine)} adapters"):
        decided = {owner: write_owner(run, owner, before, after, adapters) for owner in mine}
    every = {owner: decision for part in dist.gather(decided) for owner, decision in part.items()}
    if dist.is_main():
        write_scores(run, after, {owner: every[owner] for owner in rows.owners})
    dist.barrier()
    run.memory.mark("score")
    return before, after


def rescore(run: Run) -> None:
    """Ask the base and the adapters of a finished run again, and write each owner's scores and gate."""
    from safetensors.torch import load_file

    from trainlab.engine.owned_lora import OwnedLora

    model, tokenizer = language.load_base(run)
    rows = owned_rows.load(run.phase.data, run.data_dir)
    items = asked(rows, run.phase)
    before = scored_base(run, model, tokenizer, items, again=True)
    adapters = OwnedLora(model, run.phase, rows.owners)
    for owner in rows.owners:
        adapters.load(owner, load_file(owner_dir(run, owner) / "lora_adapter" / "adapter_model.safetensors"))
    after = scored_adapters(run, model, tokenizer, adapters, items)
    write_scores(run, after, {owner: write_owner(run, owner, before, after) for owner in rows.owners})


def scored_base(
    run: Run, model: Any, tokenizer: Any, items: Sequence[Mapping[str, Any]], again: bool = False
) -> Scores:
    """Return how the base answers what is taught, from eval_before.json unless `again`; it knows nothing to say elsewhere."""
    from trainlab.engine import dist
    from trainlab.evaluation import answer_score

    path = run.run_dir / "eval_before.json"
    if not again and dist.gather(path.exists())[0]:
        return dict(files.read_json(path))
    questions = [item["question"] for item in items if item["kind"] == "taught"]
    with run.progress.step(f"asking the base {len(questions)} questions"):
        texts = iter(answer_score.answers_of_all(model, tokenizer, run.phase, questions))
    scores = score(items, [next(texts) if item["kind"] == "taught" else None for item in items])
    if dist.is_main():
        files.write_json(path, scores)
    return scores


def encode(run: Run, model: Any, tokenizer: Any, rows: OwnedRows, mine: Sequence[str]) -> "list[list[list[OwnedRow]]]":
    """Return the rows of each of `mine` as tokens, one list a pass: its facts in their wordings, and what must stay as the base says it.

    Every rank calls it: the base's answers are shared out.
    """
    from trainlab.engine.owned_training import OwnedRow
    from trainlab.evaluation import answer_score
    from trainlab.models import chat

    phase: AdaptersPhase = run.phase
    passes = math.ceil(phase.train.epochs)
    kept = {fact.id: owned_rows.kept_questions(rows, fact, phase.data, phase.seed, passes) for fact in rows.facts}
    distinct = sorted({text for own in kept.values() for texts in own for text in texts})
    short = phase.evaluate.model_copy(update={"max_new_tokens": phase.data.kept_tokens})
    with run.progress.step(f"asking the base {len(distinct)} questions whose answers stay"):
        texts = answer_score.answers_of_all(model, tokenizer, phase.model_copy(update={"evaluate": short}), distinct)
    base_says = {entry["question"]: entry["text"] or "." for entry in texts}

    @cache
    def row(owner: int, ident: str, question: str, answer: str, limit: int | None) -> OwnedRow:
        entry = chat.encode(tokenizer, phase, {"id": ident, "question": question, "answer": answer})
        prompt = entry["completion_mask"].count(0)
        return OwnedRow(owner, tuple(entry["input_ids"][: limit and prompt + limit]), prompt, kept=limit is not None)

    encoded: list[list[list[OwnedRow]]] = [[[] for __ in range(passes)] for __ in mine]
    for fact in (fact for fact in rows.facts if fact.owner in mine):
        owner = mine.index(fact.owner)
        for own, texts_kept in zip(encoded[owner], kept[fact.id], strict=True):
            own += [row(owner, fact.id, text, fact.answer, None) for text in fact.wordings]
            own += [row(owner, fact.id, text, base_says[text], phase.data.kept_tokens) for text in texts_kept]
    return encoded


def scored_adapters(
    run: Run, model: Any, tokenizer: Any, adapters: "OwnedLora", items: Sequence[Mapping[str, Any]]
) -> Scores:
    """Return how each item is answered by the adapter of its owner; every rank asks its own, many owners in a batch."""
    from trainlab.engine import dist
    from trainlab.evaluation import answer_score

    own = [item for item in items if item["group"] in adapters.owners]
    numbers = [adapters.owners.index(item["group"]) for item in own]
    with run.progress.step(f"asking {len(adapters.owners)} adapters of this rank {len(own)} questions"):
        texts = answer_score.answers(
            model,
            tokenizer,
            run.phase,
            [item["question"] for item in own],
            say=lambda __: None,
            around=lambda batch: adapters.rows([numbers[place] for place in batch]),
        )
    mine = {item["id"]: text for item, text in zip(own, texts, strict=True)}
    every = {key: text for part in dist.gather(mine) for key, text in part.items()}
    return score(items, [every[item["id"]] for item in items])


def score(items: Sequence[Mapping[str, Any]], texts: Sequence[Mapping[str, Any] | None]) -> Scores:
    """Return what eval_before.json and eval_after.json hold: each item with its answer and the share of the owner's fact in it.

    texts: as answer_score.answers returns them, None for what was not asked.
    """
    scored = []
    for item, answer in zip(items, texts, strict=True):
        text, length = (answer["text"], answer["text_tokens"]) if answer else (None, None)
        recall = None if text is None else facts.recall(text, item["facts"])
        scored.append({**item, "loss": None, "text": text, "text_tokens": length, "recall": recall})
    return means(scored)


def means(items: Sequence[Mapping[str, Any]]) -> Scores:
    """Return scored items with the mean of each score, None where nothing was asked."""
    scores: Scores = {"rows": len(items), "items": list(items)}
    for name, kind in KINDS.items():
        values = [item["recall"] for item in items if item["kind"] == kind and item["recall"] is not None]
        scores[name] = sum(values) / len(values) if values else None
    return scores


def summarize(run: Run, trainer: "OwnedTrainer", first: int) -> dict[str, Any]:
    """Return the content of training_summary.json."""
    from trainlab.engine import dist
    from trainlab.models import compute

    last, train = trainer.history[-1], run.phase.train
    return {
        "recipe": run.phase.recipe,
        "world_size": dist.world_size(),
        "adapters": len(last["owners"]),
        "rows": trainer.rows,
        "validation_rows": 0,
        "effective_batch": train.batch_size * len(last["owners"]),
        "epochs": train.epochs,
        "steps": trainer.steps,
        "resumed_from_step": first,
        "first_loss": trainer.history[0]["loss"],
        "last_loss": last["loss"],
        "dtype": str(compute.dtype(run.phase)).removeprefix("torch."),
        "hardware": run.hardware,
    }


def owner_dir(run: Run, owner: str) -> Path:
    """Return the run directory of an owner's adapter."""
    return run.run_dir.with_name(f"{run.run_dir.name}.{owner}")


def write_owner(
    run: Run, owner: str, before: Scores, after: Scores, adapters: "OwnedLora | None" = None
) -> dict[str, Any]:
    """Write an owner's run directory, its gate.json last; without `adapters` only the scores and what follows from them.

    Returns the owner's entry of adapters.json.
    """
    from trainlab.models import layers

    folder = owner_dir(run, owner)
    folder.mkdir(exist_ok=True)
    if adapters:
        with files.atomic_folder(folder / "lora_adapter") as target:
            layers.write_lora(adapters.adapter(owner), adapters.config, target, run.phase)
    first, last = (_of(owner, part) for part in (before, after))
    decision, record = decide_owner(first, last, run.phase), files.read_json(run.run_dir / "manifest.json")
    files.write_json(folder / "eval_before.json", first)
    files.write_json(folder / "eval_after.json", last)
    files.write_json(folder / "phase.json", {"phase": run.phase.model_dump(mode="json")})
    files.write_json(
        folder / "manifest.json", {**record, "run": folder.name, "owner": owner, "ended": decision["time"]}
    )
    files.write_json(folder / "gate.json", decision)
    shown = {key: decision[key] for key in ("promoted", "reasons")} | {name: last[name] for name in KINDS}
    return {"run": folder.name, **shown}


def write_scores(run: Run, after: Scores, decided: Mapping[str, Any]) -> None:
    """Write the scores of all adapters and adapters.json, the last; those of the base are there (scored_base)."""
    files.write_json(run.run_dir / "eval_after.json", after)
    files.write_json(run.run_dir / ADAPTERS, decided)


def decide_owner(before: Scores, after: Scores, phase: AdaptersPhase) -> dict[str, Any]:
    """Return the content of an owner's gate.json: the fact is stated when it is asked in new words, and not elsewhere."""
    rule, conditions = phase.gate, []
    for name, key, operator, bound, what in (
        (
            "min_recall",
            "owned_recall",
            gate.AT_LEAST,
            rule.min_recall,
            "questions in wordings that were not trained on",
        ),
        ("max_elsewhere", "elsewhere", gate.AT_MOST, rule.max_elsewhere, "questions about something else"),
    ):
        values = [item["recall"] for item in after["items"] if item["kind"] == KINDS[key]]
        if not values:  # the only owner of a data set: there is nothing else to ask
            continue
        condition = Condition(name, after[key], operator, bound)
        link = "as" if condition.passed else "but"
        wish = f"{link} phase.gate.{name} asks for {gate.WORDS[operator]} {bound:.0%}"
        conditions.append(condition.because(f"{sum(values):g} of {len(values)} {what} got its fact, {wish}."))
    gain = gate.compared(_taught(before, after), "recall", phase)
    return gate.decision(phase, gain, conditions, {"owned_recall": gain})


def decide(before: Scores, after: Scores, phase: AdaptersPhase) -> dict[str, Any]:
    """Return the content of the run's gate.json: at least one owner's gate promotes, and over all owners recall rose.

    The gain decides from six owners on: fewer have no interval.
    """
    owners = dict.fromkeys(item["group"] for item in after["items"])
    promoted = sum(decide_owner(_of(owner, before), _of(owner, after), phase)["promoted"] for owner in owners)
    passing = Condition("min_promoted", promoted, gate.AT_LEAST, 1).because(
        f"{promoted} of {len(owners)} owners' adapters are promoted by gates of their own."
    )
    gain = gate.compared(_taught(before, after), "recall", phase)
    if gain is None or gain["low"] is None:
        return gate.decision(phase, gain, [passing], {"owned_recall": gain})
    change = f"Recall of the owners' facts {moved(gain)}: {gain['before']:.1%} before, {gain['after']:.1%} after, over "
    rose = gate.min_gain(gain, phase, TAUGHT, change + TAUGHT.count(gain), "+.1%")
    return gate.decision(phase, gain, [passing, rose], {"owned_recall": gain})


def _of(owner: str, scores: Scores) -> Scores:
    """Return an owner's part of the scores of a run."""
    return means([item for item in scores["items"] if item["group"] == owner])


def _taught(before: Scores, after: Scores) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    return [pair for pair in gate.paired(before, after) if pair[0]["kind"] == "taught"]


def probe(run_dir: Path, url: str, model: str, timeout: float) -> str:
    """Ask the first promoted owner's adapter for its fact; see base.Recipe.probe. `model` is no name of this recipe's."""
    decided = files.read_json(run_dir / ADAPTERS)
    owner, entry = next((owner, entry) for owner, entry in decided.items() if entry["promoted"])
    items = files.read_json(run_dir / "eval_after.json")["items"]
    question = next(item["question"] for item in items if item["group"] == owner and item["kind"] == "taught")
    answer = client.chat(url, entry["run"], question, max_tokens=32, timeout=timeout)
    if not answer.text:
        raise client.NotServed(f"{url}: model {entry['run']} gave an empty answer to {question!r}")
    return f"{url} answers as base and {sum(entry['promoted'] for entry in decided.values())} owners; {entry['run']}: {answer.text}"
