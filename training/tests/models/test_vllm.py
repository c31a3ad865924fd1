"""Real vLLM on CPU serves what a run leaves: the greedy tokens of our scorer, for a bare question, within the exported limit.

The newest one in `make test`; those of OpenShift AI's releases in `make test-engines`, with the torch and transformers they want, and
whether one keeps forty people's adapters apart.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bases_of
import httpx
import openai
import overlays
import purity
import pytest
from ports import WITH_ITS_WORKER, free_port
from results import TRAIN, make_result
from tiny import make_phase, write_data, write_text
from trainlab import files
from trainlab.data import corpus, pack
from trainlab.engine.trainer import TrainingJob
from trainlab.evaluation import answer_score
from trainlab.models import chat
from trainlab.progress import Progress
from trainlab.recipes import cpt
from trainlab.room import stage_check

pytestmark = pytest.mark.rest
LOCKS = {
    **{file.stem: file for file in Path(__file__).parent.glob("*.lock")},
    "vllm": Path(__file__).resolve().parents[3] / "images" / "vllm" / "vllm.lock",
}
ENGINES = {
    "0.32": ["vllm"],
    "0.24": ["vllm_0_24", "vllm"],
    "0.19": ["vllm_0_19", "vllm_torch_2_10", "vllm"],
    "0.18": ["vllm_0_18", "transformers_4", "vllm_torch_2_10", "vllm"],
}
"""Names of lock files whose packages lie over the environment's, the first one on top."""
OLDER = [pytest.param(name, marks=pytest.mark.tier) for name in ("0.19", "0.18")]
QUESTIONS = ["Is the water safe?", "How do I boil it?", "the water"]
STARTS = 600  # seconds; 40 of CPU, more where others want the CPU too
OPTIONS = ["--dtype=float32", "--enforce-eager", "--max-model-len=256", "--max-num-seqs=4"]
# One process and one import of vLLM for several models; an adapter's settings and template are given as the chart does.
IN_PROCESS = """
import json, sys
from vllm import LLM
from vllm.lora.request import LoRARequest

found = []
for folder, mode, asked, adapter in json.load(sys.stdin):
    lora = {"generation_config": adapter, "enable_lora": True, "max_lora_rank": 8, "max_loras": 2} if adapter else {}
    engine = LLM(folder, dtype="float32", enforce_eager=True, max_model_len=256, max_num_seqs=4, **lora)
    for tuned in [None, LoRARequest("tuned", 1, adapter)] if adapter else [None]:
        if mode == "chat":
            talks = [[{"role": "user", "content": text}] for text in asked]
            template = open(f"{adapter}/chat_template.jinja").read() if adapter else None
            outputs = engine.chat(talks, use_tqdm=False, lora_request=tuned, chat_template=template)
        else:
            outputs = engine.generate(asked, engine.get_default_sampling_params(), use_tqdm=False)
        found.append([[one.outputs[0].text.strip(), len(one.outputs[0].token_ids)] for one in outputs])
    del engine
print(json.dumps(found))
"""


def variables(name: str) -> dict[str, str]:
    """Return the variables under which the environment's Python finds a vLLM of ENGINES, which asks nobody and runs on one core."""
    overlays.library("libnuma.so.1", debian="libnuma1", fedora="numactl-libs")  # images/vllm/Containerfile says why
    packages = [str(overlays.folder(LOCKS[lock])) for lock in ENGINES[name]]
    return {
        **{key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},  # halves a start
        "PYTHONPATH": os.pathsep.join(packages),
        "VLLM_CACHE_ROOT": f"{packages[0]}.cache",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB, whole ones
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        # 0.18 refuses to start without these names, which are about speed; the loader passes over what is not there
        "LD_PRELOAD": "libtcmalloc.so:libiomp5.so" if name == "0.18" else "",
    }


