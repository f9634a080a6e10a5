"""The losses, each from logits and labels.

Pre-training sums are divided by counts that the caller may give for the *global* batch: a mean of
per-process means is something else.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F

from bertsmith.model.packing import Ragged

__all__ = ["PreTrainingLosses", "classification_loss", "pretraining_losses", "span_loss"]


class PreTrainingLosses(NamedTuple):
    """The two parts, each already divided by its count; the paper's loss is their sum."""

    mlm: torch.Tensor
    pair: torch.Tensor

    @property
    def total(self) -> torch.Tensor:
        """L = L_mlm + L_pair."""
        return self.mlm + self.pair


def pretraining_losses(
    mlm_logits: torch.Tensor,
    mlm_labels: torch.Tensor,
    pair_logits: torch.Tensor,
    pair_labels: torch.Tensor,
    *,
    num_masked: int | None = None,
    num_pairs: int | None = None,
) -> PreTrainingLosses:
    """Cross-entropy of both tasks: (M, V) against (M,), and (B, 2) against (B,)."""
    counts = (
        len(mlm_labels) if num_masked is None else num_masked,
        len(pair_labels) if num_pairs is None else num_pairs,
    )
    mlm = F.cross_entropy(mlm_logits, mlm_labels, reduction="sum") / max(1, counts[0])
    pair = F.cross_entropy(pair_logits, pair_labels, reduction="sum") / max(1, counts[1])
    return PreTrainingLosses(mlm, pair)


def classification_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """(B, C) against (B,): cross-entropy, or the squared error where there is one output."""
    if logits.shape[-1] == 1:
        return F.mse_loss(logits[:, 0], labels.to(logits.dtype))
    return F.cross_entropy(logits, labels)


def span_loss(logits: torch.Tensor, lengths: torch.Tensor, spans: torch.Tensor) -> torch.Tensor:
    """(T, 2) logits against `spans (B, 2)`, the first and last token of each answer in its sequence.

    The mean of two cross-entropies, each over the tokens of a sequence.
    """
    ragged = Ragged.of(lengths.cpu(), logits.device)
    grid = ragged.pad(logits)  # (B, S, 2)
    if ragged.mask is not None:
        grid = grid.masked_fill(ragged.mask[:, :, None] < 0, float("-inf"))
    return F.cross_entropy(grid, spans)
