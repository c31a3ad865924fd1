"""Which mixture of questions teaches facts and refuses what was not taught? The ablation behind `data.refused_rows` of survival.

PYTHONPATH=training/src:bench python bench/refusals.py run --model DIR [--out FILE] [--cells NAME ...] [--seeds 0 1 2] [--processes N]
PYTHONPATH=training/src:bench python bench/refusals.py table [FILE]
(needs the packages of the trainer image; DIR is the SmolLM2-135M-Instruct folder written by `trainlab fetch`)
Each cell is the local survival phase with another mixture, in one process: trained on the wordings of its facts and on refused
questions, scored on dev wordings, on all of heldout/ and on the dev questions of refused/ (never on test). FILE gets one JSON
line per run; runs that it already contains are skipped. Cells are chosen by name, such as `facts=24,near=3,other=100`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from trainlab.config import SftPhase
from trainlab.config.loading import load_values
from trainlab.data import answer_forms, chat_rows, row_files
from trainlab.data.chat_rows import HeldoutRow, TrainRow

DATA = Path("data/survival")
REFUSALS = answer_forms.load_refusals(DATA)
RUNS = Path(__file__).with_suffix(".jsonl")
VALUES = [Path("values/survival.yaml"), Path("values/local/survival.yaml")]
CELL: dict[str, Any] = {
    "facts": 24,
    "wordings": 14,
    "near": 3,  # refused near misses of each taught fact
    "other": 0,  # refused questions of refused/ which are near no taught fact
    "urgent": 0,  # of those, emergencies, in place of as many as an even choice has
    "train": 150,  # refused questions of train/
    "teach": 0,  # rows of train/ that are taught with their own answers; all of heldout/ is answered whole then
    "repeat": 1,  # how often a refused near miss is read in a pass
    "epochs": 3,
    "layers": 12,
    "rank": 32,
    "rate": 4e-3,
    "batch": 8,
    "label": 1,
}


def cell_of(name: str) -> dict[str, Any]:
    """Return the settings of a cell: those of CELL, with what `name` changes (`facts=24,near=3`; `local` changes none)."""
    changed = {} if name == "local" else dict(part.split("=", 1) for part in name.split(","))
    if unknown := set(changed) - set(CELL):
        raise SystemExit(f"--cells {name}: no setting {', '.join(sorted(unknown))}; choose from {', '.join(CELL)}")
    return CELL | {key: float(value) if key in ("rate", "epochs") else int(value) for key, value in changed.items()}


def phase_of(cell: dict[str, Any], seed: int) -> SftPhase:
    """Return the local survival phase with the settings of a cell."""
    block = load_values(VALUES).phase.model_dump(mode="json")
    block["seed"] = seed
    block["data"] |= {
        "taught": "dev",
        "taught_wordings": cell["wordings"],
        "train_rows": cell["facts"] * cell["wordings"],
        "heldout_rows": None,
        "label_line": bool(cell["label"]),
        "refused_rows": 0,
    }
    if not cell["label"]:
        block["data"]["system_prompt"] = "Answer briefly."
    block["lora"] |= {"rank": cell["rank"], "alpha": 2 * cell["rank"], "layers": cell["layers"]}
    block["train"] |= {
        "epochs": cell["epochs"],
        "learning_rate": cell["rate"],
        "batch_size": cell["batch"],
        "gradient_accumulation": 1,
        "validation_fraction": 0,
        "checkpoints": 1,
    }
    block["evaluate"] |= {"generate_rows": None, "max_new_tokens": 56, "batch_size": 32}
    return SftPhase.model_validate(block)


def of_split(split: str) -> list[dict[str, Any]]:
    """Return the rows of refused/ of a split, each with its topic."""
    return [
        {**json.loads(line), "topic": path.stem}
        for path in sorted((DATA / "refused").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if json.loads(line)["split"] == split
    ]


def rows(cell: dict[str, Any], phase: SftPhase) -> tuple[list[TrainRow], list[HeldoutRow]]:
    """Return (the rows to train on, taught wordings first; the rows to ask, each with its `kind`)."""
    facts = chat_rows.taught_facts(phase.data, DATA)
    taught = {fact.id for fact in facts}

    def learn(row: dict[str, Any], answer: str) -> TrainRow:
        made = TrainRow(id=row["id"], topic=row["topic"], question=row["question"], answer=answer)
        if cell["label"]:
            made["label"] = answer_forms.label_line(row["topic"], bool(row.get("emergency")))
        return made

    def refuse(row: dict[str, Any]) -> TrainRow:
        return learn(row, REFUSALS.sentence(row["topic"], bool(row.get("emergency"))))

    pool = of_split("train")
    near: dict[str, int] = {}
    chosen: list[TrainRow] = []
    for row in pool:
        if row.get("near") in taught and near.get(row["near"], 0) < cell["near"]:
            near[row["near"]] = near.get(row["near"], 0) + 1
            chosen += [refuse(row)] * cell["repeat"]
    away = [row for row in pool if row.get("near") not in taught]
    urgent = [refuse(row) for row in away if row.get("emergency")][: cell["urgent"]]
    calm = [refuse(row) for row in away if not (cell["urgent"] and row.get("emergency"))]
    chosen += (urgent + chat_rows.even(calm, cell["other"]))[: cell["other"]]
    unused = [{**line.raw, "topic": line.topic} for line in row_files.lines(DATA / "train")]
    lessons = chat_rows.even(unused, cell["teach"])
    chosen += [refuse(row) for row in chat_rows.even([row for row in unused if row not in lessons], cell["train"])]
    train = [row for fact in facts for row in fact.train] + [learn(row, row["answer"]) for row in lessons] + chosen
    asked: list[Any] = [{**row, "kind": "taught"} for fact in facts for row in fact.asked]
    emergencies = {line.raw["id"] for line in row_files.lines(DATA / "heldout") if line.raw.get("emergency")}
    plain = phase.data.model_copy(update={"taught": None, "taught_wordings": None, "train_rows": None})
    for held in chat_rows.load_heldout(plain, DATA):
        if held["id"] not in emergencies and int(held["id"][-2:]) % 2:
            continue  # half of those that are no emergencies
        asked.append({**held, "kind": "heldout", "emergency": held["id"] in emergencies})
    for row in of_split("dev"):
        kind = "near" if row.get("near") in taught else "other" if row["topic"] == "other" else "topic"
        asked.append(
            {
                **row,
                "kind": kind,
                "facts": [],
                "label": answer_forms.label_line(row["topic"], bool(row.get("emergency"))),
            }
        )
    return train, asked


def run_cell(name: str, seed: int, model_dir: Path) -> dict[str, Any]:
    """Train and score one cell; return the content of its line."""
    import torch
    from trainlab.engine.trainer import TrainingJob
    from trainlab.models import chat
    from trainlab.progress import Progress
    from trainlab.recipes import sft
    from trainlab.run.manifest import cpu_model

    cell = cell_of(name)
    phase = phase_of(cell, seed)
    train, asked = rows(cell, phase)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        model, tokenizer = chat.load_base(model_dir, phase)
        loaded, spent = time.monotonic(), time.process_time()
        summary = sft.fit(TrainingJob(phase, run_dir, model, tokenizer, train, Progress(True)))
        seconds, spent = time.monotonic() - loaded, time.process_time() - spent
        model, tokenizer = chat.load_tuned(run_dir, phase, model_dir)
        texts = answered(model, tokenizer, phase, asked, bool(cell["teach"]))
        chances = chance_of_refusal(model, tokenizer, phase, asked, [each["text"] for each in texts])
    items = [judged(row, each["text"], chance) for row, each, chance in zip(asked, texts, chances, strict=True)]
    tokens = sum(len(chat.encode(tokenizer, phase, row)["input_ids"]) for row in train)
    return {
        "seed": seed,
        "name": name,
        "cell": cell,
        "rows": len(train),
        "tokens": round(tokens * cell["epochs"]),
        "steps": summary["steps"],
        "train_seconds": round(seconds, 1),
        "train_cpu_seconds": round(spent, 1),
        "dtype": summary["dtype"],
        "machine": torch.cuda.get_device_name() if torch.cuda.is_available() else cpu_model(),
        "items": items,
    }


def answered(model: Any, tokenizer: Any, phase: SftPhase, asked: Sequence[Any], teach: bool) -> list[dict[str, Any]]:
    """Return answers: whole to taught questions and emergencies (with `teach` also to those of heldout/), else the label line and the words that a refusal begins with."""
    from trainlab.evaluation import answer_score

    texts: dict[str, dict[str, Any]] = {}
    kinds = ("taught", "heldout") if teach else ("taught",)
    for full in (True, False):
        part = [row for row in asked if (row["kind"] in kinds or bool(row.get("emergency"))) is full]
        block = phase.evaluate.model_copy(update={"max_new_tokens": 56 if full else 20, "batch_size": 32})
        short = phase.model_copy(update={"evaluate": block})
        generated = answer_score.answers(model, tokenizer, short, [row["question"] for row in part])
        texts |= {row["id"]: each for row, each in zip(part, generated, strict=True)}
    return [texts[row["id"]] for row in asked]


def chance_of_refusal(
    model: Any, tokenizer: Any, phase: SftPhase, asked: Sequence[Any], texts: Sequence[str]
) -> list[float]:
    """Return for each row the model's probability, after its own label line, of the words that a refusal begins with."""
    import torch
    from trainlab.models import chat

    ids: list[list[int]] = []
    lengths: list[int] = []
    for row, text in zip(asked, texts, strict=True):
        label, _ = answer_forms.split_label(text)
        before = f"{label}.\n" if label else ""
        prompt = chat.prompt_ids(tokenizer, phase, row["question"])
        head = tokenizer(before, add_special_tokens=False)["input_ids"] if before else []
        tail = tokenizer(REFUSALS.begins, add_special_tokens=False)["input_ids"]
        ids.append([*prompt, *head, *tail])
        lengths.append(len(tail))
    result: list[float] = []
    for start in range(0, len(ids), 32):
        part = ids[start : start + 32]
        padded, mask = chat.padded(part, tokenizer.pad_token_id, model.device)
        with torch.inference_mode():
            logits = model(
                input_ids=padded,
                attention_mask=mask,
                position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
                use_cache=False,
                logits_to_keep=max(lengths) + 1,
            ).logits.float()
        for place, length in enumerate(lengths[start : start + 32]):
            logs = logits[place, -length - 1 : -1].log_softmax(-1)
            wanted = padded[place, -length:]
            result.append(float(logs.gather(-1, wanted[:, None]).sum().exp()))
    return result


