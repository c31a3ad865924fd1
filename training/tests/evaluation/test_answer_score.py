"""evaluate: batches and shards change nothing, the loss is the plain definition, generation stops at EOS."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import phase_from
from trainlab.config import Phase
from trainlab.evaluation import answer_score
from trainlab.models import chat

ROWS: list[Any] = [
    {
        "id": f"r{i}",
        "topic": "ab"[i % 2],
        "question": "Is the water safe " * (1 + i % 3) + "?",
        "answer": "boil it " * (1 + i % 4) + "for a minute",
        "facts": [["boil"], ["minute", "zzz"]],
    }
    for i in range(7)
]


@pytest.fixture(scope="module")
def loaded(tiny_model: Path, phase_dict: dict[str, Any]) -> tuple[Any, Any]:
    return chat.load_base(tiny_model, phase_from(phase_dict))


def phase(phase_dict: dict[str, Any], **changes: Any) -> Phase:
    return phase_from({**phase_dict, "evaluate": {**phase_dict["evaluate"], **changes}})


def test_batch_size_changes_nothing(loaded: tuple[Any, Any], phase_dict: dict[str, Any]) -> None:
    one, seven = (answer_score.score(*loaded, phase(phase_dict, batch_size=size), ROWS) for size in (1, 7))
    assert [item["text"] for item in one["items"]] == [item["text"] for item in seven["items"]]
    for first, second in zip(one["items"], seven["items"], strict=True):
        assert first["loss"] == pytest.approx(second["loss"], abs=1e-5) and first["tokens"] == second["tokens"]
        assert first["recall"] == second["recall"]
    assert one["answer_loss"] == pytest.approx(seven["answer_loss"], abs=1e-5)


def test_loss_is_the_plain_definition(loaded: tuple[Any, Any], phase_dict: dict[str, Any]) -> None:
    model, tokenizer = loaded
    row = ROWS[3]
    encoded = chat.encode(tokenizer, phase(phase_dict), row)
    ids = torch.tensor([encoded["input_ids"]])
    labels = ids.masked_fill(torch.tensor([encoded["completion_mask"]]) == 0, -100)
    with torch.no_grad():
        plain = float(model(input_ids=ids, labels=labels).loss)
    [(loss, tokens)] = answer_score.losses(model, tokenizer, phase(phase_dict), [row])
    assert loss == pytest.approx(plain, abs=1e-5)
    assert (
        tokens == len(tokenizer(row["answer"])["input_ids"]) + 1 and encoded["input_ids"][-1] == tokenizer.eos_token_id
    )


def test_shards_make_the_whole(loaded: tuple[Any, Any], phase_dict: dict[str, Any]) -> None:
    settings = phase(phase_dict, generate_rows=4)
    whole = answer_score.score(*loaded, settings, ROWS)
    shares = [answer_score._items(*loaded, settings, ROWS, (rank, 3), print) for rank in range(3)]
    joined = answer_score._summary(shares, ROWS, settings.evaluate.max_new_tokens, ())
    assert sorted(len(share["losses"]) for share in shares) == [2, 2, 3]
    assert [item["text"] for item in joined["items"]] == [item["text"] for item in whole["items"]]
    assert joined["answer_loss"] == pytest.approx(whole["answer_loss"], abs=1e-5)
    assert joined["answered"] == whole["answered"] == 4


def test_questions_are_answered_in_the_batches_of_the_rows(
    loaded: tuple[Any, Any], phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question generates almost as long as a batch does: its weights are read once for each token of either."""
    settings, asked = phase(phase_dict, generate_rows=4, batch_size=6), ["Hello?", "A longer question?"]
    apart = answer_score.answers(*loaded, settings, asked)
    calls = []
    generate = loaded[0].generate
    monkeypatch.setattr(loaded[0], "generate", lambda **given: calls.append(1) or generate(**given))
    scores = answer_score.score(*loaded, settings, ROWS, questions=asked)
    assert len(calls) == 1 and scores.pop("answers") == apart
    plain = answer_score.score(*loaded, settings, ROWS)
    assert {**scores, "seconds": 0} == {**plain, "seconds": 0} and scores["answered"] == 4


def test_generated_rows_are_spread_over_topics(loaded: tuple[Any, Any], phase_dict: dict[str, Any]) -> None:
    result = answer_score.score(*loaded, phase(phase_dict, generate_rows=2), ROWS)
    answered = [item for item in result["items"] if item["text"] is not None]
    assert sorted(item["topic"] for item in answered) == ["a", "b"]


def test_generation_stops_at_eos_and_the_limit(
    loaded: tuple[Any, Any], phase_dict: dict[str, Any], tiny_model: Path
) -> None:
    model, tokenizer = loaded
    limited = answer_score.answers(
        model, tokenizer, phase(phase_dict, max_new_tokens=5), ["Hello?", "A longer question?"]
    )
    assert [entry["question"] for entry in limited] == ["Hello?", "A longer question?"]
    assert all(1 <= entry["text_tokens"] <= 5 for entry in limited)
    with torch.no_grad():
        logits = model(torch.tensor([chat.prompt_ids(tokenizer, phase(phase_dict), "Hello?")])).logits
    model, tokenizer = chat.load_base(tiny_model, phase(phase_dict))  # its own, because EOS is changed
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(int(logits[0, -1].argmax()))
    assert answer_score.answers(model, tokenizer, phase(phase_dict), ["Hello?"])[0]["text_tokens"] == 1


def test_an_answer_as_long_as_the_limit_did_not_end_by_itself(
    loaded: tuple[Any, Any], phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = dict(zip((row["question"] for row in ROWS), [4, 5] * len(ROWS), strict=False))
    monkeypatch.setattr(answer_score, "_generate", lambda m, t, p, asked, say: [("a", lengths[one]) for one in asked])
    items = answer_score.score(*loaded, phase(phase_dict, max_new_tokens=5), ROWS)["items"]
    assert [item["ended"] for item in items] == [int(item["text_tokens"] == 4) for item in items]
    assert {item["ended"] for item in items} == {0, 1}


def test_progress_is_said(loaded: tuple[Any, Any], phase_dict: dict[str, Any]) -> None:
    lines: list[str] = []
    answer_score.score(*loaded, phase(phase_dict, batch_size=4), ROWS, say=lines.append)
    assert "scored 7 of 7 answers" in lines and "answered 7 of 7 questions" in lines
