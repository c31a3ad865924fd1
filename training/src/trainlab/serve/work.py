"""Requests in flight: how many at once, from a model's thread to the event loop, numbers for /metrics; used by api.py."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trainlab.serve.generation import Options, Outcome
from trainlab.serve.inference_engine import Engine
from trainlab.serve.protocol import ApiError

SECONDS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120)


class Metrics:
    """The numbers of one server, in a registry of their own (tests start several servers)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        seen = ["model", "endpoint", "status"]
        self.requests = Counter("trainlab_requests", "Requests by model, endpoint and HTTP status.", seen, **own)
        self.tokens = Counter(
            "trainlab_tokens", "Tokens by model; kind is prompt or completion.", ["model", "kind"], **own
        )
        self.seconds = Histogram(
            "trainlab_request_seconds", "Time to the complete answer.", ["model"], buckets=SECONDS, **own
        )
        self.first = Histogram(
            "trainlab_first_token_seconds", "Time to first text, including queueing.", ["model"], buckets=SECONDS, **own
        )
        self.queue = Gauge("trainlab_queue", "Requests in progress or waiting.", **own)


class Desk:
    """Accepts requests up to a limit and runs each in a thread."""

    def __init__(self, limit: int, metrics: Metrics) -> None:
        self._limit, self._metrics = limit, metrics
        self._threads = ThreadPoolExecutor(limit, thread_name_prefix="generate")
        self._active = 0  # touched only in the event loop

    def start(self, engine: Engine, model: str, prompt: Sequence[int], options: Options) -> "Job":
        """Start a request; raises ApiError 429 when the limit is reached."""
        if self._active >= self._limit:
            message = f"{self._limit} requests are in progress (phase.serve.max_concurrency); try again soon"
            raise ApiError(429, message, code="too_many_requests")
        job = Job(engine, model, prompt, options, self._metrics)
        self._count(+1)
        loop = asyncio.get_running_loop()
        # The slot is free when the thread ends, whatever became of the client.
        loop.run_in_executor(self._threads, job.run).add_done_callback(lambda _: self._count(-1))
        return job

    def close(self) -> None:
        """Accept nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _count(self, change: int) -> None:
        self._active += change
        self._metrics.queue.set(self._active)


class Job:
    """One request: `run` in a thread, `pieces` in the event loop."""

    def __init__(self, engine: Engine, model: str, prompt: Sequence[int], options: Options, metrics: Metrics) -> None:
        self._engine, self._model, self._prompt, self._options = engine, model, prompt, options
        self._metrics, self._began = metrics, time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | Outcome | Exception] = asyncio.Queue()
        self._cancelled = threading.Event()
        self._spoke = False
        self.outcome = Outcome("stop", 0)

    def run(self) -> None:
        """Generate; everything, errors included, goes into the queue."""
        end: Outcome | Exception
        try:
            end = self._engine.generate(self._model, self._prompt, self._options, self._emit, self._cancelled)
            self._metrics.tokens.labels(self._model, "prompt").inc(len(self._prompt))
            self._metrics.tokens.labels(self._model, "completion").inc(end.tokens)
            self._metrics.seconds.labels(self._model).observe(time.monotonic() - self._began)
        except Exception as error:  # passed to the event loop, which answers with it
            end = error
        self._put(end)

    async def pieces(self) -> AsyncIterator[str]:
        """Yield text as it comes; sets `outcome` at the end. Leaving early cancels the generation."""
        try:
            while True:
                item = await self._queue.get()
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, Outcome):
                    self.outcome = item
                    return
                yield item
        finally:
            self._cancelled.set()

    def _emit(self, text: str) -> None:
        if not self._spoke:
            self._spoke = True
            self._metrics.first.labels(self._model).observe(time.monotonic() - self._began)
        self._put(text)

    def _put(self, item: str | Outcome | Exception) -> None:
        if not self._loop.is_closed():  # the server may have ended while a model was still working
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
