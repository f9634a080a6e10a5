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
    from bertsmith.jobs.embed import embed, whiten
    from bertsmith.jobs.evaluate import evaluate
    from bertsmith.jobs.fill import fill
    from bertsmith.jobs.finetune import finetune, finetune_many
    from bertsmith.jobs.finetune import make_request as finetune_request
    from bertsmith.jobs.glue import glue
    from bertsmith.jobs.inspect import inspect
    from bertsmith.jobs.models import models
    from bertsmith.jobs.predict import predict
    from bertsmith.jobs.pretrain import make_request as pretrain_request
    from bertsmith.jobs.pretrain import pretrain
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
    "evaluate": "jobs.evaluate",
    "fill": "jobs.fill",
    "finetune": "jobs.finetune",
    "finetune_many": "jobs.finetune",
    "finetune_request": "jobs.finetune:make_request",
    "glue": "jobs.glue",
    "inspect": "jobs.inspect",
    "load": "infer.engine",
    "load_bundle": "bundle.resolve",
    "models": "jobs.models",
    "named_size": "config",
    "predict": "jobs.predict",
    "pretrain": "jobs.pretrain",
    "pretrain_request": "jobs.pretrain:make_request",
    "whiten": "jobs.embed",
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
    "evaluate",
    "fill",
    "finetune",
    "finetune_many",
    "finetune_request",
    "glue",
    "inspect",
    "load",
    "load_bundle",
    "models",
    "named_size",
    "predict",
    "pretrain",
    "pretrain_request",
    "whiten",
    "write_bundle",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertsmith' has no attribute {name!r}")
    module, _, other = _HOMES[name].partition(":")
    return getattr(import_module(f"bertsmith.{module}"), other or name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