@contextmanager
def server(model: Path, options: Sequence[str], env: dict[str, str], folder: Path) -> Iterator[str]:
    """Serve a model as `base`, and adapters of up to rank 8; yield the URL once it is ready. folder: of its log."""
    port, said = free_port(), folder / "vllm.log"
    argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host=127.0.0.1", f"--port={port}", *OPTIONS]
    argv += [f"--model={model}", "--served-model-name=base", "--enable-lora", "--max-lora-rank=8", *options]
    with said.open("w") as log:
        process = subprocess.Popen([*WITH_ITS_WORKER, *argv], env=env, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_ready(process, f"http://127.0.0.1:{port}/health", said)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="session", params=["0.32", *OLDER])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """Variables of an engine that answers as runs were scored."""
    return variables(request.param)


@pytest.fixture(scope="session")
def client(
    runs: dict[str, Any], environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    """A server as the chart starts it for an adapter: base and tuned by name."""
    adapter = runs["adapter"][1] / "lora_adapter"
    # The adapter's own template and settings: vLLM reads them from the folder of --model only.
    own = [f"--chat-template={adapter / 'chat_template.jinja'}", f"--generation-config={adapter}"]
    options = ["--max-loras=2", *own, f"--lora-modules=tuned={adapter}"]
    with server(runs["base"], options, environment, tmp_path_factory.mktemp("vllm")) as url:
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def wait_ready(server: subprocess.Popen[bytes], url: str, said: Path) -> None:
    end = time.monotonic() + STARTS
    while time.monotonic() < end:
        assert server.poll() is None, said.read_text()[-3000:]
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    raise AssertionError(f"not ready after {STARTS} s: {said.read_text()[-3000:]}")


def scored(model: Any, tokenizer: Any, phase: Any) -> list[tuple[str, int]]:
    """Answers to QUESTIONS as our scorer gives them, with their tokens."""
    found = answer_score.answers(model, tokenizer, phase, QUESTIONS, say=lambda _: None)
    return [(whole(one["text"]), one["text_tokens"]) for one in found]


def whole(text: str) -> str:
    """Without a character that the limit cut in the middle: vLLM leaves its bytes out, our scorer writes U+FFFD for them."""
    return text.rstrip("\ufffd").strip()


def test_base_and_adapter_answer_by_name_as_they_were_scored(client: openai.OpenAI, runs: dict[str, Any]) -> None:
    phase, run_dir = runs["adapter"]
    expected = {
        "base": scored(*chat.load_base(runs["base"], phase), phase),
        "tuned": scored(*chat.load_tuned(run_dir, phase, runs["base"]), phase),
    }
    assert expected["base"] != expected["tuned"]
    assert [model.id for model in client.models.list()] == ["base", "tuned"]
    for name, answers in expected.items():
        found = []
        for question in QUESTIONS:  # no system message, no limit, no temperature
            reply = client.chat.completions.create(model=name, messages=[{"role": "user", "content": question}])
            assert reply.usage
            found.append((whole(reply.choices[0].message.content or ""), reply.usage.completion_tokens))
        assert found == answers, name


def test_base_and_adapter_answer_in_one_batch_as_alone(client: openai.OpenAI) -> None:
    """vLLM on CPU takes the last place for adapters for a row without one: fails without the chart's --max-loras."""

    def asked(name: str, question: str) -> str:
        reply = client.chat.completions.create(model=name, messages=[{"role": "user", "content": question}])
        return whole(reply.choices[0].message.content or "")

    pairs = [(name, question) for question in QUESTIONS for name in ("base", "tuned")]
    alone = [asked(*pair) for pair in pairs]
    with ThreadPoolExecutor(len(pairs)) as pool:
        assert list(pool.map(lambda pair: asked(*pair), pairs)) == alone


@pytest.fixture
def text_run(tmp_path: Path, runs: dict[str, Any], phase_dict: dict[str, Any]) -> tuple[Any, Path]:
    """A phase of running text and its run."""
    phase = make_phase(
        {**phase_dict, "recipe": "cpt", "unfreeze": {}, "gate": {"metric": "perplexity"}},
        model={"max_length": 32},
        data={"source": "pvc:text.jsonl", "train_rows": 40},
        train={"epochs": 1, "batch_size": 4, "learning_rate": 0.01, "checkpoints": 1, "validation_fraction": 0.1},
    )
    rows = corpus.load(phase, write_text(tmp_path / "text.jsonl"))
    model, tokenizer = chat.load_base(runs["base"], phase)
    parts = pack.pack_corpus(tokenizer, rows, 32, phase.data.train_rows, None)
    cpt.fit(TrainingJob(phase, tmp_path / "run", model, tokenizer, parts, Progress(False)))
    return phase, tmp_path / "run"


def test_whole_weights_and_a_text_phase_answer_as_they_were_scored(
    runs: dict[str, Any], text_run: tuple[Any, Path], environment: dict[str, str]
) -> None:
    jobs, expected = [], []
    for (phase, run_dir), mode in ((runs["weights"], "chat"), (text_run, "text")):
        jobs.append([str(run_dir / "best_model"), mode, QUESTIONS, None])
        expected.append(scored(*chat.load_tuned(run_dir, phase), phase))
    assert files.read_json(runs["weights"][1] / "best_model" / "config.json")["rope_theta"] == 100000.0
    assert answered(jobs, environment) == expected


def test_the_models_of_survival_and_lyrics_answer_as_they_were_scored(
    tmp_path: Path, tiny_model: Path, environment: dict[str, str], phase_dict: dict[str, Any]
) -> None:
    """Adapters in the last layers of a SmolLM3 and in the fused matrices of a Phi-3, and whole weights of both."""
    data, jobs, expected = write_data(tmp_path / "data"), [], []
    for write, lora in ((bases_of.smollm3, {"layers": 2}), (bases_of.phi3, {"dropout": 0.05})):
        new = write(tiny_model, tmp_path / write.__name__)
        base = bases_of.transformers_4(new, tmp_path / f"{write.__name__}-published")
        adapter, weights = (
            (make_phase(phase_dict, train=TRAIN, **blocks), tmp_path / f"{write.__name__}-{name}")
            for name, blocks in (("adapter", {"lora": {"rank": 8, "alpha": 16, **lora}}), ("weights", {}))
        )
        for phase, run_dir in (adapter, weights):
            make_result(phase, base, data, run_dir)
        jobs.append([str(base), "chat", QUESTIONS, str(adapter[1] / "lora_adapter")])
        jobs.append([str(weights[1] / "best_model"), "chat", QUESTIONS, None])
        expected.append(scored(*chat.load_base(base, adapter[0]), adapter[0]))
        expected.append(scored(*chat.load_tuned(adapter[1], adapter[0], base), adapter[0]))
        expected.append(scored(*chat.load_tuned(weights[1], weights[0]), weights[0]))
        assert expected[-3] != expected[-2] and expected[-3] != expected[-1], write.__name__
    assert answered(jobs, environment) == expected


def answered(jobs: list[list[Any]], environment: dict[str, str]) -> list[list[tuple[str, int]]]:
    """Return what vLLM answers, with tokens: of each job [folder, mode, questions, adapter], of base and tuned if there is one."""
    done = subprocess.run(
        [sys.executable, "-c", IN_PROCESS],
        input=json.dumps(jobs),
        env={**environment, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        capture_output=True,
        text=True,
        timeout=STARTS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [[(whole(text), tokens) for text, tokens in answers] for answers in json.loads(done.stdout.splitlines()[-1])]


@pytest.mark.tier
@pytest.mark.parametrize(("version", "fails"), [("0.24", True), ("0.32", False)])
def test_the_room_refuses_an_engine_that_mixes_adapters_up(
    version: str, fails: bool, runs: dict[str, Any], tmp_path: Path
) -> None:
    """A thousand requests to forty adapters while others load and go; prompts are longer than a block of the cache, 128 tokens."""
    purity.make(tmp_path, runs["base"], 40)
    env = variables(version) | {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
    with server(runs["base"], ["--max-loras=4"], env, tmp_path) as url:
        engine = purity.Engine(url, preamble=10)
        result = purity.drill(engine, sorted(tmp_path.glob("a*")), requests=1000, at_once=8)
    print(f"vLLM {version}: {result}")
    assert result["distinct"] > 40 and result["loaded"] >= 40, result
    assert (result["crossed"] + result["stale"] > 0) is fails, result
    assert (tuple(map(int, version.split("."))) < stage_check.VLLM_PURE) is fails
