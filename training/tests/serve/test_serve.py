"""serve: the official client against a real server with tiny models; errors, limits, sharing, adapters, signals."""

import asyncio
import functools
import html
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
from chat_servers import HTTP, running, wait_ready
from checkout import SOURCES
from ports import free_port
from tiny import phase_from
from trainlab.config import Phase
from trainlab.errors import UserError
from trainlab.models import chat
from trainlab.serve import api, chat_server, work
from trainlab.serve import inference_engine as engines
from trainlab.serve.generation import Options, Pieces, Row
from trainlab.serve.protocol import ApiError
from transformers import AutoModelForCausalLM, AutoTokenizer
from waiting import until

soon = functools.partial(until, seconds=20, every=0.02)  # a place in line is free at once
QUESTION: list[Any] = [{"role": "user", "content": "Is the water safe?"}]


@pytest.fixture(scope="session")
def phase(phase_dict: dict[str, Any]) -> Phase:
    return phase_from(phase_dict)


@pytest.fixture(scope="session")
def run_dir(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose tuned model differs in its last layer, with one adapter and a report."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(7)  # of weights drawn by chance, one in a hundred ends its answer early
    folder = tmp_path_factory.mktemp("run")
    tuned = AutoModelForCausalLM.from_pretrained(tiny_model)
    with torch.no_grad():
        tuned.model.layers[1].mlp.down_proj.weight += 0.5 * torch.randn_like(tuned.model.layers[1].mlp.down_proj.weight)
    tuned.save_pretrained(folder / "best_model")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder / "best_model")
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_model), lora).save_pretrained(folder / "lora_adapter")
    (folder / "report.html").write_text("<p>the report")
    return folder


@pytest.fixture(scope="session")
def engine(phase: Phase, tiny_model: Path, run_dir: Path) -> engines.Engine:
    return engines.load(phase, tiny_model.parent, run_dir)


@pytest.fixture(scope="session")
def url(phase: Phase, engine: engines.Engine, run_dir: Path) -> Iterator[str]:
    """Address of a server in a thread."""
    with running(phase, run_dir, engine) as address:
        yield address


@pytest.fixture(scope="session")
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def value(url: str, name: str) -> float:
    """The sum of a metric's values whose line begins with `name`."""
    lines = HTTP.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def ask(client: openai.OpenAI, model: str = "base", **options: Any) -> Any:
    return client.chat.completions.create(model=model, messages=QUESTION, **{"max_tokens": 12, **options})


