"""A front for people who come from `transformers`: `(B, S)` ids and an attention mask.

The padding is dropped on the way in and put back, as zeros, on the way out; the model itself never
sees it. Masked places may stand anywhere: a token keeps the position that it has in its row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bertsmith.errors import InputError

if TYPE_CHECKING:
    from bertsmith.model.encoder import Encoder, EncoderOutput

__all__ = ["encode_padded", "pad_rows"]


def encode_padded(
    encoder: Encoder,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    token_type_ids: torch.Tensor | None = None,
    *,
    hidden_states: bool = False,
    attentions: bool = False,
) -> tuple[torch.Tensor, EncoderOutput]:
    """Encode a padded batch: the last hidden state (B, S, H), and the packed output it was made from."""
    if input_ids.ndim != 2:
        raise InputError(f"input_ids must be (batch, length), not {tuple(input_ids.shape)}")
    for name, given in (("attention_mask", attention_mask), ("token_type_ids", token_type_ids)):
        if given is not None and given.shape != input_ids.shape:
            raise InputError(f"{name} has shape {tuple(given.shape)}, input_ids {tuple(input_ids.shape)}")
    kept = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    columns = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
    output = encoder(
        input_ids[kept],
        None if token_type_ids is None else token_type_ids[kept],
        kept.sum(1).cpu(),
        position_ids=columns[kept],
        hidden_states=hidden_states,
        attentions=attentions,
    )
    return pad_rows(output.rows, kept), output


def pad_rows(rows: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Put packed rows (T, …) back into a (B, S, …) grid, zeros elsewhere."""
    grid = rows.new_zeros(*kept.shape, *rows.shape[1:])
    return grid.masked_scatter(kept.view(*kept.shape, *[1] * (rows.ndim - 1)), rows)
