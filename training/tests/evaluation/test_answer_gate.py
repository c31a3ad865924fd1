"""gate: flips exactly at its thresholds, says why with numbers, refuses rows that do not match."""

from typing import Any

import pytest
from tiny import phase_from
from trainlab.config import Phase
from trainlab.errors import UserError
from trainlab.evaluation.answer_gate import decide


def phase(**gate: Any) -> Phase:
    return phase_from(
        {
            "name": "p",
            "recipe": "sft",
            "title": "t",
            "model": {"source": "pvc:m"},
            "data": {"source": "builtin:d"},
            "gate": gate,
            "evaluate": {"bootstrap_samples": 200},
        }
    )


def scores(loss: list[float], recall: list[float | None]) -> dict[str, Any]:
    items = [{"id": str(i), "loss": a, "recall": b} for i, (a, b) in enumerate(zip(loss, recall, strict=True))]
    return {"items": items}


def test_gain_of_exactly_min_gain_is_not_enough_and_a_hair_more_is() -> None:
    before, after = scores([2.0] * 8, [0.5] * 8), scores([1.5] * 8, [0.5] * 8)
    assert decide(before, after, phase(min_gain=0.5))["promoted"] is False
    assert decide(before, after, phase(min_gain=0.4999999))["promoted"] is True


def test_recall_drop_of_exactly_the_bound_passes_and_a_hair_more_does_not() -> None:
    before = scores([2.0] * 20, [0.55] * 20)
    assert decide(before, scores([1.0] * 20, [0.5] * 20), phase(max_fact_recall_drop=0.05))["promoted"] is True
    assert decide(before, scores([1.0] * 20, [0.4999] * 20), phase(max_fact_recall_drop=0.05))["promoted"] is False


def test_identical_models_are_no_difference_and_stay_out() -> None:
    same = scores([2.0, 1.0, 3.0] * 3, [0.5, 1.0, 0.0] * 3)
    for metric in ("answer_loss", "fact_recall"):
        result = decide(same, same, phase(metric=metric))
        assert (result["verdict"], result["promoted"]) == ("no difference", False)
        assert "not above the required 0" in result["reasons"][0]


def test_fact_recall_can_be_the_metric() -> None:
    result = decide(scores([1] * 9, [0.1] * 9), scores([1] * 9, [0.9] * 9), phase(metric="fact_recall"))
    assert result["promoted"] and result["verdict"] == "better" and result["gain"]["mean"] == pytest.approx(0.8)


def parts(taught: float, others: float, loss: float) -> dict[str, Any]:
    """Ten taught items, of which a search finds 0.5 of the facts, and ten others."""
    asked = [
        {
            "id": f"t{i}",
            "kind": "taught",
            "loss": loss,
            "recall": taught,
            "nearest": "red",
            "facts": [["red"], ["blue"]],
        }
        for i in range(10)
    ]
    return {"items": [*asked, *({"id": f"n{i}", "loss": loss, "recall": others} for i in range(10))]}


def test_taught_recall_decides_and_the_loss_guards() -> None:
    rule = phase_from(
        {
            **phase().model_dump(mode="json"),
            "gate": {"metric": "taught_recall"},
            "data": {"source": "builtin:d", "taught": "test"},
        }
    )
    good = decide(parts(0.1, 0.2, 2.0), parts(0.9, 0.2, 1.0), rule)
    assert (
        good["promoted"]
        and good["gain"] == good["taught_recall"]
        and good["taught_recall"]["after"] == pytest.approx(0.9)
    )
    assert (good["fact_recall"]["verdict"], good["fact_recall"]["pairs"]) == ("no difference", 10)
    assert (good["lookup_recall"]["mean"], good["lookup_recall"]["pairs"]) == (0.5, 10)
    unmoved = decide(parts(0.1, 0.2, 2.0), parts(0.1, 0.2, 0.1), rule)
    assert not unmoved["promoted"], "a lower loss alone is not enough"
    worse = decide(parts(0.1, 0.2, 2.0), parts(0.9, 0.2, 2.5), rule)
    assert not worse["promoted"] and "2.000 to 2.500: worse" in worse["reasons"][1]


