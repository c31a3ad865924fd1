"""Which engine serves the local chat phases, our own server or vLLM on CPU? Both in one run, decided for each kind of result.

PYTHONPATH=training/src:cluster:training/tests python bench/serving.py --model DIR [--kinds adapter weights] [--clients 1 4 16 64]
(needs the environment of the checkout; DIR is the SmolLM2-135M-Instruct folder written by `trainlab fetch`; vLLM is downloaded
once into the cache, as for its tests; about 20 minutes)
The local survival phase is trained for two steps, once as an adapter and once as full weights. Then each engine in turn, never
both at once, with as many threads as the other, the chart's arguments and --at-once requests at once (ours: of each model):
seconds until base and tuned answer (vLLM needs a process for each where the weights are full), peak memory (proportional set
size, all processes), and for each number of clients that ask at the same moment, half of them base, tokens per second and
seconds to the first token. Greedy answers, streamed. vLLM takes a kind where it is ready within 30 s more, within 1.5 times the memory, and at least twice as fast
at 16 clients. Exits with 1 if answers of one engine change with the number of clients, or differ between the engines, more often
than one in ten: float32 sums in another order turn a close choice now and then. Also where vLLM takes a kind, as the values have ours.
"""

import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import outcome
import psutil
import serving_processes as processes
import transformers
from trainlab import files
from trainlab.config import SftPhase
from trainlab.config.loading import load_values
from trainlab.data.chat_rows import load_heldout, load_train
from trainlab.engine.trainer import TrainingJob
from trainlab.models import chat
from trainlab.progress import Progress
from trainlab.recipes import sft
from trainlab.run.manifest import cpu_model

VALUES = [Path("values/survival.yaml"), Path("values/local/survival.yaml")]
DATA = Path("data/survival")
VLLM_LOCK = Path("images/vllm/vllm.lock")
MORE_SECONDS, MORE_MEMORY, FASTER, AT = 30.0, 1.5, 2.0, 16  # the rule
ASKED_AT_LEAST = 8  # questions of a measurement, however few clients
TURNED = 0.1  # answers that may differ
Key = tuple[str, str]


@dataclass(frozen=True)
class Answered:
    """One streamed answer: its text, its tokens, seconds to the first text (None if there was none)."""

    text: str
    tokens: int
    first: float | None


