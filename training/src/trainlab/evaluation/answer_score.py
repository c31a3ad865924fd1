"""Scores of one model on held-out rows: answer loss, greedy answers, fact recall, label and form; the same way for base and tuned.

Called by the recipes before and after training (every rank scores its share) and by `trainlab eval`. Prompts come from models/chat.py.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase, StoppingCriteria, StoppingCriteriaList

from trainlab.config import ChatPhase, LanguagePhase
from trainlab.data import answer_forms, chat_rows, verse_forms
from trainlab.engine import dist
from trainlab.engine.answer_loss import only
from trainlab.evaluation import facts, gate
from trainlab.evaluation.answer_gate import COMPARED
from trainlab.models import chat

Say = Callable[[str], None]
Around = Callable[[Sequence[int]], AbstractContextManager[None]]
MAX_SILENCE = 20.0  # seconds of generation without output


def score(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    phase: ChatPhase,
    rows: Sequence[chat_rows.HeldoutRow],
    *,
    trained: Sequence[str] = (),
    questions: Sequence[str] = (),
    say: Say | None = None,
) -> dict[str, Any]:
    """Score `rows`, split over all ranks: every rank calls it with the same rows and gets the whole result.

    It is what eval_before.json and eval_after.json contain; a mean of no values is None:
      answer_loss      mean over rows of the mean nats per token of the right answer
      fact_recall      mean share of facts stated in the answered rows, taught ones left out
      taught_recall    the same over the rows that ask for taught facts
      label_accuracy   share of right label lines (data/answer_forms.py), taught rows left out
      form_adherence   mean over verses (data/verse_forms.py)
      ended_by_itself  share of answers shorter than evaluate.max_new_tokens
      answer_tokens    mean length of the generated answers
      rows, answered, seconds
      answers          only with `questions`, which are answered in the same batches: as `answers` returns them
      items            per row: id, kind, topic, question, answer, facts, loss, tokens (of the right answer to the end of its turn), text,
                       text_tokens, recall and ended (1 or 0); with a label also label, said (the line that the text
                       started with, which `text` lacks) and labelled (1 if right, else 0); for verses also form,
                       adherence and its parts; everything from text on is None where no answer was generated;
                       refused (1 or 0) where a refusal is right, taught_refused where it is wrong, harm in emergencies that
                       were not taught (evaluation/facts.py; `trained` are the answers that training teaches), structure
                       where the right answer has steps (data/answer_forms.py); loss and tokens are None where the answer
                       is no text to learn: questions to refuse and probes
    """
    share = (dist.rank(), dist.world_size())
    say = say or (_print if dist.is_main() else lambda __: None)
    parts = dist.gather(_items(model, tokenizer, phase, rows, share, say, questions))
    summary = _summary(parts, rows, phase.evaluate.max_new_tokens, trained)
    if questions:
        texts = {key: value for part in parts for key, value in part["texts"].items()}
        summary["answers"] = [_answer(question, texts[i]) for i, question in enumerate(questions)]
    return summary


def answers_of_all(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, phase: LanguagePhase, questions: Sequence[str]
) -> list[dict[str, Any]]:
    """As `answers`, split over all ranks: every rank calls it with the same questions and gets all answers."""
    rank, world = dist.rank(), dist.world_size()
    own = questions[rank::world]
    parts = dist.gather(answers(model, tokenizer, phase, own, say=lambda __: None) if own else [])
    return [parts[i % world][i // world] for i in range(len(questions))]


def answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    phase: LanguagePhase,
    questions: Sequence[str],
    *,
    say: Say | None = None,
    around: Around | None = None,
) -> list[dict[str, Any]]:
    """Return [{question, text, text_tokens}] with the greedy answer to each of `questions`, in their order.

    around: gets the places of a batch's questions and is entered while the batch is answered.
    """
    generated = _generate(model, tokenizer, phase, questions, say or _print, around)
    return [_answer(question, output) for question, output in zip(questions, generated, strict=True)]


def _answer(question: str, generated: tuple[str, int]) -> dict[str, Any]:
    return {"question": question, "text": generated[0], "text_tokens": generated[1]}


def losses(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    phase: ChatPhase,
    rows: Sequence[Any],
    say: Say | None = None,
) -> list[tuple[float, int]]:
    """Return (mean nats per token, tokens) of each row's answer to the end of its turn, given its prompt.

    Only the positions that predict an answer's tokens go through the head.
    """
    encoded = [chat.encode(tokenizer, phase, row) for row in rows]
    scores: list[tuple[float, int]] = [(0.0, 0)] * len(rows)
    done = 0
    for batch in _batches([len(entry["input_ids"]) for entry in encoded], phase.evaluate.batch_size):
        ids, mask = chat.padded([encoded[i]["input_ids"] for i in batch], tokenizer.pad_token_id, model.device)
        lengths = [sum(encoded[i]["completion_mask"]) for i in batch]
        predicting = torch.zeros_like(mask, dtype=torch.bool)  # padded on the left: answers are last
        for place, length in enumerate(lengths):
            predicting[place, -length - 1 : -1] = True
        with torch.inference_mode(), only(model.get_output_embeddings(), predicting):
            positions = (mask.cumsum(-1) - 1).clamp(min=0)
            logits = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
        for place, (i, answer) in enumerate(zip(batch, logits.split(lengths), strict=True)):
            scores[i] = (float(cross_entropy(answer.float(), ids[place, -len(answer) :])), len(answer))
        done += len(batch)
        if say:
            say(f"scored {done} of {len(rows)} answers")
    return scores


def _items(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    phase: ChatPhase,
    rows: Sequence[chat_rows.HeldoutRow],
    share: tuple[int, int],
    say: Say,
    questions: Sequence[str] = (),
) -> dict[str, Any]:
    """Score every `share[1]`-th row from `share[0]` on; the rows to answer, and the questions after them, are dealt out separately."""
    began = time.monotonic()
    rank, ranks = share
    learned = [row for row in rows if gate.kind_of(row) in ("taught", "never_taught") and not row.get("refuse")]
    own = learned[rank::ranks]
    asked: list[tuple[str | int, str]] = [(row["id"], row["question"]) for row in _to_answer(rows, phase)]
    asked = [*asked, *enumerate(questions)][rank::ranks]
    scored = losses(model, tokenizer, phase, own, say)
    texts = _generate(model, tokenizer, phase, [question for __, question in asked], say)
    return {
        "losses": {row["id"]: value for row, value in zip(own, scored, strict=True)},
        "texts": {key: value for (key, __), value in zip(asked, texts, strict=True)},
        "seconds": time.monotonic() - began,
    }


def _to_answer(rows: Sequence[chat_rows.HeldoutRow], phase: ChatPhase) -> list[chat_rows.HeldoutRow]:
    """Return the rows to answer: all taught ones, and evaluate.generate_rows of each other kind."""
    kinds = dict.fromkeys(gate.kind_of(row) for row in rows)
    return [
        row
        for kind in sorted(kinds, key=lambda kind: kind == "taught")
        for row in chat_rows.even(
            [row for row in rows if gate.kind_of(row) == kind],
            None if kind == "taught" else phase.evaluate.generate_rows,
        )
    ]


def _summary(
    parts: Sequence[dict[str, Any]], rows: Sequence[chat_rows.HeldoutRow], limit: int, trained: Sequence[str]
) -> dict[str, Any]:
    """Merge the ranks' results, in the order of `rows`; answers of `limit` tokens did not end by themselves."""
    losses = {key: value for part in parts for key, value in part["losses"].items()}
    texts = {key: value for part in parts for key, value in part["texts"].items()}
    items: list[dict[str, Any]] = []
    for row in rows:
        loss, tokens = losses.get(row["id"], (None, None))
        text, length = texts.get(row["id"], (None, None))
        label = None
        if text is not None and "label" in row:
            label, text = answer_forms.split_label(text)
        recall = None if text is None else facts.recall(text, row["facts"])
        item = {**row, "loss": loss, "tokens": tokens, "text": text, "text_tokens": length, "recall": recall}
        item["ended"] = None if length is None else int(length < limit)
        if "label" in row:
            item["said"] = label
            item["labelled"] = None if label is None else int(answer_forms.same_label(label, row["label"]))
        if "form" in row:
            item["adherence"] = None if text is None else verse_forms.adherence(text, row["form"])
            item |= {} if text is None else verse_forms.parts(text, row["form"])
        items.append(item | ({} if text is None else _judged(row, text, trained)))
    means = ("answer_loss", "fact_recall", "taught_recall", "label_accuracy", "form_adherence", "ended_by_itself")
    return {
        **{name: _mean(items, *COMPARED[name]) for name in means},
        "answer_tokens": _mean(items, "text_tokens", None),
        "rows": len(items),
        "answered": sum(item["text"] is not None for item in items),
        "seconds": round(max(part["seconds"] for part in parts), 2),
        "items": items,
    }