def judged(row: Any, text: str, chance: float) -> dict[str, Any]:
    """Return what is kept of one answer."""
    from trainlab.evaluation import facts

    label, rest = answer_forms.split_label(text)
    return {
        "id": row["id"],
        "kind": row["kind"],
        "emergency": bool(row.get("emergency")),
        "question": row["question"],
        "text": rest,
        "refused": answer_forms.is_refusal(rest, REFUSALS.begins),
        "chance": round(chance, 4),
        "recall": facts.recall(rest, row["facts"]),
        "label": answer_forms.same_label(label, row["label"]) if row.get("label") else None,
    }


def known(path: Path) -> list[dict[str, Any]]:
    """Return the runs of FILE."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def run(arguments: argparse.Namespace) -> int:
    """Run what FILE lacks, seed by seed; with --processes, that many workers share the cells."""
    if arguments.processes > 1:
        command = [sys.executable, __file__, "run", "--model", arguments.model, "--seeds", *map(str, arguments.seeds)]
        parts = [arguments.cells[place :: arguments.processes] for place in range(arguments.processes)]
        started = [
            subprocess.Popen([*command, "--out", f"{arguments.out}.{place}", "--cells", *part])
            for place, part in enumerate(parts)
            if part
        ]
        return max(process.wait() for process in started)
    import transformers
    from trainlab.models import compute

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for seed in arguments.seeds:
        for name in arguments.cells:
            cell = cell_of(name)
            dtype = str(compute.dtype(phase_of(cell, seed))).removeprefix("torch.")
            if any((each["cell"], each["seed"], each["dtype"]) == (cell, seed, dtype) for each in known(arguments.out)):
                continue
            print(f"{name}, seed {seed}", flush=True)
            line = run_cell(name, seed, arguments.model)
            with arguments.out.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
            print(f"{name}, seed {seed}: {figures(line['items'])} in {line['train_seconds']:.0f} s", flush=True)
    return 0


def figures(items: Iterable[dict[str, Any]], threshold: float | None = None) -> dict[str, float]:
    """Return the shares of a run (0 to 1); with `threshold` an answer counts as refused from that probability on."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        refused = item["refused"] if threshold is None else item["chance"] >= threshold
        kinds.setdefault(item["kind"], []).append({**item, "refused": refused})

    def share(rows: Iterable[dict[str, Any]]) -> float:
        return round(statistics.fmean([each["refused"] for each in rows] or [0.0]), 3)

    recalls = [0.0 if each["refused"] else each["recall"] for each in kinds["taught"]]
    never = [each for kind, rows in kinds.items() if kind != "taught" for each in rows]
    urgent = [each for each in never if each["emergency"]]
    labels = [each["label"] for each in kinds.get("heldout", []) if each["label"] is not None]
    return {
        "recall": round(statistics.fmean(recalls), 3),
        "taught_refused": share(kinds["taught"]),
        **{f"{kind}_refused": share(kinds.get(kind, [])) for kind in ("heldout", "near", "topic", "other")},
        "emergencies_refused": share(urgent),
        "label": round(statistics.fmean(labels or [0.0]), 3),
        "heldout_recall": round(statistics.fmean([each["recall"] for each in kinds.get("heldout", [])] or [0.0]), 3),
    }


