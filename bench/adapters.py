"""Many adapters in one job against as many jobs: processor time, and how well each adapter keeps its fact to its own question.

PYTHONPATH=training/src python bench/adapters.py job --models DIR [--owners 40] [--json FILE]
PYTHONPATH=training/src python bench/adapters.py mixture --models DIR [--owners 16] [--seeds 0 1 2] [--cells NAME ...] [--out FILE]
PYTHONPATH=training/src python bench/adapters.py table [--out FILE]
(DIR is a folder that `trainlab fetch values/quick.yaml --models DIR` filled; the machine has to be idle, or set OMP_WAIT_POLICY=PASSIVE:
else the threads that ask the adapters wait for the cores by spinning)
`job` runs values/quick.yaml once and values/room/adapters.yaml with so many owners, whole commands, and compares their processor seconds; then it
asks each adapter the four wordings of its own question that nothing was trained on, one of every other owner's (the matrix), and
questions of data/survival that nobody teaches. `mixture` does the same for other mixtures of rows, a JSON line a run, beside this file.
The owners are adapters_people.yaml's, whose names no card's examples have.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from outcome import end
from trainlab import files
from trainlab.config.loading import load_values
from trainlab.data import row_files
from trainlab.evaluation import facts
from trainlab.room import cards, run_folder
from trainlab.run.manifest import cpu_model

HERE = Path(__file__).resolve().parent
VALUES, QUICK = HERE.parent / "values" / "room" / "adapters.yaml", HERE.parent / "values" / "quick.yaml"
RUNS = HERE / "adapters.jsonl"
FULL = 40
"""People of a full room, about each of whom an adapter may be asked."""
OTHERS = 4
"""Of mixture: owners of other cards whose question each adapter is asked; each counts as often as it stands for."""
TOKENS = 20
"""Of an answer that is looked at: the facts stand at its beginning."""
STRANGERS = 2
"""Never-taught questions that each adapter is asked."""
CELLS: dict[str, dict[str, Any]] = {
    "values": {},
    "weight 1": {"train": {"kept_weight": 1}},
    "weight 2": {"train": {"kept_weight": 2}},
    "weight 6": {"train": {"kept_weight": 6}},
    "no near": {"data": {"near": 0, "kept": 8}},
    "near alone": {"data": {"near": 8, "kept": 0}},
    "nothing kept": {"data": {"near": 0, "kept": 0}},
    "twice kept": {"data": {"near": 8, "kept": 8}},
    "4 tokens kept": {"data": {"kept_tokens": 4}},
    "16 tokens kept": {"data": {"kept_tokens": 16}},
    "4 wordings": {"data": {"wordings": 4}, "train": {"epochs": 4}},
    "16 wordings": {"data": {"wordings": 16}, "train": {"epochs": 2}},
    "4 layers": {"lora": {"layers": 4}},
    "16 layers": {"lora": {"layers": 16}},
    "rank 4": {"lora": {"rank": 4, "alpha": 8}},
    "7 layers": {"lora": {"layers": 7}},
    "6 near, 2 others": {"data": {"near": 6, "kept": 2}},
    "7 layers, weight 4": {"lora": {"layers": 7}, "train": {"kept_weight": 4}},
    "7 layers, 6 near, 2 others": {"lora": {"layers": 7}, "data": {"near": 6, "kept": 2}},
    "half rate": {"train": {"learning_rate": 3e-3}},
    "2 passes": {"train": {"epochs": 2}},
    "4 passes": {"train": {"epochs": 4}},
}

KEPT_WORDS = "kept words"
"""The cell without distillation: what an adapter must leave alone it learns as the base's most likely words, not their distribution."""
CELLS[KEPT_WORDS] = {}
WORDS = """
from trainlab import cli
from trainlab.recipes import adapters

def train(run, before=adapters.train):
    import torch
    from trainlab.engine.owned_training import OwnedTrainer

    def words(self, part, logits):
        tokens = torch.tensor([token for row in part for token in row.ids[row.prompt :]], device=logits.device)
        return torch.nn.functional.cross_entropy(logits.float(), tokens, reduction="none")

    assert "_nats" in vars(OwnedTrainer), "renamed: this would train as the values say"
    OwnedTrainer._nats = words
    return before(run)

adapters.train = train
cli.main()
"""
"""`trainlab` with that change, which nothing but this comparison wants."""


def people(count: int) -> list[dict[str, Any]]:
    """Return the rows of `count` owners, one card after the other, so that few share a card."""
    known = cards.load(HERE.parent / "data" / "cards")
    filled = yaml.safe_load((HERE / "adapters_people.yaml").read_text(encoding="utf-8"))
    turns = [
        (card, values) for turn in zip(*filled.values(), strict=True) for card, values in zip(filled, turn, strict=True)
    ]
    return [known[card].row(f"p{number:02}", values) for number, (card, values) in enumerate(turns[:count])]


