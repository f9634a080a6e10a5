"""The application: models, the batcher, the routes, the page."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from uvicorn.config import STARTUP_FAILURE

from bertsmith.errors import BertsmithError, ConfigError
from bertsmith.model.memory import share_freed_memory
from bertsmith.serve.answers import error_answer, name_errors
from bertsmith.serve.batching import Batcher
from bertsmith.serve.guard import Guard
from bertsmith.serve.metrics import Metrics
from bertsmith.serve.routes import QUEUED, routes
from bertsmith.serve.served import load_models
from bertsmith.serve.service import Service
from bertsmith.serve.settings import ServeSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bertsmith.serve.served import ServedModels

__all__ = ["SETTINGS_VARIABLE", "app_from_environment", "create_app", "make_app"]

SETTINGS_VARIABLE = "BERTSMITH_SERVE"
_PAGE = Path(__file__).parent / "page"
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def make_app(settings: ServeSettings) -> FastAPI:
    """The application of a process that does nothing else."""
    share_freed_memory()
    app = create_app(settings)
    gc.collect()
    gc.freeze()  # no later collection looks at all that torch has, which would stop all threads for a third of a second
    return app


def create_app(settings: ServeSettings, models: ServedModels | None = None) -> FastAPI:
    """The whole service as one ASGI application; `models` where they are loaded already."""
    models = models or load_models(settings.models, int8=settings.int8)
    metrics = Metrics()
    limits = settings.limits
    batcher = Batcher(
        device=models.all[0].engine.device, workers=settings.threads, max_wait=limits.wait, max_tokens=limits.tokens
    )

    def ran(sequences: int, tokens: int, seconds: float) -> None:
        metrics.ran(sequences, tokens, seconds)
        metrics.standing(batcher.waiting_tokens, batcher.speed)  # for other workers, whom nobody may ask

    batcher.on_batch = ran
    service = Service(models, batcher, settings.limits, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        del app
        batcher.start()
        await _warm_up(service)
        try:
            yield
        finally:
            await asyncio.get_running_loop().run_in_executor(None, batcher.close)
            service.close()

    app = FastAPI(
        title="Bertsmith",
        version=version("bertsmith"),
        description="Vectors, fill-in, classes, entities and answers from BERT models.",
        lifespan=lifespan,
        docs_url=None,  # its page would be fetched from elsewhere
        redoc_url=None,
    )
    name_errors(app)
    app.state.service = service
    app.include_router(routes)
    _add_page(app)

    @app.head("/health", include_in_schema=False)
    @app.get("/health", summary="Whether it is there")
    async def health() -> Any:
        return {}

    @app.get("/metrics", summary="Figures for Prometheus", response_class=Response)
    async def show_metrics() -> Response:
        metrics.standing(batcher.waiting_tokens, batcher.speed)
        return Response(metrics.shown(), media_type="text/plain; version=0.0.4; charset=utf-8")

    if settings.token is not None:
        _declare_token(app)
    app.add_middleware(Guard, limits=limits, metrics=metrics, token=settings.token, batcher=batcher, queued=QUEUED)
    if settings.cors:  # around the guard: a browser asks without a token whether it may ask, and reads refusals
        app.add_middleware(CORSMiddleware, allow_origins=list(settings.cors), allow_methods=["GET", "POST"],
                           allow_headers=["*"], expose_headers=["retry-after"])  # fmt: skip
    return app


def _declare_token(app: FastAPI) -> None:
    """In OpenAPI: all but `/health` want one."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        schema = plain()
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]
        for operation in (each for path in schema["paths"].values() for each in path.values()):
            operation["responses"].setdefault("401", {"description": "A bearer token is needed"})
        schema["paths"]["/health"]["get"]["security"] = []
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def app_from_environment() -> FastAPI:
    """For worker processes: the settings come in an environment variable. One that cannot start says why and ends."""
    text = os.environ.get(SETTINGS_VARIABLE)
    if text is None:
        raise ConfigError(f"{SETTINGS_VARIABLE} is not set; start the service with bertsmith serve")
    try:
        return make_app(ServeSettings.model_validate_json(text))
    except BertsmithError as error:
        sys.stderr.write(f"bertsmith: {error}\n")
        sys.exit(STARTUP_FAILURE)


async def _warm_up(service: Service) -> None:
    """A batch through every model, so that the first request is not the slow one and the speed is known."""
    for served in service.models.all:
        program = served.embedder(True)
        text = " ".join(["a"] * (program.max_length // 2))
        items = program.encode([text] * max(1, service.batcher.budget // program.max_length))
        await service.batcher.run(program, items)


def _add_page(app: FastAPI) -> None:
    """The files of the page, read once; no other file can be had."""
    files = {path.name: path.read_bytes() for path in _PAGE.glob("*.*") if path.suffix in _KINDS}

    def file(name: str) -> Response:
        if name not in files:
            return error_answer(404, "there is no such page", kind="not_found")
        return Response(files[name], media_type=_KINDS[Path(name).suffix])

    @app.head("/", include_in_schema=False)  # as those who watch a service ask
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return file(name)
