"""Pre-training examples: `[CLS] A [SEP] B [SEP]` with masked words, from shards, by number.

Example i of an epoch is row i of its plan (`pairing.py`), masked with a key made of (seed, epoch, i) (`masking.py`).
So any part of the stream can be made at any time, in any process, without what came before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from bertsmith.data.masking import Masking, mask_examples
from bertsmith.data.pairing import Bounds, PairKind, Plan, plan_epoch
from bertsmith.data.randomness import key_of
from bertsmith.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bertsmith.data.shards import ShardSet
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["ExampleOptions", "Examples", "PretrainingBatch", "cut_by_tokens"]

_PLAN, _MASKS = range(2)
_MIN_LENGTH = 8


@dataclass(frozen=True)
class ExampleOptions:
    """What examples look like. `static_copies=k` repeats k fixed maskings instead of new ones in every epoch."""

    max_length: int = 128
    pairs: PairKind = "balanced"
    masking: Masking = field(default_factory=Masking)
    static_copies: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_length < _MIN_LENGTH:
            raise ConfigError(f"max_length must be at least {_MIN_LENGTH}, not {self.max_length}")
        if self.static_copies is not None and self.static_copies < 1:
            raise ConfigError(f"static_copies must be at least 1, not {self.static_copies}")


@dataclass(frozen=True)
class PretrainingBatch:
    """Examples laid end to end. `pair_labels` is empty where there is no pair task."""

    input_ids: np.ndarray  # (T,)
    token_type_ids: np.ndarray  # (T,)
    lengths: np.ndarray  # (B,)
    positions: np.ndarray  # (M,) the masked tokens
    labels: np.ndarray  # (M,) what stood there
    pair_labels: np.ndarray  # (B,) or (0,)


class Examples:
    """The examples of a data set, epoch by epoch."""

    def __init__(self, shards: ShardSet, tokenizer: Tokenizer, options: ExampleOptions) -> None:
        self.shards = shards
        self.tokenizer = tokenizer
        self.options = options
        self.mask_id = tokenizer.mask_id
        self._cls, self._sep = tokenizer.cls_id, tokenizer.sep_id
        sizes, bounds = [0], []
        for number in range(shards.num_shards):  # copied: to hold on to the arrays would keep every file open
            shard = shards.shard(number)
            sizes.append(len(shard.tokens))
            bounds.append((shard.sentences.copy(), shard.documents.copy()))
        self._offsets = np.cumsum(sizes)
        self._bounds = _bounds(bounds)
        self._planned: Callable[[int], Plan] = lru_cache(maxsize=2)(self._plan)

    def plan(self, epoch: int) -> Plan:
        """The examples of an epoch; the last two that were asked for are kept."""
        return self._planned(self._epoch(epoch))

    def batch(self, epoch: int, rows: np.ndarray, *, rate: float | None = None) -> PretrainingBatch:
        """Examples of an epoch by their numbers; `rate` overrides the share of masked tokens."""
        epoch = self._epoch(epoch)
        plan = self.plan(epoch).take(rows)
        tokens, units, segments = self.assemble(plan)
        keys = key_of(self.options.seed, _MASKS, epoch, rows)
        masked = mask_examples(
            tokens,
            units,
            segments,
            plan.lengths,
            keys,
            self.options.masking,
            vocab_size=self.tokenizer.vocab_size,
            mask_id=self.mask_id,
            rate=rate,
        )
        types = np.maximum(segments, 0)
        types[np.cumsum(plan.lengths) - 1] = np.where(plan.labels >= 0, 1, 0)  # the last [SEP] belongs to B
        labels = plan.labels[plan.labels >= 0].astype(np.int64)
        return PretrainingBatch(masked.input_ids, types, plan.lengths, masked.positions, masked.labels, labels)

    def _epoch(self, epoch: int) -> int:
        """With static masking the epochs repeat."""
        return epoch if self.options.static_copies is None else epoch % self.options.static_copies

    def _plan(self, epoch: int) -> Plan:
        options = self.options
        return plan_epoch(self._bounds, options.pairs, options.max_length, seed=options.seed, epoch=epoch)

    def assemble(self, plan: Plan) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of a plan, unmasked: (T,) tokens, their units, and their segments: 0 A, 1 B, -1 special."""
        total = int(plan.lengths.sum())
        tokens = np.empty(total, np.int64)
        units = np.zeros(total, np.uint8)
        segments = np.full(total, -1, np.int64)
        columns = zip(plan.a_start.tolist(), plan.a_length.tolist(), plan.b_start.tolist(), plan.b_length.tolist(),
                      plan.labels.tolist(), strict=True)  # fmt: skip
        place = 0
        for a_start, a_length, b_start, b_length, label in columns:
            tokens[place] = self._cls
            place = self._copy(a_start, a_length, place + 1, 0, tokens, units, segments)
            if label >= 0:
                place = self._copy(b_start, b_length, place, 1, tokens, units, segments)
        return tokens, units, segments

    def _copy(
        self,
        start: int,
        length: int,
        place: int,
        segment: int,
        tokens: np.ndarray,
        units: np.ndarray,
        segments: np.ndarray,
    ) -> int:
        """Put one side of an example and its [SEP] in place; gives the place after it."""
        number = int(np.searchsorted(self._offsets, start, side="right")) - 1
        shard = self.shards.shard(number)
        begin = start - int(self._offsets[number])
        end = place + length
        tokens[place:end] = shard.tokens[begin : begin + length]
        units[place:end] = shard.units[begin : begin + length]
        segments[place:end] = segment
        tokens[end] = self._sep
        return end + 1


def cut_by_tokens(lengths: np.ndarray, budget: int) -> np.ndarray:
    """Where batches of about `budget` tokens begin in a run of examples, and the end.

    >>> cut_by_tokens(np.array([4, 4, 4, 4, 4]), budget=8).tolist()
    [0, 2, 4, 5]
    """
    number = (np.cumsum(lengths) - 1) // budget
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    return np.append(starts, len(lengths))


def _bounds(shards: list[tuple[np.ndarray, np.ndarray]]) -> Bounds:
    """The bounds of all shards as one."""
    sentences, documents = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
    for sentence_starts, document_starts in shards:
        sentences.append(sentences[-1][-1] + sentence_starts[1:].astype(np.int64))
        documents.append(documents[-1][-1] + document_starts[1:].astype(np.int64))
    return Bounds(np.concatenate(sentences), np.concatenate(documents))