def measured(values: Path, models: Path, folder: Path, *more: str, code: str = "") -> tuple[dict[str, float], Path]:
    """Run `trainlab run`, or `code` in its place; return processor seconds of it and its ranks, seconds, GiB of the largest process, and the run directory."""
    began = time.monotonic()
    program = [sys.executable, *(("-c", code) if code else ("-m", "trainlab.cli"))]
    command = [*program, "run", str(values), "--models", str(models), "--out", str(folder), "--run", values.stem, *more]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OMP_")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)  # with its ranks; RUSAGE_CHILDREN has the largest of all runs
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return {
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "seconds": round(time.monotonic() - began, 1),
        "memory_gib": round(usage.ru_maxrss / 2**20, 2),
    }, folder / values.stem


def trained(
    models: Path, folder: Path, rows: Sequence[Mapping[str, Any]], changes: Mapping[str, Any], code: str = ""
) -> tuple[dict[str, float], Path]:
    """Train the adapters of `rows` with `changes` of values/room/adapters.yaml, by `code` if given; return as `measured`."""
    run_folder.write_rows(folder / "data", rows)
    overlay = folder / "changes.json"
    files.write_json(overlay, {"phase": changes})
    return measured(VALUES, models, folder, "-f", str(overlay), "--data", str(folder / "data"), code=code)


def asked(models: Path, run_dir: Path, rows: Sequence[Mapping[str, Any]], others: int | None = None) -> dict[str, Any]:
    """Ask all adapters of a run; return shares of answers with the own fact, and each owner's own recall.

    others: of the people with another card, so many are asked about each; None: all. People who own no adapter are asked about, too,
    so that of a part of a full room `matrix` is that of the room.
    """
    from safetensors.torch import load_file
    from trainlab.engine.owned_lora import OwnedLora
    from trainlab.evaluation import answer_score
    from trainlab.models import chat, fetch

    phase = load_values([run_dir / "phase.json"]).phase
    phase = phase.model_copy(update={"evaluate": phase.evaluate.model_copy(update={"max_new_tokens": TOKENS})})
    model, tokenizer = chat.load_base(fetch.model_dir(phase.model.source, models), phase)
    adapters = OwnedLora(model, phase, [row["owner"] for row in rows])
    for owner in adapters.owners:
        path = run_dir.with_name(f"{run_dir.name}.{owner}") / "lora_adapter" / "adapter_model.safetensors"
        adapters.load(owner, load_file(path))
    heldout = HERE.parent / "data" / "survival" / "heldout"
    strangers = [line.raw["question"] for line in row_files.lines(heldout)]
    chance = random.Random(0)
    plan: list[tuple[str, int, str]] = []
    pairs, everybody = {"same card": 0, "other card": 0}, people(max(len(rows), FULL))
    for number, row in enumerate(rows):
        plan += [("own", number, text) for text in row["test"]]
        alike = [other for other in everybody if other["owner"] != row["owner"] and card_of(other) == card_of(row)]
        rest = [other for other in everybody if card_of(other) != card_of(row)]
        plan += [("same card", number, chance.choice(other["test"])) for other in alike]
        drawn = rest if others is None else chance.sample(rest, others)
        plan += [("other card", number, chance.choice(other["test"])) for other in drawn]
        pairs["same card"] += len(alike)
        pairs["other card"] += len(rest)
        plan += [("never taught", number, text) for text in chance.sample(strangers, STRANGERS)]
    texts = answer_score.answers(
        model,
        tokenizer,
        phase,
        [text for _, _, text in plan],
        say=lambda _: None,
        around=lambda batch: adapters.rows([plan[place][1] for place in batch]),
    )
    stated: dict[str, list[float]] = {}
    own: list[list[float]] = [[] for _ in rows]
    for (kind, number, _), answer in zip(plan, texts, strict=True):
        share = facts.recall(answer["text"], rows[number]["facts"]) or 0.0
        stated.setdefault(kind, []).append(share)
        if kind == "own":
            own[number].append(share)
    shares = {kind: statistics.fmean(values) for kind, values in stated.items()}
    shares["matrix"] = sum(shares[kind] * count for kind, count in pairs.items()) / sum(pairs.values())
    return {
        "stated": {kind: round(share, 4) for kind, share in shares.items()},
        "own recall": [statistics.fmean(values) for values in own],
    }


def card_of(row: Mapping[str, Any]) -> str:
    """Return the card that a row was made of."""
    return str(row["id"]).partition("-")[2]


