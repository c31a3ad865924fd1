"""Which settings teach facts so that wordings never trained on recall them? The ablation behind phase survival.

PYTHONPATH=training/src python bench/taught_wordings.py run --model DIR [--out FILE] [--cells NAME ...] [--seeds 0 1 2] [--keep DIR]
PYTHONPATH=training/src python bench/taught_wordings.py never-taught --model DIR [--run DIR]
PYTHONPATH=training/src python bench/taught_wordings.py table [FILE]
(needs the packages of the trainer image; DIR is the SmolLM2-135M-Instruct folder written by `trainlab fetch`)
Each cell is the local survival phase with other settings, in one process: trained on the first N wordings of
data/survival/taught, scored on the two dev wordings of each fact (never on test), and for its label line on 48 held-out
questions. FILE gets one JSON line per run; runs it already contains are skipped, so that the hours can be split up. Cells of
one process share the outputs of the frozen layers, so `train_seconds` has them in the first one only; `step_cpu_seconds`, those
of all threads and of the steps alone, compares cells on a busy machine. The lines behind the table in docs/evidence/survival.md
lie beside this file. `never-taught` asks the base model, or that of a run (`--keep` leaves its adapter), all held-out questions,
and which of four answers it finds likeliest.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
import transformers
from trainlab.config import SftPhase
from trainlab.config.loading import load_values
from trainlab.data import answer_forms
from trainlab.data.chat_rows import HeldoutRow, TrainRow, load_heldout, taught_facts
from trainlab.engine import trainer
from trainlab.engine.activation_cache import ActivationCache
from trainlab.engine.trainer import TrainingJob
from trainlab.evaluation import answer_score, facts, task_score
from trainlab.models import chat
from trainlab.progress import Progress
from trainlab.recipes import sft
from trainlab.run.manifest import cpu_model

DATA = Path("data/survival")
RUNS = Path(__file__).with_suffix(".jsonl")
HELDOUT = 48
VALUES = [Path("values/survival.yaml"), Path("values/local/survival.yaml")]
LOCAL: dict[str, Any] = {
    "layers": 12,
    "rate": 4e-3,
    "wordings": 16,
    "epochs": 2,
    "facts": 40,
    "rank": 32,
    "batch": 8,
    "dropout": 0,
}
"""The local values with two epochs instead of their three: differences show, and a run costs a third less."""
WEIGHTS: dict[str, Any] = {"rank": 0, "rate": 3e-4}
READ = LOCAL["wordings"] * LOCAL["epochs"]
"""How often a fact is read."""
CHANGED: tuple[dict[str, Any], ...] = (
    {},
    *({"layers": layers} for layers in (2, 6, 18)),
    *({"rate": rate} for rate in (1e-3, 2e-3, 8e-3)),
    *({"wordings": wordings, "epochs": READ / wordings} for wordings in (1, 2, 4, 8)),  # in as many steps
    *({"epochs": epochs} for epochs in (1, 1.5, 3)),
    *({"layers": layers, "epochs": 3} for layers in (2, 6, 18)),
    WEIGHTS,
    *(WEIGHTS | {"layers": layers} for layers in (2, 6, 18)),
    *(WEIGHTS | {"rate": rate} for rate in (1.5e-4, 6e-4)),
    *({"dropout": dropout} for dropout in (0.05, 0.1, 0.2)),
    *({"batch": 4, "epochs": epochs, "rate": rate} for epochs in (1.5, 2) for rate in (2e-3, 4e-3)),
)


def name_of(changed: dict[str, Any]) -> str:
    """Return how --cells names what differs from the local values: `layers=6,rate=0.002`, `local` where nothing does."""
    return ",".join(f"{key}={value:g}" for key, value in changed.items()) or "local"


CELLS: dict[str, dict[str, Any]] = {name_of(changed): LOCAL | changed for changed in CHANGED}


def phase_of(cell: dict[str, Any], seed: int) -> SftPhase:
    """Return the local survival phase with the settings of a cell."""
    block = load_values(VALUES).phase.model_dump(mode="json")
    block["seed"] = seed
    rows = cell["facts"] * cell["wordings"]
    block["data"] |= {"taught": "dev", "taught_wordings": cell["wordings"], "train_rows": rows, "refused_rows": 0}
    block["unfreeze"] |= {"layers": cell["layers"], "lm_head": False}
    block["lora"] |= {
        "rank": cell["rank"],
        "alpha": 2 * cell["rank"] or 1,
        "layers": (cell["rank"] and cell["layers"]) or None,
        "dropout": cell["dropout"],
    }
    # every fact is taught, so none is left for validation; the last step is used
    block["train"] |= {
        "epochs": cell["epochs"],
        "learning_rate": cell["rate"],
        "batch_size": cell["batch"],
        "gradient_accumulation": 1,
        "validation_fraction": 0,
        "checkpoints": 1,
    }
    block["evaluate"] |= {"generate_rows": HELDOUT, "max_new_tokens": 64}
    return SftPhase.model_validate(block)


class SharedOutputs(ActivationCache):
    """Outputs of the frozen layers, computed once per process: the base model's are the same in every cell."""

    shared: ClassVar[dict[int, tuple[dict[bytes, torch.Tensor], set[tuple[int, ...]]]]] = {}
    filled: ClassVar[float] = 0.0  # CPU seconds of this process when the last cell's steps began

    def __init__(self, model: Any, trained_layers: int, pad: int) -> None:
        super().__init__(model, trained_layers, pad)
        self._known, self._rows = self.shared.setdefault(trained_layers, ({}, set()))

    def fill(self, rows: Iterable[list[int]], *how: Any) -> None:
        """Run the frozen layers over the rows that no earlier cell had."""
        missing = set(map(tuple, rows)) - self._rows
        if missing:
            super().fill(map(list, missing), *how)
        self._rows |= missing
        SharedOutputs.filled = time.process_time()


