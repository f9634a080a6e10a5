"""The part of a word table that a set of texts reads, in the place of the whole while a model is trained on them.

A few thousand sentences use a few thousand of thirty thousand pieces. The gradient of the others is zero at every
step, and would be cleared, measured, clipped and put into Adam's moments all the same. What happens to those rows is
known without it: they decay (`UsedWords.whole`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["UsedWords"]


class UsedWords(nn.Module):
    """Takes the ids of the whole table, of which only `ids` may come."""

    def __init__(self, table: nn.Embedding, ids: torch.Tensor) -> None:
        super().__init__()
        self.num_embeddings = table.num_embeddings
        self._before = table.weight.detach()  # (V, H)
        ids = ids.unique().to(self._before.device)
        self._places = torch.full((self.num_embeddings,), -1, device=ids.device)  # (V,) the row of an id
        self._places[ids] = torch.arange(len(ids), device=ids.device)
        self.weight = nn.Parameter(self._before[ids])

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """(T,) to (T, H)."""
        return F.embedding(self._places[input_ids], self.weight)

    def whole(self, trained: torch.Tensor, decayed: float) -> torch.Tensor:
        """The table (V, H) that training all of it would have given, from the rows (n, H) that were trained.

        `decayed` is the share that is left of a weight that had no gradient.
        """
        used = self._places >= 0
        table = self._before * decayed
        table[used] = trained.to(table)  # rows are in the order of their ids
        return table
