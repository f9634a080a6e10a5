"""`PackedBatch`: sequences laid end to end, and nothing between them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["PackedBatch", "by_token_budget"]


@dataclass(frozen=True)
class PackedBatch:
    """One flat run of T tokens and the lengths of its B sequences; `lengths` stays on the CPU."""

    input_ids: torch.Tensor  # (T,)
    token_type_ids: torch.Tensor  # (T,)
    lengths: torch.Tensor  # (B,)

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> PackedBatch:
        """Pack sequences of ids; without `types` every token is of the first segment."""
        input_ids = torch.tensor(list(chain.from_iterable(sequences)), dtype=torch.int64)
        if types is None:
            token_type_ids = torch.zeros_like(input_ids)
        else:
            token_type_ids = torch.tensor(list(chain.from_iterable(types)), dtype=torch.int64)
        lengths = torch.tensor([len(sequence) for sequence in sequences], dtype=torch.int64)
        return cls(input_ids, token_type_ids, lengths)

    def to(self, device: torch.device | str) -> PackedBatch:
        """The same batch with its tokens on another device."""
        return PackedBatch(self.input_ids.to(device), self.token_type_ids.to(device), self.lengths)


def by_token_budget(lengths: Sequence[int], budget: int, *, streams: int = 1) -> Iterator[list[int]]:
    """Group sequences into batches of at most `budget` tokens, longest first, neighbours of like length.

    A sequence longer than the budget is a batch of its own. With several `streams` that work side by side the
    last batches get smaller, down to a quarter, so that all streams end at about the same time.

    >>> list(by_token_budget([3, 9, 4, 3], budget=7))
    [[1], [2, 0], [3]]
    """
    remaining = sum(lengths)
    batch: list[int] = []
    size, limit = 0, _next_limit(budget, remaining, streams)
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if batch and size + lengths[number] > limit:
            yield batch
            remaining -= size
            batch, size, limit = [], 0, _next_limit(budget, remaining, streams)
        batch.append(number)
        size += lengths[number]
    if batch:
        yield batch


def _next_limit(budget: int, remaining: int, streams: int) -> int:
    return budget if streams == 1 else min(budget, max(budget // 4, remaining // (2 * streams)))
