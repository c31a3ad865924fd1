"""`trainlab serve` for an image classifier: the Open Inference Protocol V2 over HTTP; called by recipes/resnet.py.

Models: `base` (the untrained network of the run's seed) and `tuned` (best_model/). `/`, `/report`, `/health`, `/ready` and
`/metrics` are those of the language server.
"""

import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from trainlab import __version__
from trainlab.config import ResnetPhase
from trainlab.recipes import image_network, open_inference
from trainlab.recipes.image_data import normalize
from trainlab.recipes.open_inference import InferRequest, Refused
from trainlab.serve import web
from trainlab.serve.chat_server import listen, run

BYTES_PER_PIXEL = 16  # of a body: a number, its comma and the brackets of nested rows, or an indented line
OTHER_BYTES = 2**16  # of a body: all but the pixels
MAX_BYTES = 32 * 2**20
"""Of the pixels of a body: each of phase.serve.max_concurrency is read into the server's memory."""
LOADING_MAX_BYTES = 32 * 2**20  # while the size of the images is not known yet


class Engine:
    """Both networks and what best_model/config.json says; thread-safe."""

    def __init__(self, phase: ResnetPhase, run_dir: Path) -> None:
        tuned, self.config = image_network.load(run_dir / "best_model")
        base = image_network.untrained(
            tuned.settings["channels"], tuned.settings["classes"], phase.vision.width, phase.seed
        )
        self.device = torch.device("cuda") if torch.cuda.is_available() and phase.serve.gpus else torch.device("cpu")
        self.models = {"base": base.eval().to(self.device), "tuned": tuned.eval().to(self.device)}
        self._turn = threading.Lock()  # torch already spreads one request over the cores

    @torch.no_grad()
    def infer(self, name: str, pixels: Any) -> Any:
        """Return probabilities (N, classes) float32 for images (N, channels, size, size) uint8; numpy arrays."""
        inputs = normalize(torch.from_numpy(pixels).to(self.device), self.config["mean"], self.config["std"])
        with self._turn:
            return self.models[name](inputs).float().softmax(dim=1).cpu().numpy()

    def metadata(self, name: str) -> dict[str, Any]:
        """Return the protocol's metadata of a model."""
        return open_inference.metadata(name, self.config["channels"], self.config["image_size"], self.config["classes"])


class Server:
    """State and handlers; `engine` is None until the networks are loaded."""

    def __init__(self, phase: ResnetPhase) -> None:
        self.phase, self.active = phase, 0
        self.engine: Engine | None = None
        self.registry = CollectorRegistry()
        own, names = self.registry, ["model", "status"]
        self.requests = Counter("trainlab_requests", "Requests by model and HTTP status.", names, registry=own)
        self.images = Counter("trainlab_images", "Images classified, by model.", ["model"], registry=own)
        self.seconds = Histogram("trainlab_request_seconds", "Time to the answer.", ["model"], registry=own)

    def ready(self, name: str | None = None) -> Engine:
        """Return the engine; raises Refused while it is loading and for a model that does not exist."""
        if self.engine is None:
            raise Refused(503, "the models are still loading; try again soon")
        if name is not None and name not in self.engine.models:
            raise Refused(404, f"model {name!r} does not exist; this server has {', '.join(self.engine.models)}")
        return self.engine

    def max_bytes(self) -> int:
        """Return how long a body may be: as many images as one request may have, and MAX_BYTES where they are large."""
        if self.engine is None:
            return LOADING_MAX_BYTES
        config = self.engine.config
        image = config["channels"] * config["image_size"] ** 2 * BYTES_PER_PIXEL
        return int(OTHER_BYTES + max(image, min(open_inference.MAX_IMAGES * image, MAX_BYTES)))

    async def infer(self, name: str, body: InferRequest) -> dict[str, Any]:
        """POST /v2/models/NAME/infer."""
        engine = self.ready(name)
        if self.active >= self.phase.serve.max_concurrency:
            limit = self.phase.serve.max_concurrency
            raise Refused(429, f"{limit} requests are in progress (phase.serve.max_concurrency); try again soon")
        self.active += 1
        try:
            body.wanted()
            with self.seconds.labels(name).time():
                pixels = body.pixels(engine.config["channels"], engine.config["image_size"])
                shares = await run_in_threadpool(engine.infer, name, pixels)
        finally:
            self.active -= 1
        self.requests.labels(name, "200").inc()
        self.images.labels(name).inc(len(shares))
        return open_inference.response(name, body, shares, engine.config["labels"])

    def health(self) -> JSONResponse:
        """Readiness, both the protocol's and the language server's."""
        names = list(self.engine.models) if self.engine else []
        return JSONResponse({"ready": bool(names), "models": names}, status_code=200 if names else 503)