@pytest.mark.parametrize(
    ("taught", "required", "promoted"), [(0.1, True, False), (0.9, True, True), (0.1, False, True)]
)
def test_a_lower_loss_alone_promotes_nothing_that_was_taught(taught: float, required: bool, promoted: bool) -> None:
    rule = phase_from(
        {
            **phase().model_dump(mode="json"),
            "gate": {"metric": "answer_loss", "require_taught": required},
            "data": {"source": "builtin:d", "taught": "test"},
        }
    )
    found = decide(parts(0.1, 0.2, 2.0), parts(taught, 0.2, 1.0), rule)
    assert found["promoted"] is promoted
    assert any("phase.gate.require_taught asks for" in reason for reason in found["reasons"]) is required


def test_reasons_have_the_numbers() -> None:
    result = decide(scores([2.0, 2.5] * 6, [0.5, None] * 6), scores([1.0, 1.4] * 6, [0.5, None] * 6), phase())
    assert "from 2.250 to 1.200 nats per token over 12 held-out questions: a gain" in result["reasons"][0]
    assert "did not measurably move: 50.0% before, 50.0% after, over 6 answered" in result["reasons"][1]
    assert set(result) >= {"promoted", "verdict", "metric", "gain", "fact_recall", "reasons", "thresholds", "time"}


def test_no_facts_and_broken_losses() -> None:
    unasked = decide(scores([2] * 6, [None] * 6), scores([1] * 6, [None] * 6), phase())
    assert unasked["promoted"] is True and unasked["reasons"][1].startswith("Fact recall was not measured")
    broken = decide(scores([2, 2], [1, 1]), scores([1, float("nan")], [1, 1]), phase())
    assert broken["promoted"] is False and "not a finite number" in broken["reasons"][0]


def test_other_rows_are_refused() -> None:
    other = {"items": [{"id": "x", "loss": 1.0, "recall": 1.0}]}
    with pytest.raises(UserError, match="do not hold the same rows"):
        decide(scores([1.0], [1.0]), other, phase())
    twice = {"items": [other["items"][0]] * 2}
    with pytest.raises(UserError, match="same id"):
        decide(twice, twice, phase())


def verses(loss: list[float], adherence: list[float]) -> dict[str, Any]:
    both = enumerate(zip(loss, adherence, strict=True))
    return {"items": [{"id": str(i), "loss": a, "recall": None, "adherence": b} for i, (a, b) in both]}


def test_form_adherence_can_decide_and_can_hold_back() -> None:
    before = verses([3.0] * 20, [0.5] * 20)
    better = decide(before, verses([3.5] * 20, [0.9] * 20), phase(metric="form_adherence"))
    assert better["promoted"] and better["gain"]["mean"] == pytest.approx(0.4)
    assert "from 0.500 to 0.900 of the form over 20 held-out questions" in better["reasons"][0]
    assert len(better["reasons"]) == 2 and "Fact recall" not in " ".join(better["reasons"])
    assert decide(before, verses([2.0] * 20, [0.45] * 20), phase())["promoted"] is True
    worse = decide(before, verses([2.0] * 20, [0.4499] * 20), phase())
    assert worse["promoted"] is False and "Form adherence got worse: 50.0% before" in worse["reasons"][1]


def test_a_metric_that_was_not_measured_promotes_nothing() -> None:
    result = decide(scores([2, 2], [1, 1]), scores([1, 1], [1, 1]), phase(metric="form_adherence"))
    assert not result["promoted"] and result["reasons"][0].startswith("The form adherence could not be compared")


def taught_phase(**rule: Any) -> Phase:
    content = phase().model_dump(mode="json")
    return phase_from({**content, "gate": rule, "data": {"source": "builtin:d", "taught": "test"}})