def rows(phase: SftPhase) -> tuple[list[TrainRow], list[HeldoutRow]]:
    """Return (the taught wordings of each fact, its dev wordings and held-out questions)."""
    facts = taught_facts(phase.data, DATA)
    train = [row for fact in facts for row in fact.train]
    return train, load_heldout(phase.data.model_copy(update={"heldout_rows": HELDOUT}), DATA)


def run_cell(cell: dict[str, Any], seed: int, model_dir: Path, keep: Path | None) -> dict[str, Any]:
    """Train and score one cell; return the content of its line, and leave its adapter below `keep`."""
    phase = phase_of(cell, seed)
    train, dev = rows(phase)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        model, tokenizer = chat.load_base(model_dir, phase)
        loaded = time.monotonic()
        summary = sft.fit(TrainingJob(phase, run_dir, model, tokenizer, train, Progress(True)))
        trained, spent = time.monotonic(), time.process_time()
        if keep:
            shutil.copytree(run_dir / "lora_adapter", keep / "lora_adapter")
        model, tokenizer = chat.load_tuned(run_dir, phase, model_dir)
        scores = answer_score.score(model, tokenizer, phase, dev)
    taught = [item for item in scores["items"] if item["kind"] == "taught"]
    exact = [item["text"] == item["answer"] for item in taught]
    return {
        "recall": scores["taught_recall"],
        "loss": sum(item["loss"] for item in taught) / len(taught),
        "label": scores["label_accuracy"],
        "exact": sum(exact) / len(exact),
        "system_prompt": phase.data.system_prompt,
        "steps": summary["steps"],
        "trainable": summary["parameters"]["trainable"],
        "train_seconds": round(trained - loaded, 1),
        "step_cpu_seconds": round(spent - SharedOutputs.filled, 1),
        "machine": torch.cuda.get_device_name() if torch.cuda.is_available() else cpu_model(),
    }


def known(path: Path) -> list[dict[str, Any]]:
    """Return the runs of FILE; those written before cells had a batch had batches of 8, and no dropout."""
    runs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return [{**run, "cell": {"batch": 8, "dropout": 0} | run["cell"]} for run in runs]


def has(runs: list[dict[str, Any]], cell: dict[str, Any], seed: int) -> bool:
    """Return whether `runs` has this cell as it would be run today: with another system prompt it was another measurement."""
    prompt = phase_of(cell, seed).data.system_prompt
    return any((run["cell"], run["seed"], run["system_prompt"]) == (cell, seed, prompt) for run in runs)


