"""The bar of `make demo` never runs backwards, and its minutes follow the machine's pace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from embedded_cluster.base import progress
from embedded_cluster.builds import build
from embedded_cluster.tasks import demo


class Machine:
    """A clock and processors whose work a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = self.work = 0.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.seconds)

    def run(self, seconds: float, work: float) -> None:
        self.seconds += seconds
        self.work += work


def test_minutes_are_those_of_the_work_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 of 900 processor seconds in 150 s: the rest takes twice that on a machine as fast as the fastest."""
    monkeypatch.setattr(progress, "SLOWER", 1.0)
    machine = Machine(monkeypatch)
    meter = progress.Progress({"parts": 600, "phase": 300}, lambda: machine.work)
    with meter.step("parts"):
        machine.run(150, 300)
        assert meter.line() == "[##########--------------------]  33%, about 5 min left"
        machine.run(200, 2000)  # others' work, or a step that takes longer than expected
        assert 0.6 < meter.share() < 600 / 900
    assert meter.share() == pytest.approx(600 / 900)
    with meter.step("phase"):
        machine.run(50, 100)  # a third of 300, had the first step not taken 2,300 instead of 600
        assert meter.share() == pytest.approx((600 + 100 * 600 / 2300) / 900)
        machine.run(400, 1100)
        assert meter.line() == "[#############################-]  99%, this step takes longer than expected"
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


COMPILED = {
    150: 96,
    210: 196,
    300: 376,
    360: 574,
    480: 733,
    540: 1058,
    600: 1346,
    690: 1859,
    780: 2436,
    900: 2947,
    1020: 3460,
}
"""MiB in Go's build cache after these seconds of `make demo` on a bare Debian 13 (AMD EPYC without AVX-512, 2026-11-30)."""
ENDED = 1980
"""Seconds until the demo had ended."""


def test_a_slow_machine_is_known_from_what_it_has_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It took 2.5 times the expected processor seconds: the minutes are within half and twice of those that it took."""
    machine = Machine(monkeypatch)
    monkeypatch.setattr(build, "GOCACHE", tmp_path)
    monkeypatch.setattr(demo.preflight, "to_come", lambda: ["programs", "images"])
    monkeypatch.delenv("TRAINLAB_PROGRAMS", raising=False)
    (tmp_path / "0f").mkdir()
    meter = demo._meter("survival")
    monkeypatch.setattr(meter, "_work", lambda: machine.work)
    said = {}
    with meter.step("parts"):
        for seconds, mebibytes in COMPILED.items():
            with (tmp_path / "0f" / "00-d").open("wb") as output:
                output.truncate(mebibytes * 2**20)
            machine.run(seconds - machine.seconds, 1.9 * (seconds - machine.seconds))
            said[seconds] = meter.line()
    for seconds, line in said.items():
        left = (ENDED - seconds) / 60
        assert left / 2 < float(re.findall(r"about (\d+) min left", line)[0]) < left * 2, (seconds, line)
