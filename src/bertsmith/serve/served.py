"""The loaded models of a service: their names, what each can do, and the programs that requests share.

Work is batched by program, so two requests that ask the same must get the same object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bertsmith.errors import InputError
from bertsmith.infer.engine import load
from bertsmith.infer.programs import AttentionProgram
from bertsmith.model.heads import MaskedLM, PreTrainingModel
from bertsmith.serve.bodies import MOST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bertsmith.infer.engine import Engine
    from bertsmith.infer.programs import EmbedProgram, FillProgram, NeighboursProgram, TaskProgram

__all__ = ["ATTENTION_TOKENS", "NoSuchModelError", "Served", "ServedModels", "load_models"]

ATTENTION_TOKENS = 128


class NoSuchModelError(InputError):
    """A request names a model that is not loaded, or asks for what none can do."""


@dataclass(frozen=True)
class Served:
    """A model under a name."""

    name: str
    engine: Engine
    embedder: Callable[[bool], EmbedProgram] = field(init=False)
    filler: Callable[[int], FillProgram] = field(init=False)
    finder: Callable[[], NeighboursProgram] = field(init=False)
    predictor: Callable[[], TaskProgram] = field(init=False)
    attention: AttentionProgram = field(init=False)

    def __post_init__(self) -> None:
        engine = self.engine
        programs = {
            "embedder": lru_cache(lambda normalize: engine.embedder(normalize=normalize)),
            "filler": lru_cache(maxsize=128)(engine.filler),
            "finder": lru_cache(lambda: engine.finder(MOST)),  # one for all requests: it keeps a table of its own
            "predictor": lru_cache(engine.predictor),
            "attention": AttentionProgram(
                engine.model, engine.tokenizer, min(ATTENTION_TOKENS, engine.model.config.max_position_embeddings)
            ),
        }
        for name, program in programs.items():
            object.__setattr__(self, name, program)

    @property
    def can(self) -> list[str]:
        """What it can be asked."""
        task = self.engine.kind_of_task
        found = ["embed", "similarity", "rerank", "tokenize", "attention", "neighbours"]
        if isinstance(self.engine.model, MaskedLM | PreTrainingModel):
            found.append("fill")
        return found if task is None else [task, *found]

    @property
    def max_length(self) -> int:
        """How many pieces of a text it reads: for its task, where it has one."""
        engine = self.engine
        return engine.max_length if engine.kind_of_task is None else engine.task.options.max_length

    @property
    def judges_pairs(self) -> bool:
        """Whether it gives a pair of texts one score: a number, or the share of the second of two classes."""
        engine = self.engine
        return engine.kind_of_task == "regress" or (engine.kind_of_task == "classify" and len(engine.task.labels) == 2)

    def about(self) -> dict[str, Any]:
        """What `/info` says of it."""
        engine = self.engine
        config = engine.model.config
        return {
            "name": self.name,
            "can": self.can,
            "kind": engine.model.kind,
            "task": engine.kind_of_task,
            "labels": [] if engine.kind_of_task is None else list(engine.task.labels),
            "pooling": engine.pooling.pool,
            "layers": config.num_hidden_layers,
            "heads": config.num_attention_heads,
            "width": self.embedder(True).width,
            "max_length": self.max_length,
            "mask_token": engine.tokenizer.mask_token,
        }


class ServedModels:
    """All of them, in the order given."""

    def __init__(self, models: Sequence[Served]) -> None:
        names = [model.name for model in models]
        if twice := {name for name in names if names.count(name) > 1}:
            raise InputError(f"two models are called {', '.join(sorted(twice))}; give one another name: OTHER=MODEL")
        self.all = list(models)

    def find(self, ability: str, name: str | None) -> Served:
        """The model of a name, or the first that can do something; for vectors, one that was not made for a task."""
        if name is not None:
            found = next((model for model in self.all if model.name == name), None)
            if found is None:
                raise NoSuchModelError(f"no model is called {name!r:.100}; there are {', '.join(self.names)}")
            if ability not in found.can:
                raise NoSuchModelError(f"the model {name} cannot {ability}; it can {', '.join(found.can)}")
            return found
        able = [model for model in self.all if ability in model.can]
        if not able:
            raise NoSuchModelError(f"none of the models can {ability}; there are {', '.join(self.names)}")
        if ability == "rerank":
            return min(able, key=_unfit_to_rerank)
        return min(able, key=lambda model: ability in ("embed", "similarity") and model.engine.kind_of_task is not None)

    def find_one_of(self, abilities: Sequence[str], name: str | None) -> Served:
        """The first that can do one of several things."""
        found = [model for model in self.all if set(abilities) & set(model.can) and name in (None, model.name)]
        return found[0] if found else self.find(abilities[0], name)

    @property
    def names(self) -> list[str]:
        """As they are called in requests."""
        return [model.name for model in self.all]


def _unfit_to_rerank(model: Served) -> int:
    """A model of numbers first, then those that were made for no task."""
    return {"regress": 0, None: 1}.get(model.engine.kind_of_task, 2)


def load_models(named: Sequence[str], *, int8: bool = False) -> ServedModels:
    """Open models, each MODEL or NAME=MODEL; without a name they are called by the last part of the path."""
    models = []
    for text in named:
        name, equals, model = text.partition("=")
        if not equals or "/" in name:
            name, model = text.rstrip("/").rsplit("/", 1)[-1], text
        if not name or not model:
            raise InputError(f"{text}: expected MODEL or NAME=MODEL")
        engine = load(model, int8=int8)
        engine.embedder()  # refuses here what it cannot do
        models.append(Served(name, engine))
    return ServedModels(models)
