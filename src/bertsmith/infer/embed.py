"""Sentence vectors: the last layer's rows of a sequence, joined into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from bertsmith.model.packing import cls_rows

if TYPE_CHECKING:
    from bertsmith.data.batches import PackedBatch
    from bertsmith.model.encoder import Encoder

__all__ = ["Pool", "embed_batch"]

Pool = Literal["mean", "cls", "max"]


def embed_batch(encoder: Encoder, batch: PackedBatch, pool: Pool) -> torch.Tensor:
    """(B, H): mean or maximum over all tokens of each sequence, `[CLS]` and `[SEP]` included, or `[CLS]` alone."""
    read = cls_rows(batch.lengths) if pool == "cls" else None
    rows = encoder(batch.input_ids, batch.token_type_ids, batch.lengths, read=read).rows
    if pool == "cls":
        return rows
    return torch.segment_reduce(rows, pool, lengths=batch.lengths.to(rows.device))
