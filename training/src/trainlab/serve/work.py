"""Requests in flight: the line, batches of it, each in a thread, from there to the event loop, and their numbers; used by api.py.

The numbers for /metrics have vLLM's names, so that its dashboards read ours (vllm-project/vllm, module vllm.v1.metrics.loggers;
prometheus_client appends `_total` to counters)."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trainlab.serve.generation import Options, Outcome, Row
from trainlab.serve.inference_engine import Engine
from trainlab.serve.protocol import ApiError

SECONDS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 240, 480)


class Metrics:
    """The numbers of one server, in a registry of their own (tests start several servers)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"labelnames": ["model_name"], "registry": self.registry}
        self.running = Gauge("vllm:num_requests_running", "Requests that a model is answering.", **own)
        self.waiting = Gauge("vllm:num_requests_waiting", "Requests in line.", **own)
        self.first = Histogram(
            "vllm:time_to_first_token_seconds", "Time to the first text, with the wait in line.", buckets=SECONDS, **own
        )
        self.seconds = Histogram(
            "vllm:e2e_request_latency_seconds",
            "Time to the complete answer, with the wait in line.",
            buckets=SECONDS,
            **own,
        )
        self.prompt_tokens = Counter("vllm:prompt_tokens", "Tokens of the prompts that were read.", **own)
        self.generation_tokens = Counter("vllm:generation_tokens", "Tokens that were generated.", **own)
        self.ended = Counter(
            "vllm:request_success",
            "Requests that have ended: stop, length, abort (the client left) or error.",
            ["model_name", "finished_reason"],
            registry=self.registry,
        )
        # vLLM counts these by path and class of status only (http_requests_total).
        self.requests = Counter(
            "trainlab_requests",
            "Requests that have ended, by model, endpoint and HTTP status; 499: the client left.",
            ["model", "endpoint", "status"],
            registry=self.registry,
        )

    def show(self, models: Sequence[str]) -> None:
        """Report 0 for models that nobody has asked yet."""
        for name in models:
            for metric in (self.running, self.waiting, self.first, self.seconds):
                metric.labels(name)
            self.prompt_tokens.labels(name)
            self.generation_tokens.labels(name)


MODELS = 3  # model objects of a server: base, tuned, and one for all adapters
MAX_WAITING = 64  # requests that may wait: a full room; who comes later is told to try again
PULSE = 10.0  # seconds without text after which a stream says that it lives: routers cut idle ones (HAProxy: 30 s)


