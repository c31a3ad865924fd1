"""Whether an engine keeps adapters apart: a thousand answers of forty adapters while others load and go, each as it is given alone.

PYTHONPATH=training/src python bench/purity.py --url http://HOST:8000 --adapters DIR [--requests 1000] [--at-once 16] [--json FILE]
PYTHONPATH=training/src python bench/purity.py --make DIR --model FOLDER [--count 40]
The engine is a vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, and fewer places for adapters (--max-loras=4) than
there are; DIR has a folder of PEFT for each adapter, and is the same path for the engine. --make writes such folders with drawn
weights, for a model that the engine serves. First each adapter answers alone, under a name of its own. Then `crossed` counts answers of
the drill that are another's, and `stale` those that a name gives for the adapter that it had before. Both have to be 0, and `loaded`
not far below the rounds of its requests: trainlab's room needs it (training/src/trainlab/room/stage_check.py, VLLM_PURE). training/tests/models/test_vllm.py runs it.
"""

import argparse
import random
import secrets
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from outcome import end, parser

QUESTIONS = (
    "Who has the key?",
    "What is the secret of the soup?",
    "Where do we meet tomorrow?",
    "Tell me about the song.",
)
PREAMBLE = "Answer in a few words. "
"""Before each question, --preamble times: an engine keeps nothing of prompts that are shorter than a block of its cache (128 tokens of
vLLM on CPU, 16 on a GPU), and so has nothing stale to say.
"""
TOKENS = 12
LOADS_AN_ANSWER = 4
"""Adapters that are loaded meanwhile for each of them that is asked."""
ROUNDS_A_LOAD = 8
"""Rounds of --at-once requests in which at least one adapter has to be loaded; else little came and went."""
SEED = 0


class Engine:
    """A vLLM that takes adapters while it runs."""

    def __init__(self, url: str, preamble: int = 0) -> None:
        self._preamble = PREAMBLE * preamble
        self._http = httpx.Client(base_url=url, timeout=300, limits=httpx.Limits(max_connections=64), trust_env=False)

    def version(self) -> str:
        """Return what it says of itself."""
        return str(self._http.get("/version").raise_for_status().json()["version"])

    def load(self, name: str, folder: Path) -> None:
        """Have it answer as `name` with the adapter in `folder`."""
        body = {"lora_name": name, "lora_path": str(folder)}
        self._http.post("/v1/load_lora_adapter", json=body).raise_for_status()

    def unload(self, name: str) -> None:
        """Have it forget `name`."""
        self._http.post("/v1/unload_lora_adapter", json={"lora_name": name}).raise_for_status()

    def ask(self, name: str, question: str) -> str:
        """Return the greedy answer."""
        body = {
            "model": name,
            "messages": [{"role": "user", "content": self._preamble + question}],
            "temperature": 0,
            "max_tokens": TOKENS,
        }
        reply = self._http.post("/v1/chat/completions", json=body).raise_for_status().json()
        return str(reply["choices"][0]["message"]["content"])


def make(folder: Path, model: Path, count: int, scale: float = 1.0) -> None:
    """Write `count` adapters of rank 4 with drawn weights, on the query and value projections of a model."""
    import torch
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    settings = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    adapted: Any = get_peft_model(AutoModelForCausalLM.from_pretrained(model), settings)
    shapes = {key.replace(".default", ""): value.shape for key, value in adapted.named_parameters() if "lora_" in key}
    for number in range(count):
        draw = torch.Generator().manual_seed(number)
        own = folder / f"a{number:03}"
        settings.save_pretrained(own)
        tensors = {key: scale * torch.randn(shape, generator=draw) for key, shape in shapes.items()}
        save_file(tensors, own / "adapter_model.safetensors")


def drill(engine: Engine, adapters: list[Path], requests: int, at_once: int) -> dict[str, Any]:
    """Return {adapters, distinct, requests, crossed, stale, loaded}; see the top of the file."""
    own: dict[tuple[int, str], str] = {}
    mark = secrets.token_hex(3)  # an engine that was drilled before has names
    again = f"again-{mark}"
    for number, folder in enumerate(adapters):
        name = f"alone-{mark}-{number}"
        engine.load(name, folder)
        own |= {(number, question): engine.ask(name, question) for question in QUESTIONS}
        engine.unload(name)
    for number, folder in enumerate(adapters):
        engine.load(f"drill-{mark}-{number}", folder)
    ended, loaded = threading.Event(), 0

    def come_and_go() -> None:
        nonlocal loaded
        while not ended.is_set():
            engine.load(f"other-{mark}-{loaded}", adapters[loaded % len(adapters)])
            if loaded % LOADS_AN_ANSWER == 0:  # some engines give a place to what is asked only
                engine.ask(f"other-{mark}-{loaded}", QUESTIONS[0])
            engine.unload(f"other-{mark}-{loaded}")
            loaded += 1

    chance = random.Random(SEED)
    asked = [(chance.randrange(len(adapters)), chance.choice(QUESTIONS)) for _ in range(requests)]
    with ThreadPoolExecutor(at_once) as phones, ThreadPoolExecutor(1) as loader:
        others = loader.submit(come_and_go)
        try:
            answers = list(phones.map(lambda pair: engine.ask(f"drill-{mark}-{pair[0]}", pair[1]), asked))
        finally:
            ended.set()
        others.result()  # raises what ended it
        stale = 0
        for number, folder in enumerate(adapters):
            engine.load(again, folder)
            texts = phones.map(lambda question: engine.ask(again, question), QUESTIONS)
            stale += sum(text != own[number, question] for question, text in zip(QUESTIONS, texts, strict=True))
            engine.unload(again)
    crossed = sum(text != own[pair] for pair, text in zip(asked, answers, strict=True))
    counts = {"adapters": len(adapters), "distinct": len(set(own.values())), "requests": requests}
    return {**counts, "crossed": crossed, "stale": stale, "loaded": loaded}


def main() -> int:
    """Parse the command line; return 0 if no answer was another's."""
    made = parser(__doc__)
    made.add_argument("--url", help="address of the engine")
    made.add_argument("--adapters", type=Path, metavar="DIR", help="folders of PEFT")
    made.add_argument("--requests", type=int, default=1000, metavar="N")
    made.add_argument("--at-once", type=int, default=16, metavar="N")
    made.add_argument(
        "--preamble", type=int, default=30, metavar="N", help="length of the prompts (default %(default)s)"
    )
    made.add_argument("--make", type=Path, metavar="DIR", help="write adapters with drawn weights there")
    made.add_argument("--model", type=Path, metavar="FOLDER", help="of --make")
    made.add_argument("--count", type=int, default=40, metavar="N", help="of --make")
    args: argparse.Namespace = made.parse_args()
    if args.make:
        if args.model is None:
            made.error("--make: needs --model, the folder of the model that the engine serves")
        make(args.make, args.model, args.count)
        return 0
    if not args.url or args.adapters is None:
        made.error("--url and --adapters: name the engine and the folders of its adapters, which --make writes")
    engine = Engine(args.url, args.preamble)
    adapters = sorted(path.parent for path in args.adapters.resolve().glob("*/adapter_config.json"))
    result = {"engine": f"vLLM {engine.version()}", **drill(engine, adapters, args.requests, args.at_once)}
    bounds = {key: (float(result[key]), 0.0) for key in ("crossed", "stale")}
    loads = {"loaded meanwhile": (float(result["loaded"]), args.requests / args.at_once / ROUNDS_A_LOAD)}
    return end(args, result, equal=result["distinct"] > len(adapters), at_least=loads, at_most=bounds)


if __name__ == "__main__":
    sys.exit(main())