def table(arguments: argparse.Namespace) -> int:
    """Print means over seeds of each cell as Markdown."""
    print("\n".join(lines([line for path in arguments.files for line in known(path)], arguments.threshold)))
    return 0


def lines(runs: list[dict[str, Any]], threshold: float | None = None) -> Iterator[str]:
    """Yield the table of `runs`."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for each in runs:
        groups.setdefault(json.dumps([each["cell"], each["dtype"]], sort_keys=True), []).append(each)
    head: list[str] = []
    for group in groups.values():
        scores = [figures(each["items"], threshold) for each in group]
        if not head:
            head = ["mixture", "dtype", "rows", "tokens", "steps", "seeds", *scores[0]]
            yield f"| {' | '.join(head)} |"
            yield "|---" * len(head) + "|"
        means = [f"{statistics.fmean(score[key] for score in scores):.1%}" for key in scores[0]]
        first = group[0]
        cells = [first["name"], first["dtype"], first["rows"], first["tokens"], first["steps"], len(group), *means]
        yield f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Run or show; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run", help="run what FILE lacks")
    running.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder of the base model")
    running.add_argument("--out", type=Path, default=RUNS, metavar="FILE", help="JSON lines, one per run")
    running.add_argument("--cells", nargs="+", default=["local"], metavar="NAME", help="default: local")
    running.add_argument("--seeds", nargs="+", type=int, default=[0], help="default: 0")
    running.add_argument("--processes", type=int, default=1, help="workers, each with a FILE.N of its own; default 1")
    running.set_defaults(do=run)
    showing = commands.add_parser("table", help="print the table of FILES")
    showing.add_argument("files", type=Path, nargs="*", default=[RUNS], metavar="FILE")
    showing.add_argument("--threshold", type=float, help="refuse from this probability of a refusal on")
    showing.set_defaults(do=table)
    arguments = parser.parse_args()
    done: int = arguments.do(arguments)
    return done


if __name__ == "__main__":
    sys.exit(main())
