"""Fit the tensors of a `WeightSource` to a model: judged by name and shape first, read second.

Comes in: a configuration, a source with Hugging Face names, the kind of model wanted. Goes out: a model
whose every parameter was read, or one error that says what does not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bertsmith.bundle.names import ARCHITECTURES, canonical_names, head_of, hugging_face_names, kind_of
from bertsmith.bundle.weights import FLOATS, list_some
from bertsmith.errors import InputError, WeightsError
from bertsmith.model.heads import KINDS
from bertsmith.model.initial import initialise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bertsmith.bundle.weights import WeightSource
    from bertsmith.config import BertConfig
    from bertsmith.model.heads import BertModel

__all__ = ["extra_tensors", "fit", "published_config", "split_names", "tensors_of"]


def fit(
    config: BertConfig,
    source: WeightSource,
    kind: str | None = None,
    *,
    drop: Sequence[str] = (),
    fresh_head: bool = False,
    seed: int = 0,
) -> BertModel:
    """Build a model of a kind (the file's own where none is named) and read its weights.

    Tensors of heads that this kind has not are left out; so are those whose names begin with one of
    `drop`. With `fresh_head` a missing head or pooler is initialised instead of refused, and so is a head of another
    size.
    """
    try:
        named = canonical_names(name for name in source.tensors if not name.startswith(tuple(drop)))
    except WeightsError as error:
        raise WeightsError(f"{source.path}: {error}") from error
    kind = kind or kind_of(named, config.architectures)
    if kind not in KINDS:
        raise InputError(f"{kind!r} is not a kind of model; there are {', '.join(KINDS)}")
    pooler = None if kind != "encoder" else any(name.startswith("bert.pooler.") for name in named)
    with torch.device("meta"):
        model = KINDS[kind](config, pooler=pooler)
    expected = _expected_shapes(model)
    fresh = _unusable_heads(expected, named, source) if fresh_head else set()
    _judge(source, named, {name: shape for name, shape in expected.items() if name not in fresh}, kind)
    state = {
        name: _read(source, named, hugging_face_names(name))
        for name in model.state_dict()
        if not fresh.intersection(hugging_face_names(name))
    }
    _materialise(model, state, seed)
    return model.eval()


def published_config(model: BertModel) -> BertConfig:
    """The configuration to store beside a model: with its architecture, and labels that fit the head."""
    changes: dict[str, object] = {"architectures": [ARCHITECTURES[model.kind]], "dtype": "float32"}
    if model.kind == "span" and model.config.num_labels != 2:  # transformers sizes the span head by labels
        changes |= {"num_labels": 2, "id2label": None}
    return model.config.derive(**changes)


def tensors_of(model: BertModel) -> dict[str, torch.Tensor]:
    """A model's parameters under Hugging Face names, `qkv` cut in three; the inverse of `fit`."""
    extras = extra_tensors(model)
    return split_names({name: tensor for name, tensor in model.state_dict().items() if name not in extras})


def extra_tensors(model: BertModel) -> dict[str, torch.Tensor]:
    """Those for which Hugging Face's layout has no place: the pooling of segments."""
    return {name: tensor for name, tensor in model.state_dict().items() if name.startswith("segments.")}


def split_names(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors under our parameter names (weights, or gradients) to the same under Hugging Face names."""
    tensors: dict[str, torch.Tensor] = {}
    for ours, tensor in state.items():
        names = hugging_face_names(ours)
        tensors.update(zip(names, tensor.chunk(len(names)), strict=True))
    return tensors


def _expected_shapes(model: BertModel) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors_of(model).items()}


def _unusable_heads(
    expected: Mapping[str, tuple[int, ...]], named: Mapping[str, str], source: WeightSource
) -> set[str]:
    """What may be new in a fresh head: heads and pooler that the file has nothing of, and heads of another size."""
    usable = {head_of(name) for name in named}
    for name, shape in expected.items():
        if name in named and source.tensors[named[name]].shape != shape and not name.startswith("bert."):
            usable.discard(head_of(name))
    return {name for name in expected if head_of(name) is not None and head_of(name) not in usable}


def _judge(source: WeightSource, named: Mapping[str, str], expected: Mapping[str, tuple[int, ...]], kind: str) -> None:
    """Refuse a source that does not hold exactly what is expected."""
    missing = [name for name in expected if name not in named]
    if missing:
        raise WeightsError(f"{source.path}: no tensor {list_some(missing)}, which a model of kind '{kind}' needs")
    decoder = source.tensors.get("cls.predictions.decoder.weight")
    words = expected["bert.embeddings.word_embeddings.weight"]
    if decoder is not None and decoder.shape != words:
        raise WeightsError(f"{source.path}: the decoder is {decoder.shape}, the embedding it is tied to {words}")
    extra = [named[name] for name in named if name not in expected and head_of(name) is None]
    if extra:
        raise WeightsError(
            f"{source.path}: the configuration has no place for {list_some(extra)}; "
            "if they are not part of the model, drop them by name (convert --drop PREFIX)"
        )
    for name, shape in expected.items():
        info = source.tensors[named[name]]
        if info.shape != shape:
            raise WeightsError(f"{source.path}: {named[name]} is {info.shape}, the configuration asks for {shape}")
        if info.dtype not in FLOATS:
            raise WeightsError(f"{source.path}: {named[name]} is of type {info.dtype}, not a float")


def _read(source: WeightSource, named: Mapping[str, str], parts: Sequence[str]) -> torch.Tensor:
    """One parameter of ours, in float32 and in memory of its own."""
    tensors = [source.read(named[part]) for part in parts]
    joined = tensors[0].clone() if len(tensors) == 1 else torch.cat(tensors)
    return joined.to(torch.float32).contiguous()


def _materialise(model: BertModel, state: Mapping[str, torch.Tensor], seed: int) -> None:
    """Put weights into a model that has none yet; modules without any are initialised."""
    model.load_state_dict(state, strict=False, assign=True)
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        parameters = dict(module.named_parameters(recurse=False))
        if any(parameter.is_meta for parameter in parameters.values()):
            module.to_empty(device="cpu", recurse=False)
            initialise(module, std=model.config.initializer_range, generator=generator)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
