"""Batches of the chat server: each row as it would be answered alone, and who goes with whom, in which order."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import phase_from
from trainlab.models import chat
from trainlab.serve import generation, work
from trainlab.serve.generation import Options, Outcome, Row
from trainlab.serve.inference_engine import Engine, Hosted
from trainlab.serve.work import Metrics

TEXTS = ("the water", "is it safe to drink the water from a river or a lake?", "a", "boil it and then wait")


@pytest.fixture(scope="module")
def hosted(tiny_model: Path, phase_dict: dict[str, Any]) -> Hosted:
    return Hosted(*chat.load_base(tiny_model, phase_from(phase_dict)))


@dataclass
class Said:
    """What a row was told; `ended` lists the rows of a batch in the order of their ends."""

    ended: list["Said"]
    leaves_after: int | None = None  # pieces
    pieces: list[str] = field(default_factory=list)
    outcome: Outcome | None = None
    gone: threading.Event = field(default_factory=threading.Event)

    def emit(self, text: str) -> None:
        assert self.outcome is None
        self.pieces.append(text)
        if len(self.pieces) == self.leaves_after:
            self.gone.set()

    def end(self, outcome: Outcome) -> None:
        assert self.outcome is None
        self.outcome = outcome
        self.ended.append(self)

    def row(self, hosted: Hosted, text: str, options: Options) -> Row:
        return Row(hosted.tokenizer(text)["input_ids"], options, self.emit, self.end, self.gone)


def answered(
    hosted: Hosted, asked: Sequence[tuple[str, Options]], **leaves_after: int
) -> tuple[list[Said], list[Said]]:
    """Answer in one batch; return (rows, rows in the order of their ends)."""
    ended: list[Said] = []
    rows = [Said(ended, leaves_after.get(f"row{i}")) for i in range(len(asked))]
    pairs = zip(rows, asked, strict=True)
    generation.generate(hosted.model, hosted.tokenizer, [said.row(hosted, *each) for said, each in pairs])
    return rows, ended


def test_each_row_is_answered_as_alone_and_ends_by_its_own_limits(hosted: Hosted) -> None:
    full = "".join(answered(hosted, [(TEXTS[3], Options(24))])[0][0].pieces)
    stop = full[5:7]
    asked = [*zip(TEXTS, (Options(24), Options(3), Options(9), Options(24, stop=(stop, "nowhere"))), strict=True)]
    asked += [("the water", Options(24, top_p=0.5))]  # greedy as well
    alone = [answered(hosted, [each])[0][0] for each in asked]
    rows, ended = answered(hosted, asked)
    assert [(row.pieces, row.outcome) for row in rows] == [(row.pieces, row.outcome) for row in alone]
    assert rows[3].outcome is not None and rows[3].outcome.finish == "stop"
    assert "".join(rows[3].pieces) == full[: full.index(stop)]
    lengths = [row.outcome.tokens for row in ended if row.outcome]
    assert lengths == sorted(lengths) and lengths[:1] < lengths[-1:], "a short answer waits for no long one"


def test_a_row_whose_client_leaves_ends_alone(hosted: Hosted) -> None:
    asked = [(text, Options(16)) for text in TEXTS[:3]]
    alone = [answered(hosted, [each])[0][0] for each in asked]
    rows, ended = answered(hosted, asked, row1=2)
    assert [row.pieces for row in (rows[0], rows[2])] == [row.pieces for row in (alone[0], alone[2])]
    assert ended[0] is rows[1] and rows[1].outcome is not None and rows[1].outcome.tokens < 16
    gone = Said([])
    gone.gone.set()
    generation.generate(hosted.model, hosted.tokenizer, [gone.row(hosted, *asked[0])])
    assert (gone.outcome, gone.pieces) == (Outcome("stop", 0), []), "nothing is computed for nobody"


def test_sampled_rows_draw_for_themselves(hosted: Hosted) -> None:
    torch.manual_seed(1)
    rows, _ = answered(hosted, [("the water", Options(12, temperature=1.5))] * 3)
    assert len({"".join(row.pieces) for row in rows}) == 3


def test_a_batch_takes_no_more_memory_than_the_longest_request(hosted: Hosted, phase_dict: dict[str, Any]) -> None:
    engine = Engine(phase_from(phase_dict), {"base": hosted})  # of 512 positions
    short, long = Row([1] * 10, Options(118), *[Any] * 3), Row([1] * 11, Options(1), *[Any] * 3)
    assert engine.fits([short] * 4) and not engine.fits([short] * 5) and not engine.fits([short, short, short, long])


class Slow:
    """An engine that notes its batches and answers one when told to; `a1` and `a2` are adapters of one model object."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.go = {name: threading.Semaphore(0) for name in ("base", "a1", "a2")}

    def turn(self, name: str) -> int:
        return int(name == "base")

    def fits(self, rows: Sequence[Row]) -> bool:
        return sum(len(row.prompt) for row in rows) < 100

    def generate(self, name: str, rows: Sequence[Row]) -> None:
        self.batches.append((name, [row.prompt[0] for row in rows]))
        self.go[name].acquire(timeout=10)
        for row in rows:
            if row.prompt[0] == 13:
                raise MemoryError
            row.end(Outcome("length", 1))


def test_the_first_in_line_goes_with_those_that_ask_alike() -> None:
    hot = Options(4, temperature=1.0)
    asked = [
        ("base", [1], Options(4)),  # starts at once, alone
        ("a1", [2], Options(4)),  # another model object: too
        ("base", [3], hot),
        ("a2", [4], Options(4)),
        ("base", [5], Options(9)),
        ("base", [6], Options(4, temperature=1.0, seed=1)),  # a seed: alone
        ("a1", [7], Options(4, seed=1)),
        ("base", [8], Options(4, temperature=1.0, stop=("x",))),
        ("base", [9] * 99, Options(4)),  # too long for a batch with 5
        ("base", [10], Options(4)),
        ("base", [11], Options(4)),
        ("base", [12], Options(4)),  # past the limit of 3
        ("a2", [13], Options(4)),  # fails
    ]

    async def all_of_it() -> tuple[Slow, list[Any], list[int | None], Metrics]:
        engine, metrics = Slow(), Metrics()
        batcher = work.Batcher(3, metrics)
        jobs = [batcher.join(engine, *each) for each in asked]  # type: ignore[arg-type]
        places = [job._position for job in jobs]
        for name in engine.go:
            engine.go[name].release(20)
        ends = await asyncio.wait_for(asyncio.gather(*(job.text() for job in jobs), return_exceptions=True), 20)
        batcher.close()
        return engine, ends, places, metrics

    engine, ends, places, metrics = asyncio.run(all_of_it())
    assert places == [0, 0, *range(1, 12)]
    assert [batch for name, batch in engine.batches if name == "base"] == [[1], [3, 8], [5, 10, 11], [6], [9], [12]]
    assert [batch for name, batch in engine.batches if name != "base"] == [[2], [4, 13], [7]]
    failed = [asked[i][1][0] for i, end in enumerate(ends) if isinstance(end, MemoryError)]
    assert failed == [13], "4 had ended before its batch failed"
    assert all(
        sample.value == 0 for metric in (metrics.running, metrics.waiting) for sample in metric.collect()[0].samples
    )
    found = {
        (s.labels["model_name"], s.labels["finished_reason"]): s.value
        for s in metrics.ended.collect()[0].samples
        if s.name.endswith("_total")
    }
    assert found == {("base", "length"): 9, ("a1", "length"): 2, ("a2", "length"): 1, ("a2", "error"): 1}
