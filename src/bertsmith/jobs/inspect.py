"""`inspect`: a model's shape, parameters, memory and tokenizer, without loading its weights.

A named size (`base`, `large`, …) is answered by arithmetic alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bertsmith.config import SIZES, BertConfig, named_size

if TYPE_CHECKING:
    from bertsmith.bundle.catalogue import PackagedModel

__all__ = ["Inspection", "ListedTensor", "inspect", "list_tensors"]

_BYTES = 4  # float32


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found. Parameters of parts add up to the encoder with its pooler."""

    name: str
    config: BertConfig
    parts: dict[str, int]
    heads: dict[str, int] = field(default_factory=dict)
    kind: str | None = None
    has_pooler: bool = True
    tokenizer: dict[str, Any] | None = None
    max_length: int | None = None

    @property
    def parameters(self) -> int:
        """Encoder with pooler."""
        return sum(self.parts.values())

    @property
    def total_parameters(self) -> int:
        """All there are, heads included; an absent pooler is not."""
        return self.parameters + sum(self.heads.values()) - (0 if self.has_pooler else self.parts["pooler"])

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        config = self.config
        return {
            "name": self.name,
            "kind": self.kind,
            "parameters": self.parameters,
            "total_parameters": self.total_parameters,
            "parts": self.parts,
            "head_parameters": self.heads,
            "has_pooler": self.has_pooler,
            "layers": config.num_hidden_layers,
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "heads": config.num_attention_heads,
            "vocab_size": config.vocab_size,
            "positions": config.max_position_embeddings,
            "activation": config.hidden_act,
            "labels": list(config.id2label.values()) if self.kind in ("classification", "tagging") else None,
            "max_length": self.max_length,
            "memory_bytes": self.memory,
            "tokenizer": self.tokenizer,
        }

    @property
    def memory(self) -> dict[str, int]:
        """Bytes in float32: the weights; and training with Adam, which adds gradients and two moments."""
        weights = self.total_parameters * _BYTES
        return {"weights": weights, "training_with_adam": 4 * weights}


def inspect(name: str) -> Inspection:
    """Look at a named size, a configuration file, a model folder, or a model by its local name."""
    if name in SIZES and not Path(name).exists():
        config = named_size(name)
        return Inspection(name, config, config.parameter_counts())
    if name.endswith(".json") and Path(name).is_file():
        config = BertConfig.from_file(Path(name))
        return Inspection(name, config, config.parameter_counts())
    return _inspect_folder(name)


def _inspect_folder(name: str) -> Inspection:
    from bertsmith.bundle.folder import open_model
    from bertsmith.bundle.names import canonical_names, head_of, kind_of
    from bertsmith.bundle.resolve import find_model

    folder, packaged = find_model(name)
    config, source = open_model(folder)
    drop = packaged.drop if packaged else ()
    named = canonical_names(tensor for tensor in source.tensors if not tensor.startswith(drop))
    heads: dict[str, int] = {}
    for canonical, theirs in named.items():
        head = head_of(canonical)
        if head not in (None, "bert.pooler."):
            assert head is not None
            part = head.rstrip(".")
            heads[part] = heads.get(part, 0) + math.prod(source.tensors[theirs].shape)
    return Inspection(
        name=name,
        config=config,
        parts=config.parameter_counts(),
        heads=heads,
        kind=kind_of(named, config.architectures),
        has_pooler=any(canonical.startswith("bert.pooler.") for canonical in named),
        **_tokenizer_facts(folder, packaged, config),
    )


def _tokenizer_facts(folder: Path, packaged: PackagedModel | None, config: BertConfig) -> dict[str, Any]:
    from bertsmith.bundle.folder import max_length_of, tokenizer_of

    tokenizer = packaged.tokenizer(folder) if packaged else tokenizer_of(folder)
    facts = None
    if tokenizer is not None:
        facts = {
            "pieces": tokenizer.vocab_size,
            "lowercase": tokenizer.lowercase,
            "fingerprint": tokenizer.fingerprint,
        }
    return {"tokenizer": facts, "max_length": max_length_of(folder, config)}


class ListedTensor(NamedTuple):
    """One line of `inspect --tensors`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    checksum: str | None


def list_tensors(name: str) -> list[ListedTensor]:
    """Every tensor of a model's weight files, as the files name them.

    Google's checkpoints carry a CRC-32C of each tensor: all of it is read and compared. A checkpoint that
    is not a plain BERT is listed too.
    """
    from bertsmith.bundle.folder import google_checkpoint
    from bertsmith.bundle.resolve import find_model
    from bertsmith.bundle.sources import open_weights

    folder, _ = find_model(name)
    checkpoint = google_checkpoint(folder)
    if checkpoint is not None:
        return [
            ListedTensor(tensor, info.shape, info.dtype, f"{crc:08x}") for tensor, info, crc in checkpoint.verified()
        ]
    source = open_weights(folder)
    return [ListedTensor(tensor, info.shape, info.dtype, None) for tensor, info in sorted(source.tensors.items())]
