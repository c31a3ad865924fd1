"""Requests in flight: the line, a thread for each that is answered, from there to the event loop; used by api.py."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from trainlab.serve.generation import Options, Outcome
from trainlab.serve.inference_engine import Engine
from trainlab.serve.metrics import Metrics
from trainlab.serve.protocol import ApiError

LINE = 64  # requests that may wait: a full room; who comes later is told to try again
PULSE = (
    10.0  # seconds without text after which a stream says that it lives: routers cut idle connections (HAProxy: 30 s)
)


@dataclass(frozen=True)
class Place:
    """Where a request stands: `number` 1 is next in line, 0 is being answered."""

    number: int


class Desk:
    """Answers requests in their order, as many at once as `limit` says and one per model object; the others wait in line.

    All but `Job.run` happens in the event loop, so nothing here is locked.
    """

    def __init__(self, limit: int, metrics: Metrics) -> None:
        self._limit, self._metrics = limit, metrics
        self._threads = ThreadPoolExecutor(limit, thread_name_prefix="generate")
        self._line: list[Job] = []
        self._running: set[Job] = set()
        self._closed = False

    def join(self, engine: Engine, model: str, prompt: Sequence[int], options: Options) -> "Job":
        """Start a request or put it into the line; raises ApiError 429 when that is full."""
        job = Job(self, engine, model, prompt, options, self._metrics)
        self._line.append(job)
        self._metrics.waiting.labels(model).inc()
        self._advance()
        if job in self._line and len(self._line) > LINE:
            self._drop(job)
            message = f"{LINE} requests are waiting, and more may not; try again soon"
            raise ApiError(429, message, code="too_many_requests")
        return job

    def left(self, job: "Job") -> None:
        """Take out a request that nobody waits for any more."""
        if job in self._line:
            self._drop(job)
            self._metrics.ended.labels(job.model, "abort").inc()
            self._advance()

    def close(self) -> None:
        """Accept nothing more."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _drop(self, job: "Job") -> None:
        self._line.remove(job)
        self._metrics.waiting.labels(job.model).dec()

    def _advance(self) -> None:
        """Start whatever can start, and tell the others where they stand."""
        busy = {job.turn for job in self._running}
        for job in list(self._line):
            if self._closed or len(self._running) >= self._limit:
                break
            if job.turn not in busy:
                busy.add(job.turn)
                self._start(job)
        for number, job in enumerate(self._line, 1):
            job.place(number)

    def _start(self, job: "Job") -> None:
        self._drop(job)
        self._running.add(job)
        self._metrics.running.labels(job.model).inc()
        job.place(0)
        future = asyncio.get_running_loop().run_in_executor(self._threads, job.run)
        future.add_done_callback(lambda done: self._end(job, done))

    def _end(self, job: "Job", done: "asyncio.Future[Outcome | Exception]") -> None:
        """Count an answer, then hand its end over: who has read it finds it counted."""
        self._running.discard(job)
        self._metrics.running.labels(job.model).dec()
        if done.cancelled():  # the server ends
            return
        end = done.result()
        job.finish(end)
        self._advance()


class Job:
    """One request: `run` in a thread, everything else in the event loop. Compared by identity."""

    def __init__(
        self, desk: Desk, engine: Engine, model: str, prompt: Sequence[int], options: Options, metrics: Metrics
    ) -> None:
        self._desk, self._engine, self._prompt, self._options = desk, engine, prompt, options
        self._metrics, self._began = metrics, time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Place | str | Outcome | Exception] = asyncio.Queue()
        self._gone = threading.Event()
        self._spoke = False
        self._place: Place | None = None
        self.model, self.turn = model, engine.turn(model)
        self.outcome: Outcome | None = None

    def run(self) -> Outcome | Exception:
        """Generate; return how it ended."""
        try:
            return self._engine.generate(self.model, self._prompt, self._options, self._emit, self._gone)
        except Exception as error:  # passed to the event loop, which answers with it
            return error

    async def events(self) -> AsyncGenerator[Place | str]:
        """Yield text as it comes, and where the request stands: whenever that changes, and every PULSE seconds without text.

        Sets `outcome` at the end.
        """
        while True:
            try:
                item = await asyncio.wait_for(self._queue.get(), PULSE)
            except TimeoutError:
                item = self._place or Place(0)
            if isinstance(item, Exception):
                raise item
            if isinstance(item, Outcome):
                self.outcome = item
                return
            yield item

    async def text(self) -> str:
        """Return the whole answer."""
        return "".join([item async for item in self.events() if isinstance(item, str)])

    def place(self, number: int) -> None:
        """Tell where this request stands."""
        place = Place(number)
        if place != self._place:
            self._place = place
            self._queue.put_nowait(place)

    def leave(self) -> None:
        """Give up the place, or end the generation at its next token; nothing happens after the end."""
        self._gone.set()
        self._desk.left(self)

    def finish(self, end: Outcome | Exception) -> None:
        """Count the end and pass it to the reader."""
        if isinstance(end, Exception):
            self._metrics.ended.labels(self.model, "error").inc()
        else:
            self._metrics.prompt_tokens.labels(self.model).inc(len(self._prompt) if end.tokens else 0)
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
        if not self._loop.is_closed():  # the server may have ended while a model was still working
            self._loop.call_soon_threadsafe(self._queue.put_nowait, text)
