"""The HTTP interface: OpenAI's chat and completions, models, metrics, health, and the audience's page; used by chat_server.py."""

import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from trainlab.config import LanguagePhase
from trainlab.serve import pages, protocol
from trainlab.serve.inference_engine import Engine
from trainlab.serve.protocol import ApiError, ChatRequest, TextRequest
from trainlab.serve.work import Desk, Job, Metrics

log = logging.getLogger("uvicorn.error")
NO_BUFFER = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
JUDGED = ("/v1/chat/completions", "/v1/completions")


class Server:
    """State and handlers of one server; `engine` is None until the models are loaded."""

    def __init__(
        self, phase: LanguagePhase, run_dir: Path, load: Callable[[], Engine], failed: Callable[[Exception], None]
    ) -> None:
        self.phase, self.run_dir, self._load, self._failed = phase, run_dir, load, failed
        self.engine: Engine | None = None
        self.metrics = Metrics()
        self.desk = Desk(phase.serve.max_concurrency, self.metrics)

    def load(self) -> None:
        """Load the models (in a thread, so that /health answers meanwhile); hands an error to `failed`."""
        try:
            self.engine = self._load()
        except Exception as error:  # whatever it is, it must end the server
            self._failed(error)

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        """POST /v1/chat/completions."""
        engine = self._ready(body.model, request)
        try:
            prompt = engine.chat_ids(body.model, [message.plain() for message in body.messages])
        except Exception as error:  # chat templates reject unusual role orders with errors of several types
            raise ApiError(400, f"the chat template rejects these messages: {error}", param="messages") from None
        return await self._answer(engine, body, prompt, request, chat=True)

    async def text(self, body: TextRequest, request: Request) -> Response:
        """POST /v1/completions."""
        engine = self._ready(body.model, request)
        return await self._answer(engine, body, engine.text_ids(body.model, body.text()), request, chat=False)

    async def models(self) -> dict[str, Any]:
        """GET /v1/models."""
        names = self.engine.names if self.engine else []
        entries = [{"id": name, "object": "model", "created": 0, "owned_by": "trainlab"} for name in names]
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

    def count(self, request: Request, status: int) -> None:
        """Count a request to one of the two endpoints; unknown model names share one label."""
        path = request.url.path
        if path in JUDGED:
            self.metrics.requests.labels(getattr(request.state, "model", "unknown"), path, str(status)).inc()

    def _ready(self, model: str, request: Request) -> Engine:
        if self.engine is None:
            raise ApiError(503, "the models are still loading; try again soon", code="not_ready")
        if model not in self.engine.names:
            message = f"model {model!r} does not exist; this server has {', '.join(self.engine.names)}"
            raise ApiError(404, message, param="model", code="model_not_found")
        request.state.model = model
        return self.engine

    async def _answer(
        self, engine: Engine, body: protocol.Request, prompt: list[int], request: Request, chat: bool
    ) -> Response:
        options = body.options(self.phase.serve.max_tokens)
        if not prompt:
            raise ApiError(400, "the prompt is empty; send some text", param="prompt")
        if len(prompt) + options.max_tokens > engine.context:
            message = (
                f"{len(prompt)} prompt tokens plus {options.max_tokens} answer tokens exceed the model's context of "
                f"{engine.context}; shorten the prompt or lower max_tokens"
            )
            raise ApiError(400, message, param="messages" if chat else "prompt", code="context_length_exceeded")
        job = self.desk.start(engine, body.model, prompt, options)
        reply = protocol.Reply(body.model, len(prompt), chat)
        if body.stream:
            self.count(request, 200)
            usage = bool(body.stream_options and body.stream_options.include_usage)
            events = _events(job, reply, chat, usage)
            return StreamingResponse(events, media_type="text/event-stream", headers=NO_BUFFER)
        text = ""
        async for piece in job.pieces():
            text += piece
            if await request.is_disconnected():
                self.count(request, 499)
                return Response(status_code=499)  # nobody reads it; leaving the loop cancels the generation
        self.count(request, 200)
        return JSONResponse(reply.whole(text, job.outcome.finish, job.outcome.tokens))


async def _events(job: Job, reply: protocol.Reply, chat: bool, usage: bool) -> AsyncIterator[str]:
    """Yield the server-sent events of one answer; an error midway becomes the last event."""
    try:
        if chat:
            yield protocol.event(reply.first())
        async for piece in job.pieces():
            yield protocol.event(reply.piece(piece))
        yield protocol.event(reply.last(job.outcome.finish))
        if usage:
            yield protocol.event(reply.usage(job.outcome.tokens))
        yield protocol.event("[DONE]")
    except Exception as error:
        log.exception("generation failed")
        yield protocol.event(ApiError(500, f"generation failed: {type(error).__name__}").body)


def create_app(
    phase: LanguagePhase,
    run_dir: Path,
    load: Callable[[], Engine],
    failed: Callable[[Exception], None] = lambda _: None,
) -> FastAPI:
    """Return the application; models are loaded by `load` once the server listens, `failed` gets its error."""
    server = Server(phase, run_dir, load, failed)
    app = FastAPI(title="trainlab", lifespan=_lifespan(server), docs_url=None, redoc_url=None)
    app.add_api_route(JUDGED[0], server.chat, methods=["POST"], response_model=None)
    app.add_api_route(JUDGED[1], server.text, methods=["POST"], response_model=None)
    app.add_api_route("/v1/models", server.models, methods=["GET"])
    app.add_api_route("/metrics", server.metrics_text, methods=["GET"], response_model=None)
    app.add_api_route("/health", server.health, methods=["GET"])
    app.add_api_route("/ready", server.ready, methods=["GET"], response_model=None)
    _handle_errors(app, server)
    pages.add(app, phase, run_dir)
    return app


def _lifespan(server: Server) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=server.load, name="load", daemon=True).start()
        yield
        server.desk.close()

    return lifespan


def _handle_errors(app: FastAPI, server: Server) -> None:
    """Answer every error in OpenAI's format."""

    def answer(request: Request, error: ApiError) -> JSONResponse:
        server.count(request, error.status)
        headers = {"Retry-After": "2"} if error.status in (429, 503) else None
        return JSONResponse(error.body, status_code=error.status, headers=headers)

    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> JSONResponse:
        return answer(request, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        names = [str(part) for part in first["loc"][1:]]
        where = ".".join(names)
        text = f"{where}: {first['msg']}" if where else f"the body is not a JSON object: {first['msg']}"
        return answer(request, ApiError(400, text, param=names[0] if names else None, code="invalid_value"))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        return answer(request, ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}"))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        return answer(request, ApiError(500, f"the server failed: {type(error).__name__}; see its log"))