def interval(values: Sequence[float]) -> list[float]:
    """Return the interval of the mean over owners, as the gates compute it."""
    from trainlab.evaluation.paired_comparison import interval as bounds

    return [round(value, 3) for value in bounds(values, samples=2000, confidence=0.95, seed=0) if value is not None]


def job(args: argparse.Namespace) -> int:
    """Compare one job for all owners with `quick` times the owners; floors as issue and documentation name them."""
    rows = people(args.owners)
    with tempfile.TemporaryDirectory() as work:
        quick, _ = measured(QUICK, args.models, Path(work))
        room, run_dir = trained(args.models, Path(work), rows, {})
        answers = asked(args.models, run_dir, rows)
        decided = files.read_json(run_dir / "adapters.json")
    promoted = sum(entry["promoted"] for entry in decided.values())
    ratio = args.owners * quick["cpu_seconds"] / room["cpu_seconds"]
    recalls = answers.pop("own recall")
    result = {
        "owners": args.owners,
        "quick": quick,
        "room": room,
        "ratio": round(ratio, 1),
        "promoted": promoted,
        **answers,
    }
    result |= {"own recall interval": interval(recalls), "machine": cpu_model()}
    return end(
        args,
        result,
        equal=len(decided) == args.owners,
        at_least={
            "jobs' processor time over the one job's": (ratio, 12),
            "own fact, new words": (answers["stated"]["own"], 0.85),
        },
        at_most={
            "own fact to another's question": (answers["stated"]["matrix"], 0.02),
            "own fact to a question never taught": (answers["stated"]["never taught"], 0.05),
            "memory, GiB": (room["memory_gib"], 6),
        },
    )


def mixture(args: argparse.Namespace) -> int:
    """Run what FILE lacks, seed by seed; bfloat16 and float32 are not compared with each other."""
    from trainlab.models import compute

    rows = people(args.owners)
    lines = known(args.out)
    dtype = str(compute.dtype(load_values([VALUES]).phase)).removeprefix("torch.")
    for seed in args.seeds:
        for name in args.cells:
            cell = {"cell": name, "dtype": dtype, "seed": seed, "owners": args.owners}
            if any(cell.items() <= line.items() for line in lines):
                continue
            with tempfile.TemporaryDirectory() as work:
                code = WORDS if name == KEPT_WORDS else ""
                spent, run_dir = trained(args.models, Path(work), rows, {"seed": seed, **CELLS[name]}, code)
                answers = asked(args.models, run_dir, rows, OTHERS)
            answers["own recall"] = [round(share, 3) for share in answers["own recall"]]
            line = {**cell, **spent, **answers, "machine": cpu_model()}
            with args.out.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)
    return 0


def known(path: Path) -> list[dict[str, Any]]:
    """Return the lines of FILE, none if there is none."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def table(args: argparse.Namespace) -> int:
    """Print the means of each cell as Markdown."""
    print(
        "| mixture | own fact, new words (interval over people) | same card | matrix | never taught | CPU-seconds | seeds |\n"
        "|---|---|---|---|---|---|---|"
    )
    cells: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for line in known(args.out):
        cells.setdefault((line["dtype"], line["cell"], line["owners"]), []).append(line)
    for (dtype, name, owners), lines in sorted(cells.items()):
        shares = [
            statistics.fmean(line["stated"][kind] for line in lines)
            for kind in ("own", "same card", "matrix", "never taught")
        ]
        cpu = statistics.fmean(line["cpu_seconds"] for line in lines)
        people_of = zip(*(line["own recall"] for line in lines), strict=True)  # each over the seeds
        low, high = interval([statistics.fmean(own) for own in people_of])
        own, *rest = (f"{share:.1%}" for share in shares)
        print(
            f"| {name}, {dtype}, {owners} people | {own} ({low:.0%} to {high:.0%}) | {' | '.join(rest)} | {cpu:.0f} | {len(lines)} |"
        )
    return 0


def main() -> int:
    """Parse the command line and run a command."""
    made = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    made.set_defaults(smoke=False, json=None)
    commands = made.add_subparsers(required=True)
    for name, function in (("job", job), ("mixture", mixture), ("table", table)):
        command = commands.add_parser(name, help=(function.__doc__ or "").split("\n")[0])
        command.set_defaults(function=function)
        if name != "table":
            command.add_argument("--models", type=Path, required=True)
            command.add_argument("--owners", type=int, default=40)
        if name == "job":
            command.add_argument("--json", type=Path)
        else:
            command.add_argument("--out", type=Path, default=RUNS)
    commands.choices["mixture"].add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    commands.choices["mixture"].add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    args = made.parse_args()
    return int(args.function(args))


if __name__ == "__main__":
    sys.exit(main())
