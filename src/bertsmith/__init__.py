"""Bertsmith: BERT, whole, in Python on PyTorch.

>>> import bertsmith
>>> model = bertsmith.load("minilm")            # a folder, a local name or a hub name
>>> vectors = model.embed(["one text", "another"])

Importing this costs nothing: torch is loaded when something needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertsmith.bundle.folder import Bundle, write_bundle
    from bertsmith.bundle.resolve import load_bundle
    from bertsmith.config import BertConfig, named_size
    from bertsmith.errors import BertsmithError
    from bertsmith.infer.engine import Engine, load
    from bertsmith.jobs.convert import convert
    from bertsmith.jobs.embed import embed
    from bertsmith.jobs.fill import fill
    from bertsmith.jobs.inspect import inspect
    from bertsmith.jobs.models import models
    from bertsmith.jobs.pretrain import make_request, pretrain
    from bertsmith.vocab.tokenizer import Tokenizer

__version__ = "0.1.0"

_HOMES = {
    "BertConfig": "config",
    "BertsmithError": "errors",
    "Bundle": "bundle.folder",
    "Engine": "infer.engine",
    "Tokenizer": "vocab.tokenizer",
    "convert": "jobs.convert",
    "embed": "jobs.embed",
    "fill": "jobs.fill",
    "inspect": "jobs.inspect",
    "load": "infer.engine",
    "load_bundle": "bundle.resolve",
    "make_request": "jobs.pretrain",
    "models": "jobs.models",
    "named_size": "config",
    "pretrain": "jobs.pretrain",
    "write_bundle": "bundle.folder",
}

__all__ = [
    "BertConfig",
    "BertsmithError",
    "Bundle",
    "Engine",
    "Tokenizer",
    "convert",
    "embed",
    "fill",
    "inspect",
    "load",
    "load_bundle",
    "make_request",
    "models",
    "named_size",
    "pretrain",
    "write_bundle",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertsmith' has no attribute {name!r}")
    return getattr(import_module(f"bertsmith.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
