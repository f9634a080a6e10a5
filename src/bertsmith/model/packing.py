"""How a batch of sequences of any mix of lengths is laid out, so that only attention sees their ends.

Comes in: `lengths (B,)`, on the CPU. Goes out: a `Plan`. The encoder sorts the sequences by length once,
on the token ids, where it costs nothing; a bucket of attention is then a run of neighbouring rows.
Neighbours of equal length need no padding at all. Where lengths differ, a few buckets are padded, inside
attention only, and `plan_buckets` weighs that padding against the price of one more call.

Shapes: T tokens in all, B sequences, n sequences in a bucket, S places in its longest.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Plan", "Ragged", "Reading", "cls_rows", "plan_buckets", "positions_of"]

# Prices in units of one query-key product of every head, as measured on two cores (7 ns with 12 heads of 32): of
# one attention call, of one whose gradient is wanted, and of copying one row into a padded bucket and back.
CALL_PRICE, TRAINED_CALL_PRICE, COPY_PRICE = 5_000, 25_000, 100
# Where work is plenty a call is cheap beside it; this share of the whole keeps the buckets few all the same.
CALL_SHARE = 1 / 16


def plan_buckets(lengths: Sequence[int], call_price: int = CALL_PRICE) -> list[int]:
    """Cut sorted lengths into buckets of neighbours; gives the number of sequences in each.

    The cheapest cut by dynamic programming over the distinct lengths. A bucket costs one call, (longest length)²
    for each of its sequences, and the copying of its rows where they are not all of one length.

    >>> plan_buckets([5, 5, 5, 6, 200, 200])
    [4, 2]
    >>> plan_buckets([100, 500])
    [1, 1]
    """
    counts = Counter(lengths)
    sizes = sorted(counts)
    total = list(accumulate((counts[size] for size in sizes), initial=0))
    call = max(call_price, int(CALL_SHARE * sum(length * (length + COPY_PRICE) for length in lengths)))
    best, cut = [0], [0]
    for stop, size in enumerate(sizes, start=1):
        mixed = size * (size + COPY_PRICE)
        costs = [best[start] + call + (total[stop] - total[start]) * mixed for start in range(stop - 1)]
        costs.append(best[stop - 1] + call + counts[size] * size * size)
        cheapest = min(range(stop), key=costs.__getitem__)
        best.append(costs[cheapest])
        cut.append(cheapest)
    buckets, stop = [], len(sizes)
    while stop:
        buckets.append(total[stop] - total[cut[stop]])
        stop = cut[stop]
    return buckets[::-1]


@dataclass(frozen=True)
class Ragged:
    """n runs of rows that follow each other, and their places in an (n, S) grid.

    Where all runs are equally long the grid is a plain view, and the last three are None.
    """

    num_rows: int
    num_runs: int
    width: int
    places: torch.Tensor | None = None  # (num_rows,) where in the grid each row stands
    source: torch.Tensor | None = None  # (n·S,) which row stands at each place; some row where a run has ended
    mask: torch.Tensor | None = None  # (n, S) to add to scores: 0 where there is a row, -inf where there is none

    @classmethod
    def of(cls, counts: torch.Tensor, device: torch.device) -> Ragged:
        """Lay out runs of the given lengths in a grid as wide as the longest.

        Runs of 3 and 1 rows in a (2, 3) grid take the places 0, 1, 2 and 3.
        """
        width = int(counts.max())
        num_rows = int(counts.sum())
        if num_rows == width * len(counts):
            return cls(num_rows, len(counts), width)
        column = torch.arange(width)
        filled = column < counts[:, None]
        places = filled.flatten().nonzero()[:, 0]
        source = (cls_rows(counts)[:, None] + column.minimum(counts[:, None] - 1)).clamp(0, num_rows - 1).flatten()
        mask = torch.zeros(filled.shape).masked_fill(~filled, float("-inf"))
        return cls(num_rows, len(counts), width, places.to(device), source.to(device), mask.to(device))

    def pad(self, rows: torch.Tensor) -> torch.Tensor:
        """(num_rows, …) to (n, S, …). Where a run has ended stands anything: it must be masked, or not be read."""
        if self.places is not None:
            rows = _Pad.apply(rows, self.source, self.places)  # type: ignore[no-untyped-call]
        return rows.unflatten(0, (self.num_runs, self.width))

    def unpad(self, grid: torch.Tensor) -> torch.Tensor:
        """(n, S, …) back to (num_rows, …)."""
        rows = grid.flatten(0, 1)
        if self.places is None:
            return rows
        return _Unpad.apply(rows, self.places)  # type: ignore[no-untyped-call]


class _Pad(torch.autograd.Function):
    """Gather rows into a grid. Its gradient is a gather too, because none comes from the places that are masked."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, source: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(places)
        return rows.index_select(0, source)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (places,) = ctx.saved_tensors
        return gradient.index_select(0, places), None, None


