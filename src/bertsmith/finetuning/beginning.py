"""The model that a run begins with: its head kept or new, top layers begun anew, lower ones left as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from bertsmith.bundle.folder import open_model, read_task
from bertsmith.bundle.names import canonical_names, kind_of
from bertsmith.bundle.resolve import find_model, load_bundle
from bertsmith.errors import ConfigError, TokenizerError
from bertsmith.model.initial import initialise
from bertsmith.tasks.loading import put_extras

if TYPE_CHECKING:
    from bertsmith.bundle.folder import Bundle
    from bertsmith.finetuning.request import Request
    from bertsmith.finetuning.settings import Settings
    from bertsmith.model.heads import BertModel
    from bertsmith.tasks.task import Task

__all__ = ["begin_model"]

_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
_HEADS = ("classifier.", "qa_outputs.")
_HEAD_WEIGHTS = tuple(f"{head}weight" for head in _HEADS)


def begin_model(request: Request, task: Task[Any]) -> tuple[Bundle, list[str]]:
    """The model with a head for the task, its own where it has the same labels, else a new one; and remarks on it."""
    settings, name = request.settings, request.model
    changes: dict[str, object] = {"problem_type": task.problem_type}
    if settings.dropout is not None:
        changes |= dict.fromkeys(_DROPOUTS, settings.dropout)
    if task.num_outputs is not None:
        changes |= {"num_labels": task.num_outputs, "id2label": None}
    else:
        changes["id2label"] = dict(enumerate(task.labels))
    keeps_head = _knows_task(name, task)
    drop = () if keeps_head else _HEADS
    bundle = load_bundle(name, task.head, fresh_head=True, drop=drop, seed=settings.seed, **changes)
    others = torch.Generator().manual_seed(hash((settings.seed, 1)) & (2**63 - 1))  # no two begin with the same numbers
    if bundle.tokenizer is None:
        raise TokenizerError(f"{name}: has no tokenizer: neither tokenizer.json nor vocab.txt")
    task.attach(bundle.model, others)
    if keeps_head:
        put_extras(bundle)  # the rest of the head
    _change_layers(bundle.model, settings, others)
    if not keeps_head:
        return bundle, []
    classes = f", with the classes {', '.join(task.labels):.200}" if task.labels else ""
    return bundle, [f"{name}: its head for {task.kind}{classes} is kept, and trained further"]


def _knows_task(name: str, task: Task[Any]) -> bool:
    """Whether the model has a head of this kind of task, with these classes."""
    folder, packaged = find_model(name)
    if packaged is not None:
        return False
    config, source = open_model(folder)
    weight = next((info for name, info in source.tensors.items() if name in _HEAD_WEIGHTS), None)
    if weight is None or weight.shape[:1] != (task.num_outputs or len(task.labels),):
        return False
    record = read_task(folder)
    if record is None:  # from elsewhere: numbers and choices have heads of one shape, and other names
        same_kind = kind_of(canonical_names(source.tensors), config.architectures) == task.head
    else:
        same_kind = record["kind"] == task.kind
    return same_kind and (not task.labels or tuple(config.id2label.values()) == task.labels)


def _change_layers(model: BertModel, settings: Settings, generator: torch.Generator) -> None:
    """Begin some anew and freeze others, as the settings say; no layer may be both."""
    frozen, fresh, depth = settings.freeze, settings.fresh_layers, len(model.encoder.layers)
    _renew(model, fresh, generator)
    _freeze(model, frozen)
    if fresh and (depth if frozen == -1 else frozen) + fresh > depth:
        raise ConfigError(
            f"freeze: {frozen} and fresh_layers: {fresh} of {depth} layers would keep new weights untrained"
        )


def _renew(model: BertModel, num_layers: int, generator: torch.Generator) -> None:
    """Begin the top layers, and the pooler with them, anew."""
    layers = list(model.encoder.layers)
    if num_layers > len(layers):
        raise ConfigError(f"fresh_layers: {num_layers}, but the model has {len(layers)} layers")
    for module in [*layers[len(layers) - num_layers :], *([model.encoder.pooler] if num_layers else [])]:
        if module is not None:
            initialise(module, std=model.config.initializer_range, generator=generator)


def _freeze(model: BertModel, num_layers: int) -> None:
    """Keep the embeddings and the first layers as they are; -1 keeps all layers."""
    layers = list(model.encoder.layers)
    if num_layers > len(layers):
        raise ConfigError(f"freeze: {num_layers}, but the model has {len(layers)} layers")
    if num_layers:
        for module in (model.encoder.embeddings, *layers[: None if num_layers == -1 else num_layers]):
            module.requires_grad_(requires_grad=False)
