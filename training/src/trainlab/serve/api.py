"""The HTTP interface: OpenAI's chat and completions, models, metrics, health, and beside them the audience's pages; used by chat_server.py."""

import asyncio
import contextlib
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from trainlab.config import LanguagePhase
from trainlab.serve import client, protocol, web
from trainlab.serve.generation import Options
from trainlab.serve.inference_engine import Engine
from trainlab.serve.protocol import ApiError, ChatRequest, TextRequest
from trainlab.serve.work import Batcher, Job, Metrics

log = logging.getLogger("uvicorn.error")
NO_BUFFER = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
ENDPOINTS = ("/v1/chat/completions", "/v1/completions")
RETRY = {429: "5", 503: "2"}  # seconds until another try makes sense
# A body that fits the model's context is shorter: a token of some 20 characters, each written as \uXXXX.
BYTES_PER_TOKEN = 128
MAX_BYTES = 8 * 2**20  # of a body, whatever the context; read as JSON it takes several times that


class Server:
    """State and handlers of one server; `engine` is None until the models are loaded."""

    def __init__(
        self, phase: LanguagePhase, run_dir: Path, load: Callable[[], Engine], failed: Callable[[Exception], None]
    ) -> None:
        self.phase, self.run_dir, self._load, self._failed = phase, run_dir, load, failed
        self.engine: Engine | None = None
        self.metrics = Metrics()
        self.batcher = Batcher(phase.serve.max_concurrency, self.metrics)
        # One at a time: a text takes a hundred times its size in memory while it is read as tokens.
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenize")
        # The volume of the runs may be slow, or away: then no question to base or tuned waits for it.
        self._reading = ThreadPoolExecutor(2, thread_name_prefix="runs")

    def load(self) -> None:
        """Load the models (in a thread, so that /health answers meanwhile); hands an error to `failed`."""
        try:
            self.engine = self._load()
            self.metrics.show(self.engine.names)
        except Exception as error:  # whatever it is, it must end the server
            self._failed(error)

    def max_bytes(self) -> int:
        """Return how long a body may be."""
        return min(MAX_BYTES, BYTES_PER_TOKEN * self.engine.context) if self.engine else MAX_BYTES

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        """POST /v1/chat/completions."""
        engine = await self._ready(body.model, request)
        options = self._options(engine, body, "messages")
        try:
            prompt = await self._tokens(engine.chat_ids, body.model, [message.plain() for message in body.messages])
        except Exception as error:  # chat templates reject unusual role orders with errors of several types
            raise ApiError(400, f"the chat template rejects these messages: {error}", param="messages") from None
        return await self._answer(engine, body, prompt, options, request)

    async def text(self, body: TextRequest, request: Request) -> Response:
        """POST /v1/completions."""
        engine = await self._ready(body.model, request)
        options = self._options(engine, body, "prompt")
        prompt = await self._tokens(engine.text_ids, body.model, body.texts()[0])
        return await self._answer(engine, body, prompt, options, request)

    async def models(self) -> dict[str, Any]:
        """GET /v1/models: the models of this run, then the others on its volume, which load when they are asked."""
        if self.engine is None:
            return {"object": "list", "data": []}
        others = await asyncio.get_running_loop().run_in_executor(self._reading, self.engine.others)
        own: dict[str, Any] = {"object": "model", "created": 0, "owned_by": "trainlab"}
        own |= {"max_model_len": self.engine.context, "max_tokens": self.phase.serve.max_tokens}
        entries: list[dict[str, Any]] = [{"id": name, **own} for name in self.engine.names]
        entries += [{"id": name, **own, "parent": "base", client.ON_REQUEST: True} for name in others]
        return {"object": "list", "data": entries}

    async def metrics_text(self) -> Response:
        """GET /metrics."""
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def health(self) -> dict[str, str]:
        """GET /health: the process answers."""
        return {"status": "ok"}

    async def ready(self) -> JSONResponse:
        """GET /ready: the models are loaded."""
        names = self.engine.names if self.engine else []
        return JSONResponse({"ready": bool(names), "models": names}, status_code=200 if names else 503)

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Load the models once the server listens; at its end accept nothing more."""
        threading.Thread(target=self.load, name="load", daemon=True).start()
        yield
        self.batcher.close()
        for threads in (self._tokenizing, self._reading):
            threads.shutdown(wait=False, cancel_futures=True)

    def count(self, request: Request, status: int) -> None:
        """Count a request to one of the two endpoints; unknown model names share one label."""
        path = request.url.path
        if path in ENDPOINTS:
            self.metrics.requests.labels(getattr(request.state, "model", "unknown"), path, str(status)).inc()

    async def _ready(self, model: str, request: Request) -> Engine:
        if self.engine is None:
            raise ApiError(503, "the models are still loading; try again soon", code="not_ready")
        if model not in self.engine.names:
            await asyncio.get_running_loop().run_in_executor(self._reading, self.engine.admit, model)
        request.state.model = model
        return self.engine

    async def _tokens(self, read: Callable[[str, Any], list[int]], model: str, text: Any) -> list[int]:
        """Return the tokens of a prompt, read in a thread: /health must answer meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._tokenizing, read, model, text)

    def _options(self, engine: Engine, body: ChatRequest | TextRequest, field: str) -> Options:
        """Return how to generate; raises ApiError for a text that cannot fit, before it is read as tokens."""
        options = body.options(engine.answer_tokens(body.model), self.phase.serve.max_tokens)
        _check_room(engine, engine.least_tokens(body.model, body.texts()), options, field, "at least ")
        return options

    async def _answer(
        self, engine: Engine, body: ChatRequest | TextRequest, prompt: Sequence[int], options: Options, request: Request
    ) -> Response:
        chat = isinstance(body, ChatRequest)
        field = "messages" if chat else "prompt"
        if not prompt:
            raise ApiError(400, "the prompt is empty; send some text", param=field)
        _check_room(engine, len(prompt), options, field)
        job = self.batcher.join(engine, body.model, prompt, options)
        reply = protocol.Reply(body.model, len(prompt), chat)

        ended = partial(self.count, request)
        if body.stream:
            usage = bool(body.stream_options and body.stream_options.include_usage)
            return _Stream(job, reply, chat, usage, ended)
        text = await _full_text(job, request)
        if text is None or job.outcome is None:
            ended(499)
            return Response(status_code=499)
        ended(200)
        return JSONResponse(reply.body(text, job.outcome.finish, job.outcome.tokens))