class Batcher:
    """Answers requests in their order, one batch per model object at once; who comes later waits in line until that ends.

    The first in line goes with those behind it that ask the same model and sample alike, `limit` in all; it never waits for
    them. All but `Engine.generate` happens in the event loop, so nothing here is locked.
    """

    def __init__(self, limit: int, metrics: Metrics) -> None:
        self._limit, self._metrics = limit, metrics
        self._threads = ThreadPoolExecutor(MODELS, thread_name_prefix="generate")
        self._waiting: list[Job] = []
        self._busy: set[int] = set()
        self._closed = False

    def join(self, engine: Engine, model: str, prompt: Sequence[int], options: Options) -> "Job":
        """Start a request or put it into the line; raises ApiError 429 when that is full."""
        job = Job(self, engine, model, prompt, options, self._metrics)
        self._waiting.append(job)
        self._metrics.waiting.labels(model).inc()
        self._advance()
        if job in self._waiting and len(self._waiting) > MAX_WAITING:
            self._drop(job)
            message = f"{MAX_WAITING} requests are waiting, and more may not; try again soon"
            raise ApiError(429, message, code="too_many_requests")
        return job

    def cancel(self, job: "Job") -> None:
        """Take out a request that nobody waits for any more."""
        if job in self._waiting:
            self._drop(job)
            self._metrics.ended.labels(job.model, "abort").inc()
            self._advance()

    def close(self) -> None:
        """Accept nothing more."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _drop(self, job: "Job") -> None:
        self._waiting.remove(job)
        self._metrics.waiting.labels(job.model).dec()

    def _advance(self) -> None:
        """Start whatever can start, and tell the others where they stand."""
        for job in list(self._waiting):
            if job in self._waiting and job.turn not in self._busy and not self._closed:
                self._start(self._batch(job))
        for number, job in enumerate(self._waiting, 1):
            job.move_to(number)

    def _batch(self, first: "Job") -> list["Job"]:
        """Return what is answered together with a request."""
        batch = [first]
        for job in self._waiting[self._waiting.index(first) + 1 :]:
            if len(batch) == self._limit:
                break
            if job.batchable_with(first) and job.engine.fits([each.row for each in (*batch, job)]):
                batch.append(job)
        return batch

    def _start(self, batch: list["Job"]) -> None:
        first = batch[0]
        self._busy.add(first.turn)
        for job in batch:
            self._drop(job)
            job.start()
        rows, loop = [job.row for job in batch], asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, first.engine.generate, first.model, rows)
        future.add_done_callback(lambda done: self._end(batch, done))

    def _end(self, batch: list["Job"], done: "asyncio.Future[None]") -> None:
        self._busy.discard(batch[0].turn)
        if done.cancelled():  # the server ends
            return
        error = done.exception()
        if error:
            for job in batch:
                job.finish(error)
        self._advance()


class Job:
    """One request: its `row` in a thread, everything else in the event loop. Compared by identity."""

    def __init__(
        self, batcher: Batcher, engine: Engine, model: str, prompt: Sequence[int], options: Options, metrics: Metrics
    ) -> None:
        self._batcher, self._metrics, self._began = batcher, metrics, time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[int | str | Outcome | BaseException] = asyncio.Queue()
        self._gone = threading.Event()
        self._spoke = self._over = False
        self._position: int | None = None
        self.engine, self.model, self.turn = engine, model, engine.turn(model)
        self.row = Row(prompt, options, self._emit, lambda outcome: self._tell(self.finish, outcome), self._gone)
        self.outcome: Outcome | None = None

    def batchable_with(self, other: "Job") -> bool:
        """Tell whether both may be answered in one batch."""
        sampling = self.row.options.sampling
        return self.model == other.model and sampling is not None and sampling == other.row.options.sampling

    def start(self) -> None:
        """It is being answered from now on."""
        self._metrics.running.labels(self.model).inc()
        self.move_to(0)

    async def events(self) -> AsyncGenerator[int | str]:
        """Yield text as it comes, and where the request stands: whenever that changes, and every PULSE seconds without text.

        Sets `outcome` at the end.
        """
        while True:
            try:
                item = await asyncio.wait_for(self._queue.get(), PULSE)
            except TimeoutError:
                item = self._position or 0
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, Outcome):
                self.outcome = item
                return
            yield item

    async def text(self) -> str:
        """Return the whole answer."""
        return "".join([item async for item in self.events() if isinstance(item, str)])

    def move_to(self, position: int) -> None:
        """Tell where this request stands: 1 is next in line, 0 is being answered."""
        if position != self._position:
            self._position = position
            self._queue.put_nowait(position)

    def cancel(self) -> None:
        """Give up the place, or end the generation at its next token; nothing happens after the end."""
        self._gone.set()
        self._batcher.cancel(self)

    def finish(self, end: Outcome | BaseException) -> None:
        """Count the end, then pass it to the reader: who has read it finds it counted. A batch may fail after some have ended."""
        if self._over:
            return
        self._over = True
        self._metrics.running.labels(self.model).dec()
        if isinstance(end, BaseException):
            self._metrics.ended.labels(self.model, "error").inc()
        else:
            self._metrics.prompt_tokens.labels(self.model).inc(len(self.row.prompt) if end.tokens else 0)
            self._metrics.generation_tokens.labels(self.model).inc(end.tokens)
            if self._gone.is_set():
                self._metrics.ended.labels(self.model, "abort").inc()
            else:
                self._metrics.ended.labels(self.model, end.finish).inc()
                self._metrics.seconds.labels(self.model).observe(time.monotonic() - self._began)
        self._queue.put_nowait(end)

    def _emit(self, text: str) -> None:
        """Take text in the model's thread."""
        if not self._spoke:
            self._spoke = True
            self._metrics.first.labels(self.model).observe(time.monotonic() - self._began)
        self._tell(self._queue.put_nowait, text)

    def _tell(self, what: Callable[[Any], None], value: Any) -> None:
        """Call in the event loop, from the model's thread; the server may have ended while a model was still working."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, value)