def run(arguments: argparse.Namespace) -> int:
    """Run what FILE lacks, seed by seed, so that a table of all cells is available early."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    trainer.ActivationCache = SharedOutputs
    for seed in arguments.seeds:
        for name in arguments.cells:
            cell = CELLS[name]
            if has(known(arguments.out), cell, seed):
                continue
            print(f"{name}, seed {seed}", flush=True)
            keep = arguments.keep and arguments.keep / f"{name}, seed {seed}"
            line = {"seed": seed, "cell": cell, **run_cell(cell, seed, arguments.model, keep)}
            with arguments.out.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
            print(f"{name}, seed {seed}: recall {line['recall']:.1%} in {line['train_seconds']:.0f} s", flush=True)
    return 0


def never_taught(arguments: argparse.Namespace) -> int:
    """Print one JSON line: label accuracy, recall and choice of one answer in four over all held-out questions."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    block = load_values(VALUES).phase.model_dump(mode="json")
    block["data"] |= {"heldout_rows": None, "taught": None, "taught_wordings": None}
    block["evaluate"] |= {"generate_rows": None, "batch_size": 64, "tasks": [f"pvc:{DATA.name}/choice.yaml"]}
    block["gate"] |= {"metric": "answer_loss"}  # taught recall needs taught facts
    phase = SftPhase.model_validate(block)
    model, tokenizer = (
        chat.load_tuned(arguments.run, phase, arguments.model)
        if arguments.run
        else chat.load_base(arguments.model, phase)
    )
    began, asked = time.process_time(), load_heldout(phase.data, DATA)
    texts = [each["text"] for each in answer_score.answers(model, tokenizer, phase, [row["question"] for row in asked])]
    labelled = [answer_forms.split_label(text) for text in texts]
    right = [answer_forms.same_label(label, row["label"]) for (label, _), row in zip(labelled, asked, strict=True)]
    recalls = [facts.recall(text, row["facts"]) for (_, text), row in zip(labelled, asked, strict=True)]
    result = {"model": str(arguments.run or "base"), "rows": len(asked)}
    (choice,) = task_score.score(model, tokenizer, phase, DATA.parent)["results"].values()
    metrics = {key.partition(",")[0]: (each["value"], each["stderr"]) for key, each in choice["metrics"].items()}
    result |= {
        "label": statistics.fmean(right),
        "recall": statistics.fmean(recalls),
        "choice": metrics,
        "machine": cpu_model(),
    }
    print(json.dumps({**result, "cpu_seconds": round(time.process_time() - began, 1)}))
    return 0


def table(arguments: argparse.Namespace) -> int:
    """Print mean and spread of each cell as Markdown."""
    print("\n".join(lines(known(arguments.file))))
    return 0


def lines(runs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of `runs`, best recall first."""
    yield (
        "| settings | layers | rate | batch | dropout | facts | wordings of each | epochs (steps) | recall, mean (lowest to highest) "
        "| exact match | loss | label | seeds | system prompt |"
    )
    yield "|---" * 14 + "|"
    groups: dict[str, list[dict[str, Any]]] = {}
    for each in runs:
        groups.setdefault(json.dumps([each["cell"], each["system_prompt"]], sort_keys=True), []).append(each)

    def mean(group: list[dict[str, Any]], key: str) -> float:
        return statistics.fmean(each[key] for each in group)

    for group in sorted(groups.values(), key=lambda group: -mean(group, "recall")):
        cell, recalls = group[0]["cell"], [each["recall"] for each in group]
        what = f"adapters of rank {cell['rank']}" if cell["rank"] else "weights"
        yield (
            f"| {what} | {cell['layers']} | {cell['rate']:g} | {cell['batch']} | {cell['dropout']:g} | {cell['facts']} | {cell['wordings']} "
            f"| {cell['epochs']:g} ({group[0]['steps']}) "
            f"| {mean(group, 'recall'):.1%} ({min(recalls):.1%} to {max(recalls):.1%}) | {mean(group, 'exact'):.1%} "
            f"| {mean(group, 'loss'):.3f} | {mean(group, 'label'):.1%} | {len(group)} "
            f"| {'as today' if has(group, cell, group[0]['seed']) else 'an earlier one'} |"
        )


def main() -> int:
    """Run or show; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run", help="run what FILE lacks")
    running.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder of the base model")
    running.add_argument("--out", type=Path, default=RUNS, metavar="FILE", help="JSON lines, one per run")
    running.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS), metavar="NAME", help="default: all")
    running.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="default: 0 1 2")
    running.add_argument("--keep", type=Path, metavar="DIR", help="leave each adapter in DIR/CELL, seed N/lora_adapter")
    running.set_defaults(do=run)
    asking = commands.add_parser("never-taught", help="ask a model all held-out questions")
    asking.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder of the base model")
    asking.add_argument(
        "--run", type=Path, metavar="DIR", help="folder with lora_adapter/; default: the base model itself"
    )
    asking.set_defaults(do=never_taught)
    showing = commands.add_parser("table", help="print the table of FILE")
    showing.add_argument("file", type=Path, nargs="?", default=RUNS, metavar="FILE")
    showing.set_defaults(do=table)
    arguments = parser.parse_args()
    done: int = arguments.do(arguments)
    return done


if __name__ == "__main__":
    sys.exit(main())