def test_models_answer_by_name_and_differ(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["base", "tuned", "adapter"]
    texts = {name: ask(client, name).choices[0].message.content for name in ("base", "tuned", "adapter")}
    assert len(set(texts.values())) == 3
    assert ask(client, "base").choices[0].message.content == texts["base"]  # the adapter left the base alone


def test_a_bare_question_gets_the_text_of_the_evaluation(
    client: openai.OpenAI, engine: engines.Engine, phase: Phase
) -> None:
    from trainlab.evaluation import answer_score

    hosted = engine._hosted["tuned"]
    [plain] = answer_score.answers(hosted.model, hosted.tokenizer, phase, [QUESTION[0]["content"]])
    reply = client.chat.completions.create(model="tuned", messages=QUESTION)
    assert reply.choices[0].message.content.strip() == plain["text"]
    assert reply.usage.completion_tokens == plain["text_tokens"]
    assert reply.usage.prompt_tokens == len(chat.prompt_ids(hosted.tokenizer, phase, QUESTION[0]["content"]))


def test_stream_is_the_answer_in_pieces(client: openai.OpenAI) -> None:
    whole = ask(client)
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant" and len(chunks) > 4
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage
    with HTTP.stream(
        "POST",
        f"{client.base_url}completions",
        json={"model": "base", "prompt": "the", "stream": True, "max_tokens": 3},
    ) as reply:
        lines = [line for line in reply.iter_lines() if line]
    assert reply.headers["content-type"].startswith("text/event-stream") and lines[-1] == "data: [DONE]"


def test_completions(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="tuned", prompt="the water", max_tokens=8)
    parts = client.completions.create(model="tuned", prompt=["the water"], max_tokens=8, stream=True)
    assert whole.choices[0].text and "".join(part.choices[0].text for part in parts) == whole.choices[0].text
    assert whole.object == "text_completion"


def test_stop_and_sampling(client: openai.OpenAI) -> None:
    full = ask(client).choices[0].message.content
    stop = full[4:6]
    reply = ask(client, stop=[stop, "never there"])
    assert reply.choices[0].message.content == full[: full.index(stop)] and reply.choices[0].finish_reason == "stop"
    assert (
        "".join(c.choices[0].delta.content or "" for c in ask(client, stop=stop, stream=True))
        == full[: full.index(stop)]
    )
    first, second = (ask(client, temperature=1.5, top_p=0.9, seed=3).choices[0].message.content for _ in range(2))
    assert first == second != full


def test_system_prompt_of_the_phase_is_used(engine: engines.Engine, phase: Phase) -> None:
    ids = engine.chat_ids("base", QUESTION)
    assert phase.data.system_prompt in engine._hosted["base"].tokenizer.decode(ids)
    own = engine.chat_ids("base", [{"role": "system", "content": "Other."}, *QUESTION])
    assert phase.data.system_prompt not in engine._hosted["base"].tokenizer.decode(own)


@pytest.mark.parametrize(
    ("change", "status", "word"),
    [
        ({"model": "other"}, 404, "this server has base, tuned, adapter"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"temperature": 3}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"n": 2}, 400, "n: "),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, 400, "tools: this server does not support it"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format: "),
        ({"logprobs": True}, 400, "logprobs: "),
        ({"logit_bias": {"5": 1}}, 400, "logit_bias: "),
        ({"frequency_penalty": 0.5}, 400, "frequency_penalty: "),
        ({"top_k": 5}, 400, "top_k: this server does not support it"),
        ({"repetition_penalty": 1.1}, 400, "repetition_penalty: "),
        ({"min_p": 0.1}, 400, "min_p: "),
        ({"min_tokens": 4}, 400, "min_tokens: "),
        ({"guided_json": {}}, 400, "guided_json: "),
        ({"best_of": True}, 400, "best_of: "),
        ({"tempratur": 0.5}, 400, "tempratur: this server does not support it"),
        ({"stream_options": {"continuous_usage_stats": True}}, 400, "stream_options.continuous_usage_stats: "),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "pirate", "content": "x"}]}, 400, "role"),
        ({"messages": [{"role": "user", "content": "long " * 500}]}, 400, "shorten the prompt"),
        ({"model": None}, 400, "model"),
        ({"seed": 2**64}, 400, "seed"),
        ({"stop": "x" * 1001}, 400, "stop"),
        ({"messages": [{**QUESTION[0], "prefix": True}]}, 400, "prefix"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            400,
            "messages.0.content.0.",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
            400,
            "messages.0.content.0.text: ",
        ),
        ({"messages": [{"role": "user", "content": 5}]}, 400, "messages.0.content: "),
        ({"messages": [{"role": "user", "content": None}]}, 400, "messages.0: "),
        ({"stop": ["a", 1]}, 400, "stop.1: "),
        ({"messages": [{"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]}]}, 400, "tool_calls"),
    ],
)
def test_bad_requests_get_openai_errors(url: str, change: dict[str, Any], status: int, word: str) -> None:
    body = {"model": "base", "messages": QUESTION, **change}
    reply = HTTP.post(f"{url}/v1/chat/completions", json=body)
    error = reply.json()["error"]
    assert (
        reply.status_code == status and word in error["message"] and set(error) == {"message", "type", "param", "code"}
    )


SENT_BACK: list[dict[str, Any]] = [
    {"content": "hello", "reasoning_content": None},
    {"content": "hello", "reasoning_content": "I thought.", "reasoning": "I thought.", "id": "chatcmpl-1"},
    {"content": "hello", "tool_calls": [], "refusal": None, "audio": None, "function_call": None, "annotations": []},
    {"content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}, "annotations": []}]},
    {"content": None, "reasoning_content": ""},
    {"content": "hello", "name": "helper", "stop_reason": None, "unheard_of": {}},
]


@pytest.mark.parametrize("answer", SENT_BACK)
def test_an_answer_of_vllm_may_be_sent_back(url: str, answer: dict[str, Any]) -> None:
    """A chat that began there goes on here."""
    plain = {"role": "assistant", "content": "" if answer["content"] is None else "hello"}
    texts = []
    for second in (plain, {"role": "assistant", **answer}):
        body = {"model": "base", "messages": [*QUESTION, second, *QUESTION], "max_tokens": 4}
        reply = HTTP.post(f"{url}/v1/chat/completions", json=body)
        assert reply.status_code == 200, reply.text
        texts.append(reply.json()["choices"][0]["message"]["content"])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_longer_answer_than_the_servers_longest_is_cut_there(url: str, name: str) -> None:
    limit = HTTP.get(f"{url}/v1/models").json()["data"][0]["max_tokens"]
    assert limit == 32
    for asked in (limit, limit + 1, 100_000):
        reply = HTTP.post(f"{url}/v1/chat/completions", json={"model": "base", "messages": QUESTION, name: asked})
        assert reply.status_code == 200 and reply.json()["usage"]["completion_tokens"] <= limit


def test_a_control_token_in_a_question_opens_no_turn(url: str, client: openai.OpenAI) -> None:
    counts = [
        HTTP.post(
            f"{url}/v1/chat/completions",
            json={"model": "base", "messages": [{"role": "user", "content": text}], "max_tokens": 1},
        ).json()["usage"]["prompt_tokens"]
        for text in ("ab", "a<|im_end|><|im_start|>b")
    ]
    assert counts[1] - counts[0] > 8  # as many as the letters need, not two


def test_fields_that_ask_for_nothing_are_taken(client: openai.OpenAI) -> None:
    plain = ask(client).choices[0].message.content
    neutral = {
        "logprobs": False,
        "frequency_penalty": 0,
        "response_format": {"type": "text"},
        "tools": [],
        "user": "me",
    }
    extra = {"top_k": -1, "repetition_penalty": 1.0, "guided_json": None}
    assert ask(client, **neutral, extra_body=extra).choices[0].message.content == plain
    with pytest.raises(openai.BadRequestError, match="logprobs: "):
        client.completions.create(model="base", prompt="a", logprobs=0)


def test_an_answer_may_be_sent_back_with_all_that_it_came_with(client: openai.OpenAI) -> None:
    said = ask(client).choices[0].message.model_dump()
    chat = [*QUESTION, {**said, "tool_calls": []}, {"role": "user", "content": "Why?", "name": "Ada"}]
    assert client.chat.completions.create(model="base", messages=chat, max_tokens=2).choices


def test_odd_numbers_of_one_client_harm_nobody(client: openai.OpenAI) -> None:
    """The largest seed, also beside a greedy request, which needs none, and a temperature by which scores overflow."""
    plain = ask(client).choices[0].message.content
    assert ask(client, seed=2**64 - 1).choices[0].message.content == plain
    assert ask(client, temperature=1e-308).choices[0].message.content == plain, "the likeliest token, as good as always"
    assert ask(client, temperature=1.0, seed=-(2**63)).choices


def test_a_refusal_in_line_keeps_its_sentence_in_a_stream(
    url: str, engine: engines.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise ApiError(409, "run a: its gate did not promote it", code="run_not_promoted")

    monkeypatch.setattr(engine, "generate", refused)
    body = {"model": "base", "messages": QUESTION, "stream": True}
    conflict = 'trainlab_requests_total{endpoint="/v1/chat/completions",model="base",status="409"}'
    lines = [line for line in HTTP.post(f"{url}/v1/chat/completions", json=body).iter_lines() if line]
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "run_not_promoted"
    assert value(url, conflict) == 1


def test_half_a_model_is_told_in_a_sentence(phase: Phase, tiny_model: Path, run_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(run_dir, tmp_path / "run")
    weights = tmp_path / "run" / "best_model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"the models cannot be loaded: .*; fetch the model again .* and train again"):
        engines.load(phase, tiny_model.parent, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "best_model")
    shutil.move(tmp_path / "run" / "lora_adapter", tmp_path / "run" / "adapter")
    (tmp_path / "run" / "lora_adapter").mkdir()
    shutil.move(tmp_path / "run" / "adapter", tmp_path / "run" / "lora_adapter" / "own")
    with pytest.raises(UserError, match="neither best_model/ nor an adapter"):
        engines.load(phase, tiny_model.parent, tmp_path / "run")


def test_prompt_and_answer_are_limited_to_what_the_planner_counts(phase: Phase, engine: engines.Engine) -> None:
    """And a batch to as many of that as may be answered at once, or to the places of the model."""
    short = phase.model.model_copy(update={"max_length": 40})
    small = engines.Engine(phase.model_copy(update={"model": short}), engine._hosted)
    assert small.context == 40 + phase.serve.max_tokens < engine.context

    def fits(rows: int, tokens: int) -> bool:
        row = Row([1] * (tokens - 8), Options(8), lambda _: None, lambda _: None, threading.Event())
        return small.fits([row] * rows)

    most = min(phase.serve.max_concurrency * small.context, 512)
    assert fits(2, most // 2) and not fits(2, most // 2 + 1)


def test_other_errors(url: str, client: openai.OpenAI) -> None:
    assert HTTP.get(f"{url}/v1/nowhere").json()["error"]["message"] == "GET /v1/nowhere: Not Found"
    broken = HTTP.post(f"{url}/v1/completions", content=b"{", headers={"content-type": "application/json"})
    assert broken.status_code == 400
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        ask(client, "other")


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_over_the_limit_is_refused_before_it_is_read(url: str, announced: bool) -> None:
    host, port = url.removeprefix("http://").split(":")
    size = b"Content-Length: 12000000" if announced else b"Transfer-Encoding: chunked"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n" + size + b"\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        # the end of the body never comes
        connection.sendall(head if announced else head + b"11000\r\n" + b" " * 0x11000 + b"\r\n")
        said = connection.recv(4096).decode()
        while "}}" not in said:
            said += connection.recv(4096).decode()
    error = json.loads(said.partition("\r\n\r\n")[2])["error"]
    assert said.startswith("HTTP/1.1 413 ") and "at most 65536 bytes" in error["message"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "request_too_large")


def test_a_client_that_sends_it_all_reads_the_refusal(url: str) -> None:
    body = json.dumps({"model": "base", "messages": [{"role": "user", "content": "x" * 12_000_000}]})
    assert HTTP.post(f"{url}/v1/chat/completions", content=body).status_code == 413


def test_the_server_answers_while_a_long_prompt_is_read(
    url: str, engine: engines.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"model": "base", "messages": [{"role": "user", "content": "safe to drink " * 70_000}]}
    monkeypatch.setattr(api, "BYTES_PER_TOKEN", 4096)
    refused = HTTP.post(f"{url}/v1/chat/completions", json=body).json()["error"]["message"]
    assert refused.startswith("at least ")  # so long that it need not be read
    monkeypatch.setattr(engine, "least_tokens", lambda *_: 0)
    slowest = 0.0
    with ThreadPoolExecutor(1) as threads, httpx.Client() as health:
        health.get(f"{url}/health")
        began = time.monotonic()
        reply = threads.submit(HTTP.post, f"{url}/v1/chat/completions", json=body, timeout=60)
        while not reply.done():
            asked = time.monotonic()
            health.get(f"{url}/health")
            slowest = max(slowest, time.monotonic() - asked)
    assert reply.result().json()["error"]["code"] == "context_length_exceeded"
    # read in the event loop, the text would hold one of them nearly all the time; a busy machine holds one of them for a part of it
    assert slowest < max(0.2, (time.monotonic() - began) * 0.7)


def test_a_line_with_places_and_only_past_it_a_refusal(
    url: str, engine: engines.Engine, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "MAX_WAITING", 2)
    body = {"model": "base", "messages": QUESTION, "max_tokens": 4}
    waiting = 'vllm:num_requests_waiting{model_name="base"}'

    def post() -> int:
        return HTTP.post(f"{url}/v1/chat/completions", json=body, timeout=60).status_code

    with ThreadPoolExecutor(3) as threads:
        with engine._hosted["base"].lock:
            first = threads.submit(post)
            soon(lambda: value(url, 'vllm:num_requests_running{model_name="base"}') == 1)
            second = threads.submit(post)
            soon(lambda: value(url, waiting) == 1)
            stream = threads.submit(
                lambda: list(HTTP.post(f"{url}/v1/chat/completions", json={**body, "stream": True}).iter_lines())
            )
            soon(lambda: value(url, waiting) == 2)
            with pytest.raises(openai.RateLimitError, match="2 requests are waiting") as refused:
                ask(client)
            assert int(refused.value.response.headers["Retry-After"]) > 0
            assert ask(client, "tuned").choices  # another model is free
        assert (first.result(), second.result()) == (200, 200)
        lines = [line for line in stream.result() if line]
    places = [line for line in lines if line.startswith(":")]
    assert places == [": position 2", ": generating"] and lines[-1] == "data: [DONE]"  # together with the second


def test_who_waits_is_answered_in_one_batch_as_alone(
    url: str, engine: engines.Engine, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [{"max_tokens": 24}, {"max_tokens": 3}, {"max_tokens": 12, "stop": ["e"]}]
    alone = [ask(client, **options) for options in asked]
    batches, generate = [], engine.generate
    monkeypatch.setattr(engine, "generate", lambda name, rows: (batches.append(len(rows)), generate(name, rows))[1])

    def streamed(options: dict[str, Any]) -> tuple[str, Any, int]:
        chunks = list(ask(client, stream=True, stream_options={"include_usage": True}, **options))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        return text, chunks[-1].usage, len(chunks)

    with ThreadPoolExecutor(4) as threads:
        with engine._hosted["base"].lock:
            threads.submit(ask, client)
            soon(lambda: value(url, "vllm:num_requests_running") == 1)
            streams = [threads.submit(streamed, options) for options in asked]
            soon(lambda: value(url, "vllm:num_requests_waiting") == 3)
        found = [stream.result() for stream in streams]
    assert batches == [1, 3]
    assert [each[:2] for each in found] == [(one.choices[0].message.content, one.usage) for one in alone]
    assert found[0][2] > 10, "pieces come as they are generated"
    assert value(url, "vllm:num_requests_running") + value(url, "vllm:num_requests_waiting") == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_the_line_frees_its_place_at_once(url: str, engine: engines.Engine, stream: bool) -> None:
    body = {"model": "base", "messages": QUESTION, "stream": stream}
    waiting, aborted = "vllm:num_requests_waiting", 'vllm:request_success_total{finished_reason="abort"'
    before = (
        value(url, aborted),
        value(url, 'trainlab_requests_total{endpoint="/v1/chat/completions",model="base",status="499"'),
    )
    with engine._hosted["base"].lock, ThreadPoolExecutor(1) as threads:
        first = threads.submit(HTTP.post, f"{url}/v1/chat/completions", json={**body, "stream": False}, timeout=60)
        soon(lambda: value(url, "vllm:num_requests_running") == 1)
        with pytest.raises(httpx.ReadTimeout):
            HTTP.post(f"{url}/v1/chat/completions", json=body, timeout=0.3)
        soon(lambda: value(url, waiting) == 0, seconds=1)
        engine._hosted["base"].lock.release()
        assert first.result().status_code == 200
        engine._hosted["base"].lock.acquire()
    after = (
        value(url, aborted),
        value(url, 'trainlab_requests_total{endpoint="/v1/chat/completions",model="base",status="499"'),
    )
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)


def test_a_client_that_leaves_ends_its_generation(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted as aborted: a generation that nobody ended would run on and count as one of full length."""
    put, aborted = Pieces.put, 'vllm:request_success_total{finished_reason="abort"'

    def slowly(pieces: Pieces, token: int) -> None:
        time.sleep(0.1)
        put(pieces, token)

    monkeypatch.setattr(Pieces, "put", slowly)
    body, before = {"model": "base", "messages": QUESTION, "stream": True, "max_tokens": 32}, value(url, aborted)
    for _ in range(3):
        with HTTP.stream("POST", f"{url}/v1/chat/completions", json=body) as reply:
            next(reply.iter_lines())
    soon(lambda: value(url, aborted) - before == 3, seconds=10)
    soon(lambda: value(url, "vllm:num_requests_running") + value(url, "vllm:num_requests_waiting") == 0, seconds=10)


def test_answers_are_counted_when_they_end_in_the_names_of_vllm(
    url: str, engine: engines.Engine, client: openai.OpenAI
) -> None:
    ended = 'vllm:request_success_total{finished_reason="length",model_name="tuned"}'
    status = 'trainlab_requests_total{endpoint="/v1/chat/completions",model="tuned",status="200"}'
    names = [
        ended,
        status,
        *(
            f'vllm:{name}{{model_name="tuned"}}'
            for name in (
                "prompt_tokens_total",
                "generation_tokens_total",
                "time_to_first_token_seconds_count",
                "e2e_request_latency_seconds_count",
            )
        ),
    ]
    before = [value(url, name) for name in names]
    with engine._hosted["tuned"].lock:
        stream = ask(client, "tuned", stream=True, stream_options={"include_usage": True})
        next(iter(stream))
        assert [value(url, name) for name in names] == before  # nothing is finished
    usage = list(stream)[-1].usage
    wanted = [1, 1, usage.prompt_tokens, usage.completion_tokens, 1, 1]

    # the client may have the last piece a moment before the server counts
    def counted() -> list[float]:
        return [value(url, name) - old for name, old in zip(names, before, strict=True)]

    soon(lambda: counted() == wanted, said=counted)
    HTTP.post(f"{url}/v1/completions", json={"model": "x" * 99, "prompt": "a"})
    assert value(url, 'trainlab_requests_total{endpoint="/v1/completions",model="unknown",status="404"}') >= 1


def test_pages(url: str, phase: Phase) -> None:
    """The room's pages ask this server; its API's addresses stay its own."""
    root, report = HTTP.get(url), HTTP.get(f"{url}/report")
    assert root.status_code == 200 and html.escape(phase.questions[0]) in root.text
    assert "/me" not in root.text, "nobody can teach here"
    assert report.text == "<p>the report" and "default-src 'self'" in report.headers["content-security-policy"]
    assert "script-src 'self'" in root.headers["content-security-policy"]
    with HTTP.stream("POST", f"{url}/ask", data={"question": phase.questions[0]}) as reply:
        stream = reply.read().decode()
    assert "base" in stream and "tuned" in stream and "adapter" in stream and stream.count("tokens") >= 3, stream
    assert HTTP.get(f"{url}/v1/else").headers["content-type"] == "application/json"
    assert HTTP.get(f"{url}/else").status_code == 404 and "no such page" in HTTP.get(f"{url}/else").text


@pytest.mark.parametrize(
    ("host", "name"), [("0.0.0.0", "localhost"), ("127.0.0.1", "localhost"), ("127.0.0.2", "127.0.0.2")]
)
def test_pages_ask_the_host_that_is_listened_on(host: str, name: str) -> None:
    with chat_server.listen(host, 0) as listener:
        assert chat_server.address(listener) == f"http://{name}:{listener.getsockname()[1]}"


def test_equal_weights_are_held_once(engine: engines.Engine) -> None:
    base, tuned = (dict(engine._hosted[name].model.named_parameters()) for name in ("base", "tuned"))
    apart = [name for name in base if base[name].data_ptr() != tuned[name].data_ptr()]
    assert apart == ["model.layers.1.mlp.down_proj.weight"] and engine.shared_bytes > 0
    adapter = dict(engine._hosted["adapter"].model.named_parameters())
    pointers = {parameter.data_ptr() for parameter in base.values()}
    assert sum("lora" not in name and p.data_ptr() not in pointers for name, p in adapter.items()) == 0


def test_without_tuned_model_the_adapter_is_tuned(
    phase: Phase, tiny_model: Path, run_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "lora_adapter").symlink_to(run_dir / "lora_adapter")
    assert engines.load(phase, tiny_model.parent, tmp_path).names == ["base", "tuned"]


def test_pieces_never_show_half_characters_or_stops(tiny_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    for stop, expected in (((), "safe \u00e9\u4e16 STxSTOP end"), (("STOP",), "safe \u00e9\u4e16 STx")):
        said: list[str] = []
        pieces = Pieces(tokenizer, stop, said.append)
        for token in tokenizer("safe \u00e9\u4e16 STxSTOP end")["input_ids"]:
            pieces.put(token)
        pieces.end()
        assert "".join(said) == expected and not any("\ufffd" in text for text in said)


@pytest.mark.rest
def test_process_ends_well_on_sigterm_and_names_a_taken_port(
    phase_dict: dict[str, Any], tiny_model: Path, run_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "phase.json").write_text(json.dumps({"phase": phase_dict}))
    port = free_port()
    code = (
        "import sys; from pathlib import Path; from trainlab.config.loading import load_values; from trainlab.serve import serve; "
        "from trainlab.errors import UserError\n"
        "try: serve(load_values([Path(sys.argv[1])]).phase, Path(sys.argv[2]), Path(sys.argv[3]), '127.0.0.1', int(sys.argv[4]))\n"
        "except UserError as error: sys.exit(f'error: {error}')"
    )
    command = [
        sys.executable,
        "-c",
        code,
        str(tmp_path / "phase.json"),
        str(tiny_model.parent),
        str(run_dir),
        str(port),
    ]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        wait_ready(f"http://127.0.0.1:{port}")
        second = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert second.returncode == 1 and f"cannot listen on 127.0.0.1 port {port}" in second.stderr
        server.send_signal(signal.SIGTERM)
        out, _ = server.communicate()
    finally:
        server.kill()
    assert server.returncode == 0 and "serving base, tuned, adapter" in out


def test_the_room_asks_its_models(url: str) -> None:
    """What a room's scripted engine does in its tests is what this server does: pieces, then an end with the tokens."""
    from trainlab.room.engine import Engines, Piece

    async def ask() -> dict[str, list[Piece]]:
        room = Engines([url], max_tokens=4)
        return {side.label: [piece async for piece in room.ask(side, "Is it?")] for side in await room.sides()}

    said = asyncio.run(ask())
    assert list(said)[:2] == ["base", "tuned"]
    for pieces in said.values():
        assert pieces[-1].ended and not pieces[-1].error and 1 <= pieces[-1].tokens <= 4
        assert not any(piece.ended for piece in pieces[:-1])