def create_app(phase: ResnetPhase, run_dir: Path, failed: Callable[[Exception], None] = lambda __: None) -> FastAPI:
    """Return the application; the networks are loaded once it listens, `failed` gets a loading error."""
    server = Server(phase)

    def load() -> None:
        began = time.monotonic()
        try:
            server.engine = Engine(phase, run_dir)
            print(f"trainlab: serving base, tuned, loaded in {time.monotonic() - began:.0f} s", flush=True)
        except Exception as error:  # whatever it is, it must end the server
            failed(error)

    @asynccontextmanager
    async def lifespan(__: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=load, name="load", daemon=True).start()
        yield

    app = FastAPI(title="trainlab", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(web.BodyLimit, limit=server.max_bytes)
    _add_protocol(app, server)
    _handle_errors(app, server)
    web.add_report(app, run_dir, ("/", "/report"))
    return app


def _add_protocol(app: FastAPI, server: Server) -> None:
    @app.get("/v2")
    async def about() -> dict[str, Any]:
        return {"name": "trainlab", "version": __version__, "extensions": []}

    @app.get("/v2/health/live")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v2/health/ready", response_model=None)
    @app.get("/ready", response_model=None)
    async def ready() -> JSONResponse:
        return server.health()

    @app.get("/v2/models/{name}")
    async def metadata(name: str) -> dict[str, Any]:
        return server.ready(name).metadata(name)

    @app.get("/v2/models/{name}/ready")
    async def model_ready(name: str) -> dict[str, Any]:
        server.ready(name)
        return {"name": name, "ready": True}

    @app.get("/v1/models")
    async def names() -> dict[str, Any]:  # of the language server; playbooks/verify.yml looks here for any recipe
        models = list(server.engine.models) if server.engine else []
        return {"object": "list", "data": [{"id": name, "object": "model"} for name in models]}

    @app.get("/metrics", response_model=None)
    async def metrics() -> Response:
        return Response(generate_latest(server.registry), media_type=CONTENT_TYPE_LATEST)

    app.add_api_route("/v2/models/{name}/infer", server.infer, methods=["POST"])


def _handle_errors(app: FastAPI, server: Server) -> None:
    """Answer every error in the protocol's format: {"error": text}."""

    def answer(request: Request, error: Refused) -> JSONResponse:
        if request.url.path.endswith("/infer"):
            name = request.path_params.get("name", "")
            known = server.engine is not None and name in server.engine.models
            server.requests.labels(name if known else "unknown", str(error.status)).inc()
        headers = {"Retry-After": "2"} if error.status in (429, 503) else None
        return JSONResponse(error.body, status_code=error.status, headers=headers)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        return answer(request, error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        text = "the body is not a JSON object; send one with Content-Type: application/json"
        return answer(request, Refused(400, f"{where}: {first['msg']}" if where else text))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        return answer(request, Refused(error.status_code, f"{request.method} {request.url.path}: {error.detail}"))

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        return answer(request, Refused(500, f"the server failed: {type(error).__name__}; see its log"))


def serve(phase: ResnetPhase, run_dir: Path, host: str, port: int) -> NoReturn:
    """Serve until SIGTERM or SIGINT; raises UserError when the address is taken or the network cannot be loaded."""
    listener = listen(host, port)
    run(lambda failed: create_app(phase, run_dir, failed), listener)
