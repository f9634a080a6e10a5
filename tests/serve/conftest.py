"""What the tests of the service share: small models, an application of them, and servers on real sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from starlette.testclient import TestClient

import bertsmith
from bertsmith.infer.programs import EmbedProgram
from bertsmith.serve import running
from bertsmith.serve.app import SETTINGS_VARIABLE, create_app
from bertsmith.serve.served import Served, ServedModels
from bertsmith.serve.settings import ServeSettings
from serve.page_models import SMALL, write_small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fastapi import FastAPI

    from bertsmith.infer.engine import Engine

SECONDS = 30  # that anything may take here; what takes longer hangs


class Gate:
    """Holds the model up until it is opened; `reached` says that it was entered."""

    def __init__(self) -> None:
        self.opened, self.reached = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.opened.wait(SECONDS)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of random weights for every kind of model."""
    root = tmp_path_factory.mktemp("models")
    return {name: write_small(root / name, name) for name in SMALL}


@pytest.fixture(scope="session")
def small(folders: dict[str, Path]) -> dict[str, Engine]:
    """The library's own view of the same models: what the service says is compared with it."""
    return {name: bertsmith.load(str(folder)) for name, folder in folders.items()}


@pytest.fixture(scope="session")
def make_app(small: dict[str, Engine]) -> Callable[..., FastAPI]:
    """A service of all small models, or of those named."""

    def make(*names: str, **settings: Any) -> FastAPI:
        chosen = {name: small[name] for name in names or small}
        models = ServedModels([Served(name, engine) for name, engine in chosen.items()])
        return create_app(ServeSettings(models=tuple(chosen), **settings), models)

    return make


@pytest.fixture(scope="module")
def client(make_app: Callable[..., FastAPI]) -> Iterator[TestClient]:
    """Asks a service of all small models."""
    with TestClient(make_app(), raise_server_exceptions=False) as asking:
        yield asking


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Gate]]:
    """Hold vectors up, from the moment that it is called."""
    made: list[Gate] = []
    forward = EmbedProgram.forward

    def hold() -> Gate:
        one = Gate()
        made.append(one)

        def held(self: EmbedProgram, batch: Any) -> Any:
            one.wait()
            return forward(self, batch)

        monkeypatch.setattr(EmbedProgram, "forward", held)
        return one

    yield hold
    for one in made:
        one.opened.set()


@contextmanager
def listening(app: FastAPI, *, sending: float = 10.0) -> Iterator[int]:
    """A port of this machine on which an application answers as `bertsmith serve` runs it."""
    settings = ServeSettings(models=("any",), limits={"sending": sending})
    before = os.environ.get(SETTINGS_VARIABLE)
    os.environ[SETTINGS_VARIABLE] = settings.model_dump_json()
    running._seconds.cache_clear()
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=running.PunctualProtocol, ws="none", log_level="critical")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()  # who asks before it is ready waits in the listener's queue
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(SECONDS)
        os.environ.pop(SETTINGS_VARIABLE)
        if before is not None:
            os.environ[SETTINGS_VARIABLE] = before
        running._seconds.cache_clear()
        assert not thread.is_alive()


def free_port() -> int:
    """That nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def command(*arguments: object, **environment: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`bertsmith serve` as a process of its own, once it answers, and its port."""
    port = free_port()
    line = [sys.executable, "-m", "bertsmith", "serve", *map(str, arguments), "--port", str(port)]
    around = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    process = subprocess.Popen(line, env=around, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_health(process, port)
        yield process, port
    finally:
        process.terminate()
        try:
            process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise


def wait_for_health(process: subprocess.Popen[str], port: int) -> None:
    """Until a server answers."""
    deadline = time.monotonic() + 3 * SECONDS
    while True:
        assert process.poll() is None, process.communicate()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=SECONDS):
                return
        except OSError:
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)


def until(condition: Callable[[], object]) -> None:
    """Wait for something that must come."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)