class _Unpad(torch.autograd.Function):
    """Gather rows from distinct places; its gradient puts them back among zeros."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(places)
        ctx.size = rows.shape[0]
        return rows.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (places,) = ctx.saved_tensors
        padded = gradient.new_zeros(ctx.size, *gradient.shape[1:])
        return padded.index_copy_(0, places, gradient), None


@dataclass(frozen=True)
class Reading:
    """Which rows of the encoder's run are read, in ascending order, and how to give them back as asked."""

    rows: torch.Tensor  # (R,)
    queries: list[Ragged]  # for each bucket
    back: torch.Tensor  # (R,)


@dataclass(frozen=True)
class Plan:
    """The order in which the encoder keeps the tokens of one batch, and its attention buckets.

    `order[i]` is the row of the given batch that stands at place i inside the encoder, `place` the
    inverse; both None where the batch came sorted.
    """

    lengths: torch.Tensor  # (B,) sorted, on the CPU
    order: torch.Tensor | None  # (T,)
    place: torch.Tensor | None  # (T,) on the CPU
    bucket_sizes: list[int]  # sequences in each bucket
    buckets: list[Ragged]
    device: torch.device

    @classmethod
    def of(cls, lengths: torch.Tensor, device: torch.device) -> Plan:
        """Plan a batch from its lengths (on the CPU)."""
        ranked, ranks = torch.sort(lengths, stable=True)
        order = place = None
        if not torch.equal(ranked, lengths):
            order = _runs(cls_rows(lengths)[ranks], ranked)
            place = _inverse(order)
            order = order.to(device)
        sizes = plan_buckets(ranked.tolist(), TRAINED_CALL_PRICE if torch.is_grad_enabled() else CALL_PRICE)
        buckets = [Ragged.of(counts, device) for counts in ranked.split(sizes)]
        return cls(ranked, order, place, sizes, buckets, device)

    def arrange(self, rows: torch.Tensor) -> torch.Tensor:
        """The given order to the encoder's."""
        return rows if self.order is None else rows.index_select(0, self.order)

    def restore(self, rows: torch.Tensor) -> torch.Tensor:
        """The encoder's order back to the given one."""
        return rows if self.place is None else rows.index_select(0, self.place.to(self.device))

    def locate(self, read: torch.Tensor) -> Reading:
        """Find the rows `read (R,)` of the given batch, in any order, inside the encoder."""
        read = read.cpu()
        rows, ranks = torch.sort(read if self.place is None else self.place[read])
        sequence = torch.searchsorted(self.lengths.cumsum(0), rows, right=True)
        counts = torch.bincount(sequence, minlength=len(self.lengths))
        queries = [Ragged.of(part, self.device) for part in counts.split(self.bucket_sizes)]
        return Reading(rows.to(self.device), queries, _inverse(ranks).to(self.device))


def positions_of(lengths: torch.Tensor) -> torch.Tensor:
    """(T,) the place of each token in its sequence.

    >>> positions_of(torch.tensor([2, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return _runs(torch.zeros_like(lengths), lengths)


def cls_rows(lengths: torch.Tensor) -> torch.Tensor:
    """(B,) the row of each sequence's first token, `[CLS]`.

    >>> cls_rows(torch.tensor([2, 3])).tolist()
    [0, 2]
    """
    return lengths.cumsum(0) - lengths


def _inverse(permutation: torch.Tensor) -> torch.Tensor:
    inverse = torch.empty_like(permutation)
    inverse[permutation] = torch.arange(len(permutation))
    return inverse


def _runs(starts: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Concatenate the ranges start … start+length."""
    before = lengths.cumsum(0) - lengths
    return torch.arange(int(lengths.sum())) + torch.repeat_interleave(starts - before, lengths)