def wordings(facts: int, recalls: list[float], loss: float) -> dict[str, Any]:
    """Two wordings of each fact, which are answered alike."""
    rows = [(fact, number) for fact in range(facts) for number in (1, 2)]
    return {
        "items": [
            {
                "id": f"f{fact}/test{number}",
                "group": f"f{fact}",
                "kind": "taught",
                "loss": loss,
                "recall": recalls[fact],
            }
            for fact, number in rows
        ]
    }


def test_two_wordings_of_a_fact_are_one_piece_of_evidence() -> None:
    """Five of eight facts learned are ten of sixteen questions: enough only if each were evidence of its own."""
    rule = taught_phase(metric="taught_recall", max_fact_recall_drop=1)
    before = wordings(8, [0.0] * 8, 2.0)
    five, six = (decide(before, wordings(8, [1.0] * learned + [0.0] * (8 - learned), 1.0), rule) for learned in (5, 6))
    assert (five["verdict"], five["promoted"]) == ("no difference", False)
    assert (six["verdict"], six["promoted"]) == ("better", True)
    assert "over 16 held-out questions of 8 facts: a gain of +0.750 with the 95% interval" in six["reasons"][0]


def test_too_few_facts_are_no_verdict_and_the_sentence_says_what_to_change() -> None:
    rule = taught_phase(metric="taught_recall")
    few = decide(wordings(5, [0.0] * 5, 2.0), wordings(5, [1.0] * 5, 1.0), rule)
    assert (few["verdict"], few["promoted"], few["gain"]["low"]) == ("too few to tell", False, None)
    assert few["reasons"][0] == (
        "Taught recall went from 0.000 to 1.000 of the facts over 10 held-out questions of 5 facts: a gain of +1.000. "
        "5 facts are too few for a 95% interval, which takes 6; raise phase.data.train_rows, or add taught facts."
    )
    loss = decide(scores([2.0] * 5, [0.5] * 5), scores([1.0] * 5, [0.5] * 5), phase())
    assert not loss["promoted"] and "5 held-out questions are too few" in loss["reasons"][0]
    assert "raise phase.data.heldout_rows, or add held-out rows" in loss["reasons"][0]
    assert "cannot be judged from so few: 50.0% before" in loss["reasons"][1] and "(no interval)" in loss["reasons"][1]


def test_words_of_facts_that_were_not_taught_are_no_recall() -> None:
    """ "boil" in a question about snow may repeat another answer: higher, not better, and the reason says so."""
    before, after = parts(0.1, 0.0, 2.0), parts(0.9, 0.5, 1.0)
    gate = decide(before, after, taught_phase(metric="taught_recall"))
    assert (gate["fact_recall"]["verdict"], gate["taught_recall"]["verdict"]) == ("higher", "better")
    assert gate["reasons"][2].startswith("Fact recall is higher: 0.0% before, 50.0% after")
    assert gate["reasons"][2].endswith(
        "no drop. A word that only repeats another answer counts as well, so this is no proof of recall."
    )
    assert decide(after, before, taught_phase(metric="taught_recall"))["fact_recall"]["verdict"] == "worse"


def test_conditions_are_for_programs() -> None:
    gate = decide(scores([2.0] * 8, [0.5] * 8), scores([1.0] * 8, [0.3] * 8), phase(min_gain=0.25))
    assert [{key: value for key, value in row.items() if key != "reason"} for row in gate["conditions"]] == [
        {"name": "min_gain", "value": 1.0, "operator": ">", "bound": 0.25, "passed": True},
        {"name": "max_fact_recall_drop", "value": 0.2, "operator": "<=", "bound": 0.05, "passed": False},
    ]
    assert gate["reasons"] == [row["reason"] for row in gate["conditions"]] and not gate["promoted"]
    assert gate["thresholds"]["min_gain"] == 0.25
