"""Fold the first PyTorch port of Chinese ALBERT into a plain BERT, exactly.

That port keeps a factorised embedding (V × e, then e × H) and one layer that every step shares. A plain
BERT with the product as its embedding and the layer copied computes the same; the decoder is tied to the
product too (the decoder that such files store was never trained).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bertsmith.bundle.weights import FLOATS, TensorInfo
from bertsmith.config import BertConfig
from bertsmith.errors import WeightsError

if TYPE_CHECKING:
    import torch

    from bertsmith.bundle.weights import WeightSource

__all__ = ["FoldedAlbert", "fold_config", "is_albert"]

_WORD = "bert.embeddings.word_embeddings.weight"
_PROJECTION = "bert.embeddings.word_embeddings_2.weight"
_SHARED = "bert.encoder.layer_shared."
# How many times a file may grow when it is folded: the layers it shares, the width over the inner width.
_MAX_GROWTH = 48


def is_albert(source: WeightSource) -> bool:
    """Whether the weights are of this kind."""
    return _PROJECTION in source.tensors and any(name.startswith(_SHARED) for name in source.tensors)


def fold_config(config: BertConfig) -> BertConfig:
    """The plain configuration: what described the factors and the pooling of another model is gone."""
    extra = config.model_extra or {}
    if extra.get("ln_type", "postln") != "postln":
        raise WeightsError(f"ln_type {extra['ln_type']!r}: only a post-LayerNorm ALBERT folds into a BERT")
    kept = {key: value for key, value in config.model_dump().items() if key not in extra}
    return BertConfig(**kept)


class FoldedAlbert:
    """A `WeightSource` that presents such a file under a plain BERT's names."""

    def __init__(self, source: WeightSource, num_layers: int) -> None:
        self._source = source
        self.path = source.path
        rows, inner = _matrix(source, _WORD)
        width, inner_too = _matrix(source, _PROJECTION)
        if inner != inner_too or not 1 <= width <= _MAX_GROWTH * inner:
            factors = f"({rows}, {inner}) and ({width}, {inner_too})"
            raise WeightsError(f"{self.path}: {factors} are not the factors of an embedding")
        if num_layers > _MAX_GROWTH or any(re.search(r"encoder\.layer\.\d", name) for name in source.tensors):
            raise WeightsError(f"{self.path}: one shared layer cannot stand for {num_layers}, or beside others")
        self.tensors: dict[str, TensorInfo] = {}
        for name, info in source.tensors.items():
            if name.startswith(_SHARED):
                for layer in range(num_layers):
                    self.tensors[name.replace("layer_shared", f"layer.{layer}")] = info
            elif name not in (_PROJECTION, "cls.predictions.decoder.weight"):
                self.tensors[name] = info
        self.tensors[_WORD] = TensorInfo((rows, width), source.tensors[_WORD].dtype)

    def read(self, name: str) -> torch.Tensor:
        """Bring one tensor into memory, folded where it must be."""
        if name == _WORD:
            return self._source.read(_WORD).float() @ self._source.read(_PROJECTION).float().T
        return self._source.read(re.sub(r"encoder\.layer\.\d+\.", "encoder.layer_shared.", name))


def _matrix(source: WeightSource, name: str) -> tuple[int, int]:
    shape = source.tensors[name].shape
    if len(shape) != 2 or source.tensors[name].dtype not in FLOATS:
        raise WeightsError(f"{source.path}: {name} {shape} is not a matrix of floats")
    return shape[0], shape[1]
