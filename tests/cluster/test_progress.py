"""The bar of `make demo` never runs backwards, and its minutes follow the machine's pace."""

from __future__ import annotations

from pathlib import Path

import pytest
from embedded_cluster.base import progress


class Machine:
    """A clock and processors whose work a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = self.work = 0.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.seconds)

    def run(self, seconds: float, work: float) -> None:
        self.seconds += seconds
        self.work += work


def test_minutes_are_those_of_the_work_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 of 900 processor seconds in 150 s: the rest takes twice that."""
    machine = Machine(monkeypatch)
    meter = progress.Progress({"parts": 600, "phase": 300}, lambda: machine.work)
    with meter.step("parts"):
        machine.run(150, 300)
        assert meter.line() == "[##########--------------------]  33%, about 5 min left"
        machine.run(200, 2000)  # others' work, or a step that takes longer than expected
        assert 0.6 < meter.share() < 600 / 900
    assert meter.share() == pytest.approx(600 / 900)
    with meter.step("phase"):
        machine.run(50, 100)
        assert meter.share() == pytest.approx(700 / 900)
    assert meter.share() == 1.0 and meter.line().startswith(f"[{'#' * 30}] 100%")


def test_nothing_is_promised_at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    meter = progress.Progress({"parts": 600}, lambda: machine.work)
    with meter.step("parts"):
        machine.run(20, 30)
        assert "left" not in meter.line()


def test_idle_time_is_no_work(tmp_path: Path) -> None:
    """The counters of /proc/stat: user nice system idle iowait irq softirq steal."""
    (tmp_path / "stat").write_text("cpu  100 50 25 9999 777 5 20 4444 0 0\ncpu0 1 2 3\n")
    assert progress.busy(tmp_path / "stat") == 2.0
    assert progress.busy() > 0