def _judged(row: chat_rows.HeldoutRow, text: str, trained: Sequence[str]) -> dict[str, float]:
    """Return what an answer, without its label line, is judged by besides its facts."""
    judged: dict[str, float] = {}
    if "refusal" in row:
        refused = int(answer_forms.is_refusal(text, row["refusal"]))
        if row.get("refuse"):
            judged["refused"] = refused
        if gate.kind_of(row) == "taught":
            judged["taught_refused"] = refused
        if gate.kind_of(row) in ("never_taught", "refused") and row.get("emergency"):
            judged["harm"] = int(facts.harmful(row, text, trained))
    if row.get("steps"):
        judged["structure"] = answer_forms.structure(text)
    return judged


def _generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    phase: LanguagePhase,
    questions: Sequence[str],
    say: Say,
    around: Around | None = None,
) -> list[tuple[str, int]]:
    """Return (text, tokens with the one that ended it) of the greedy answer to each question."""
    prompts = [chat.prompt_ids(tokenizer, phase, question) for question in questions]
    outputs: list[tuple[str, int]] = [("", 0)] * len(prompts)
    done, limit = 0, phase.evaluate.max_new_tokens
    generate: Any = model.generate
    stops = chat.stop_ids(model, tokenizer)
    for batch in _batches([len(ids) for ids in prompts], phase.evaluate.batch_size):
        ids, mask = chat.padded([prompts[i] for i in batch], tokenizer.pad_token_id, model.device)
        pulse = _Pulse(say, f"answering questions {done + 1} to {done + len(batch)} of {len(prompts)}", limit)
        with torch.inference_mode(), around(batch) if around else nullcontext():
            out = generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=limit,
                do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=stops,
                stopping_criteria=StoppingCriteriaList([pulse]),
            )
        for i, tokens in zip(batch, out[:, ids.shape[1] :].tolist(), strict=True):
            end = next((place for place, token in enumerate(tokens) if token in stops), len(tokens))
            tokens = tokens[: end + 1]  # everything after it is padding
            outputs[i] = (str(tokenizer.decode(tokens, skip_special_tokens=True)).strip(), len(tokens))
        done += len(batch)
        say(f"answered {done} of {len(prompts)} questions")
    return outputs


class _Pulse(StoppingCriteria):
    """Never stops a generation; reports progress when it takes long."""

    def __init__(self, say: Say, what: str, limit: int) -> None:
        self._say, self._what, self._limit = say, what, limit
        self._tokens, self._reported = 0, time.monotonic()

    def __call__(self, input_ids: torch.Tensor, scores: Any, **__: Any) -> torch.Tensor:  # type: ignore[override]
        """Count one token of every sequence; stop none."""
        self._tokens += 1
        if time.monotonic() - self._reported > MAX_SILENCE:
            self._reported = time.monotonic()
            self._say(f"{self._what}: token {self._tokens} of {self._limit}")
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def _batches(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield the indices of items in batches of `size`, longest first, so that a batch has little padding."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _mean(items: Sequence[dict[str, Any]], key: str, kind: str | None) -> float | None:
    values = [item[key] for item in items if kind in (None, gate.kind_of(item)) and item.get(key) is not None]
    return sum(values) / len(values) if values else None


def _print(text: str) -> None:
    print(f"trainlab: {text}", flush=True)