def _check_room(engine: Engine, tokens: int, options: Options, field: str, about: str = "") -> None:
    """Raise ApiError if prompt and answer exceed the context."""
    if tokens + options.max_tokens > engine.context:
        message = (
            f"{about}{tokens} prompt tokens plus {options.max_tokens} answer tokens exceed this server's limit of "
            f"{engine.context} for both; shorten the prompt or lower max_tokens"
        )
        raise ApiError(400, message, param=field, code="context_length_exceeded")


async def _full_text(job: Job, request: Request) -> str | None:
    """Return the answer, or None as soon as the client has left, in the line too."""
    answer, gone = asyncio.create_task(job.text()), asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else None
    finally:
        job.cancel()
        for task in (answer, gone):
            task.cancel()


async def _disconnected(request: Request) -> None:
    """Return when the client has left; the body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Stream(StreamingResponse):
    """The server-sent events of one answer; `ended` gets the status, 499 if the client left."""

    def __init__(self, job: Job, reply: protocol.Reply, chat: bool, usage: bool, ended: Callable[[int], None]) -> None:
        super().__init__(self._events(reply, chat, usage), media_type="text/event-stream", headers=NO_BUFFER)
        self._job, self._ended, self._over = job, ended, False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; the client may leave before the first."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end(499)
            self._job.cancel()

    def _end(self, status: int) -> None:
        if not self._over:
            self._over = True
            self._ended(status)

    async def _events(self, reply: protocol.Reply, chat: bool, usage: bool) -> AsyncIterator[str]:
        """Yield the events; an error midway becomes the last one."""
        job = self._job
        try:
            if chat:
                yield protocol.event(reply.first())
            async with contextlib.aclosing(job.events()) as events:
                async for item in events:
                    if isinstance(item, str):
                        yield protocol.event(reply.piece(item))
                    else:
                        yield protocol.comment(f"position {item}" if item else "generating")
            if job.outcome is None:
                raise RuntimeError("the generation ended without an outcome")
            yield protocol.event(reply.last(job.outcome.finish))
            if usage:
                yield protocol.event(reply.usage(job.outcome.tokens))
            self._end(200)
            yield protocol.event("[DONE]")
        except ApiError as error:  # the run that is asked changed while the request stood in line
            self._end(error.status)
            yield protocol.event(error.body)
        except Exception as error:
            log.exception("generation failed")
            self._end(500)
            yield protocol.event(ApiError(500, f"generation failed: {type(error).__name__}").body)


def create_app(
    phase: LanguagePhase,
    run_dir: Path,
    load: Callable[[], Engine],
    failed: Callable[[Exception], None] = lambda _: None,
    pages: ASGIApp | None = None,
) -> FastAPI:
    """Return the application; models are loaded by `load` once the server listens, `failed` gets its error.

    `pages` answers what is no address of the API: the pages for an audience.
    """
    server = Server(phase, run_dir, load, failed)
    app = FastAPI(title="trainlab", lifespan=server.lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(web.BodyLimit, limit=server.max_bytes)
    app.add_api_route(ENDPOINTS[0], server.chat, methods=["POST"], response_model=None)
    app.add_api_route(ENDPOINTS[1], server.text, methods=["POST"], response_model=None)
    app.add_api_route("/v1/models", server.models, methods=["GET"])
    app.add_api_route("/metrics", server.metrics_text, methods=["GET"], response_model=None)
    app.add_api_route("/health", server.health, methods=["GET"])
    app.add_api_route("/ready", server.ready, methods=["GET"], response_model=None)
    _handle_errors(app, server)
    web.add_report(app, run_dir)
    if pages is not None:
        app.router.default = _with_pages(app.router.default, pages)
    return app


def _with_pages(api: ASGIApp, pages: ASGIApp) -> ASGIApp:
    async def chosen(scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and not scope["path"].startswith("/v1")
        await (pages if is_page else api)(scope, receive, send)

    return chosen


def _fault(errors: Sequence[Any]) -> tuple[list[str], str]:
    """Return the path of the first wrong field, as the client wrote it, and what is wrong with it.

    Of a field that may have several shapes pydantic tells the errors of each, with the shape in the path; the longest path is that of
    the shape which was meant.
    """
    field = errors[0]["loc"][:2]
    own = [error for error in errors if error["loc"][:2] == field]
    error = max(own, key=lambda error: len(error["loc"]))
    shape = re.compile(r"str|.*[^a-z_0-9].*")
    names = [str(part) for part in error["loc"][1:] if isinstance(part, int) or not shape.fullmatch(part)]
    message = "this server does not support it; leave it out" if error["type"] == "extra_forbidden" else error["msg"]
    return names, message


def _handle_errors(app: FastAPI, server: Server) -> None:
    """Answer every error in OpenAI's format."""

    def answer(request: Request, error: ApiError) -> JSONResponse:
        server.count(request, error.status)
        headers = {"Retry-After": RETRY[error.status]} if error.status in RETRY else None
        return JSONResponse(error.body, status_code=error.status, headers=headers)

    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> JSONResponse:
        return answer(request, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        names, message = _fault(error.errors())
        where = ".".join(names)
        text = f"{where}: {message}" if where else f"the body is not a JSON object: {message}"
        return answer(request, ApiError(400, text, param=names[0] if names else None, code="invalid_value"))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        text = f"{request.method} {request.url.path}: {error.detail}"
        code = "request_too_large" if error.status_code == 413 else None
        return answer(request, ApiError(error.status_code, text, code=code))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        return answer(request, ApiError(500, f"the server failed: {type(error).__name__}; see its log"))
