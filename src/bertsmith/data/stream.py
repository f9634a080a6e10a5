"""The stream of global batches: which examples each step reads, epoch after epoch.

A place in it is (epoch, batch): all that a resumed run needs to go on. How many processes share a batch, and into how
many parts each of them cuts its share, changes nothing in what the batch holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bertsmith.data.examples import cut_by_tokens
from bertsmith.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bertsmith.data.examples import Examples

__all__ = ["GlobalBatch", "Place", "Stream", "share_of"]


class Place(NamedTuple):
    """Where the stream stands: the next batch of an epoch."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class GlobalBatch:
    """The examples of one step, by their numbers, and the place after it."""

    epoch: int
    rows: np.ndarray  # (B,)
    lengths: np.ndarray  # (B,)
    after: Place


class Stream:
    """Batches of about `tokens_per_batch` tokens, by their place."""

    def __init__(self, examples: Examples, tokens_per_batch: int) -> None:
        self.examples = examples
        self.tokens_per_batch = tokens_per_batch
        self._cuts: Callable[[int], np.ndarray] = lru_cache(maxsize=2)(self._cut_epoch)

    def at(self, place: Place) -> GlobalBatch:
        """The batch at a place."""
        cuts = self._cuts(place.epoch)
        rows = np.arange(cuts[place.batch], cuts[place.batch + 1])
        last = place.batch + 2 == len(cuts)
        after = Place(place.epoch + 1, 0) if last else Place(place.epoch, place.batch + 1)
        return GlobalBatch(place.epoch, rows, self.examples.plan(place.epoch).take(rows).lengths, after)

    def batches(self, place: Place | None = None) -> Iterator[GlobalBatch]:
        """All batches from a place on, without end."""
        while True:
            batch = self.at(place or Place())
            yield batch
            place = batch.after

    def num_batches(self, epoch: int = 0) -> int:
        """How many batches an epoch has."""
        return len(self._cuts(epoch)) - 1

    def _cut_epoch(self, epoch: int) -> np.ndarray:
        lengths = self.examples.plan(epoch).lengths
        if not len(lengths):
            raise CorpusError(
                "the data set gives no example of this kind: a document of one sentence has no pair; train without "
                "pairs (--pairs none), or see whether sentences and documents are as they should be (bertsmith inspect)"
            )
        return cut_by_tokens(lengths, self.tokens_per_batch)


def share_of(lengths: np.ndarray, part: int, num_parts: int) -> np.ndarray:
    """(·,) which examples of a batch are one of several parts' to do: neighbours, about equally many tokens.

    >>> [share_of(np.array([4, 4, 2, 2, 4]), part, 2).tolist() for part in range(2)]
    [[0, 1], [2, 3, 4]]
    """
    middle = np.cumsum(lengths) - lengths / 2
    return np.flatnonzero((middle * num_parts / max(int(lengths.sum()), 1)).astype(np.int64) == part)