def phase_of(kind: str, args: Any) -> SftPhase:
    """Return the local survival phase with a result of `kind`, on the model of --model."""
    block = load_values(VALUES).phase.model_dump(mode="json")
    layers = max(1, min(12, files.read_json(args.model / "config.json")["num_hidden_layers"] // 2))
    block["model"] |= {"source": f"pvc:{args.model.resolve().name}"}
    block["data"] |= {"taught": "dev", "train_rows": 16, "refused_rows": 0}
    block["unfreeze"] |= {"layers": layers, "lm_head": False}
    block["lora"] |= {"rank": 32, "layers": layers} if kind == "adapter" else {"rank": 0, "alpha": 1, "layers": None}
    block["train"] |= {"epochs": 1, "batch_size": 8, "checkpoints": 1}
    if kind == "weights":
        block["train"]["learning_rate"] = 3e-4
    block["serve"] |= {"max_concurrency": args.at_once}
    if args.smoke:
        block["model"]["max_length"] = 512  # enough for a tokenizer that knows few words
    return SftPhase.model_validate(block)


def setup(kind: str, args: Any, folder: Path) -> processes.Setup:
    """Train two steps; return the run."""
    phase, run_dir = phase_of(kind, args), folder / "run"
    model, tokenizer = chat.load_base(args.model, phase)
    sft.fit(TrainingJob(phase, run_dir, model, tokenizer, load_train(phase.data, DATA), Progress(False)))
    return processes.Setup(kind, phase, args.model.resolve().parent, run_dir, len(os.sched_getaffinity(0)))


def asks(clients: int) -> list[Key]:
    """Return (model, question) of each request of a measurement, base and tuned by turns; fewer clients ask the first of them."""
    data = load_values(VALUES).phase.data.model_copy(update={"heldout_rows": None})
    questions = [row["question"] for row in load_heldout(data, DATA)]
    pairs = itertools.cycle((model, question) for question in questions for model in ("base", "tuned"))
    return list(itertools.islice(pairs, max(clients, ASKED_AT_LEAST)))


async def ask(client: httpx.AsyncClient, urls: dict[str, str], key: Key, tokens: int) -> Answered:
    """Return the streamed greedy answer of a model."""
    body = {
        "model": key[0],
        "messages": [{"role": "user", "content": key[1]}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began, first, text, counted = time.monotonic(), None, "", 0
    async with client.stream("POST", f"{urls[key[0]]}/v1/chat/completions", json=body) as reply:
        if reply.status_code != 200:
            raise SystemExit(f"{key[0]}: HTTP {reply.status_code}: {(await reply.aread()).decode()[:300]}")
        async for line in reply.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                raise SystemExit(f"{key[0]}: {event['error']}")
            counted = (event.get("usage") or {}).get("completion_tokens") or counted
            piece = event["choices"][0]["delta"].get("content") if event["choices"] else None
            if piece:
                first = first or time.monotonic() - began
                text += piece
    # Of a character that the limit cut in the middle our server sends U+FFFD, vLLM nothing.
    return Answered(text.rstrip("\ufffd").strip(), counted, first)


async def load(urls: dict[str, str], clients: int, tokens: int) -> tuple[dict[str, Any], dict[Key, str]]:
    """Let `clients` ask at once, each its next question when the last is answered; return (numbers, answers)."""
    waiting, answers = asks(clients)[::-1], dict[Key, Answered]()

    async def ask_until_done(client: httpx.AsyncClient) -> None:
        while waiting:
            key = waiting.pop()
            answers[key] = await ask(client, urls, key, tokens)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=processes.STARTS, limits=limits, trust_env=False) as client:
        began = time.monotonic()
        await asyncio.gather(*(ask_until_done(client) for _ in range(clients)))
        seconds = time.monotonic() - began
    firsts = [each.first for each in answers.values() if each.first is not None]
    total = sum(each.tokens for each in answers.values())
    numbers = {
        "tokens": total,
        "tokens_per_second": round(total / seconds, 1),
        "first_token_median": round(statistics.median(firsts), 2),
        "first_token_last": round(max(firsts), 2),
    }
    return numbers, {key: each.text for key, each in answers.items()}


def measure(
    settings: processes.Setup, engine: str, args: Any, folder: Path
) -> tuple[dict[str, Any], dict[int, dict[Key, str]]]:
    """Start an engine, measure it; return (numbers, answers by number of clients)."""
    start = processes.ours(settings, folder) if engine == "ours" else processes.vllm(settings, args.packages)
    levels, answers = {}, {}
    with processes.started(settings, *start, folder) as running:
        for key in asks(1)[:2]:  # whatever the first answer costs is not counted
            asyncio.run(ask_once(running.urls, key, args.tokens))
        for clients in args.clients:
            levels[clients], answers[clients] = asyncio.run(load(running.urls, clients, args.tokens))
            print(f"{settings.kind}, {engine}, {clients} clients: {levels[clients]}", file=sys.stderr, flush=True)
    numbers = {"ready": round(running.ready, 1), "memory": round(running.memory.peak / 2**30, 2), "clients": levels}
    print(f"{settings.kind}, {engine}: {numbers}", file=sys.stderr, flush=True)
    return numbers, answers


async def ask_once(urls: dict[str, str], key: Key, tokens: int) -> None:
    """Ask once."""
    async with httpx.AsyncClient(timeout=processes.STARTS, trust_env=False) as client:
        await ask(client, urls, key, tokens)


def compared(sides: Sequence[tuple[str, dict[Key, str]]]) -> dict[str, Any]:
    """Return how many answers of two sides to the same questions are equal, and of each that differs where it begins to."""
    (first, these), (second, those) = sides
    both = [key for key in these if key in those]
    differ = []
    for key in both:
        if these[key] != those[key]:
            place = sum(
                1
                for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(these[key], those[key], strict=False))
            )
            ends = {name: answers[key][place : place + 30] for name, answers in sides}
            differ.append({"model": key[0], "question": key[1], "after_characters": place, **ends})
    return {"sides": [first, second], "answers": len(both), "equal": len(both) - len(differ), "different": differ}


def decided(ours: dict[str, Any], vllm: dict[str, Any]) -> dict[str, Any]:
    """Return who takes a kind by the rule (None without a measurement at AT clients), with what was measured and what bounds it."""
    if AT not in ours["clients"] or AT not in vllm["clients"]:
        return {"engine": None, "rules": {}}
    speed = vllm["clients"][AT]["tokens_per_second"] / ours["clients"][AT]["tokens_per_second"]
    more, times = vllm["ready"] - ours["ready"], vllm["memory"] / ours["memory"]
    rules = {
        "ready, seconds more": [round(more, 1), f"<= {MORE_SECONDS:g}", more <= MORE_SECONDS],
        "memory, times": [round(times, 2), f"<= {MORE_MEMORY:g}", times <= MORE_MEMORY],
        f"tokens/s at {AT} clients, times": [round(speed, 2), f">= {FASTER:g}", speed >= FASTER],
    }
    return {"engine": "vllm" if all(held for *_, held in rules.values()) else "ours", "rules": rules}


def table(measured: dict[str, dict[str, Any]], clients: Sequence[int]) -> str:
    """Return the measurements as a Markdown table."""
    heads = [f"{n} client{'s' * (n > 1)}: tokens/s, first token" for n in clients]
    lines = ["| kind | engine | ready | memory | " + " | ".join(heads) + " |", "|---" * (4 + len(heads)) + "|"]
    for kind, engines in measured.items():
        for engine, numbers in engines.items():
            cells = [
                f"{each['tokens_per_second']:g}, {each['first_token_median']:g} s"
                for each in numbers["clients"].values()
            ]
            lines.append(
                f"| {kind} | {engine} | {numbers['ready']:.0f} s | {numbers['memory']:.2f} GiB | {' | '.join(cells)} |"
            )
    return "\n".join(lines)


def all_measured(args: Any, work: Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Return (numbers by kind and engine, comparisons of answers, decisions by kind)."""
    result: dict[str, dict[str, Any]] = {}
    comparisons: list[dict[str, Any]] = []
    decisions: dict[str, Any] = {}
    for kind in args.kinds:
        settings = setup(kind, args, work / kind)
        sides: list[tuple[str, dict[Key, str]]] = []
        for engine in args.engines:
            folder = work / kind / engine
            folder.mkdir()
            numbers, answers = measure(settings, engine, args, folder)
            result.setdefault(kind, {})[engine] = numbers
            few, many = min(args.clients), max(args.clients)
            alone = (f"{kind}, {engine}, {few} at once", answers[few])
            sides.append((f"{kind}, {engine}, {many} at once", answers[many]))
            comparisons.append(compared([alone, sides[-1]]))
        if len(sides) == 2:
            comparisons.append(compared(sides))
            decisions[kind] = decided(result[kind]["ours"], result[kind]["vllm"])
    return result, comparisons, decisions


def main() -> int:
    """Measure, compare, decide, print; return the exit code."""
    parser = outcome.parser(__doc__)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder of the base model")
    parser.add_argument("--kinds", nargs="+", choices=("adapter", "weights"), default=["adapter", "weights"])
    parser.add_argument("--engines", nargs="+", choices=("ours", "vllm"), default=["ours", "vllm"])
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 4, 16, 64], metavar="N")
    parser.add_argument("--tokens", type=int, default=32, help="longest answer (default %(default)s)")
    parser.add_argument("--at-once", type=int, default=16, help="phase.serve.max_concurrency (default %(default)s)")
    parser.add_argument(
        "--work", type=Path, default=Path("artifacts/bench/serving"), metavar="DIR", help="runs and logs"
    )
    args = parser.parse_args()
    if args.smoke:
        args.kinds, args.engines, args.clients, args.tokens, args.at_once = ["adapter"], ["ours"], [1, 8], 8, 4
    if "vllm" in args.engines:
        import overlays

        args.packages = overlays.folder(VLLM_LOCK.resolve())
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as work:
        measured, comparisons, decisions = all_measured(args, Path(work))
    print(table(measured, args.clients))
    for kind, decision in decisions.items():
        print(f"{kind}: {decision['engine']}; {decision['rules']}")
    result = {
        "machine": cpu_model(),
        "threads": len(os.sched_getaffinity(0)),
        "load_average": psutil.getloadavg(),
        "measured": measured,
        "answers": comparisons,
        "decisions": decisions,
    }
    equal = all(each["equal"] >= (1 - TURNED) * each["answers"] for each in comparisons)
    engines = [decision["engine"] for decision in decisions.values() if decision["engine"]]
    rule = {"kinds that vLLM takes by the rule": (len(engines) - engines.count("ours"), 0)} if engines else {}
    return outcome.end(args, result, equal=equal, at_most=rule)


if __name__ == "__main__":
    sys.exit(main())
