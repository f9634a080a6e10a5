"""The models behind the page's tests, and a server with all of them.

The packaged real ones where they are installed, and one small model of random weights for each kind of task: what
the page shows of those is compared with what the library says.
"""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

import bertsmith
from bertsmith.bundle.catalogue import PACKAGED
from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.model.heads import build
from bertsmith.serve.app import create_app
from bertsmith.serve.served import Served, ServedModels
from bertsmith.serve.settings import ServeSettings
from finetuning.small_tasks import SHAPE, make_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bertsmith.infer.engine import Engine

REAL = ("minilm", "albert-tiny-zh")
# name: kind of model, its classes, its task. The order is that of the server: the first that can do it is asked.
SMALL: dict[str, tuple[str, tuple[str, ...], dict[str, Any] | None]] = {
    "filler": ("mlm", (), None),
    "critic": ("classification", ("bad", "dull", "good"), {"kind": "classify", "options": {"max_length": 48}}),
    "grader": ("classification", ("value",), {"kind": "regress", "options": {"max_length": 48}}),
    "finder": ("tagging", ("O", "B-PER", "I-PER", "B-LOC"), {"kind": "tag", "options": {"max_length": 48}}),
    "reader": ("span", (), {"kind": "answer", "options": {"max_length": 64, "max_answer": 6}}),
    "chooser": ("choice", (), {"kind": "choose", "options": {"max_length": 48}}),
}


def write_small(folder: Path, name: str) -> Path:
    """A model folder of random weights that does one of the tasks."""
    kind, labels, task = SMALL[name]
    config = SHAPE.derive(id2label=dict(enumerate(labels))) if labels else SHAPE
    write_bundle(folder, Bundle(build(config, kind, seed=5), make_tokenizer(), 64, task), source="a test")
    return folder


def load_all(folder: Path) -> dict[str, Engine]:
    """Every model by the name that the page shows; the small ones are written to `folder` first."""
    installed = [packaged.name for packaged in PACKAGED if packaged.name in REAL and packaged.find() is not None]
    engines = {name: bertsmith.load(name) for name in installed}
    return engines | {name: bertsmith.load(str(write_small(folder / name, name))) for name in SMALL}


@contextmanager
def serving(engines: dict[str, Engine], token: str | None = None) -> Iterator[str]:
    """The address of a server that answers for these models until the block ends."""
    models = ServedModels([Served(name, engine) for name, engine in engines.items()])
    app = create_app(ServeSettings(models=tuple(engines), token=token), models)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()  # who asks before it is ready waits in the listener's queue
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
