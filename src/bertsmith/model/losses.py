"""The losses: of classes and spans from logits, of masked words from the rows before the logits."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from bertsmith.model.packing import Ragged

__all__ = ["classification_loss", "span_loss", "tied_cross_entropy"]

# The (rows x vocabulary) array that exists at a time. Small enough to be kept by the allocator, large enough for
# matrix products at full speed.
_BLOCK_BYTES = 25 * 2**20


def tied_cross_entropy(
    rows: torch.Tensor, embedding: torch.Tensor, bias: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy of softmax(rows Eᵀ + bias), summed over (M, H) rows, and how many of them guess right.

    The same as `F.cross_entropy` of the logits, without ever holding (M, V) of them: each block of rows goes from
    logits to loss to gradients while it is in the cache.
    """
    if not torch.is_grad_enabled():
        rows, embedding, bias = (
            rows.detach(),
            embedding.detach(),
            bias.detach(),
        )  # or gradients would be made for nobody
    loss, correct = _TiedCrossEntropy.apply(rows, embedding, bias, labels)  # type: ignore[no-untyped-call]
    return loss, correct


class _TiedCrossEntropy(torch.autograd.Function):
    """Gradients are ready when the forward pass ends: they are those of the sum, to be scaled by what comes back."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, embedding: torch.Tensor, bias: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        device = rows.device.type
        low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else rows.dtype
        with torch.autocast(device, enabled=False):
            x, table = rows.to(low), embedding.to(low)
            losses = torch.empty(len(x), dtype=torch.float32, device=x.device)
            correct = torch.zeros((), dtype=torch.int64, device=x.device)
            d_rows = d_table = d_bias = None
            if any(ctx.needs_input_grad):
                d_rows, d_table = torch.empty_like(rows), torch.zeros_like(embedding)
                d_bias = torch.zeros_like(bias)
            for part in _blocks(len(x), len(table)):
                logits = torch.addmm(bias.to(low), x[part], table.t())  # (·, V)
                wanted = labels[part, None]
                top, guess = logits.max(1)
                correct += (guess == labels[part]).sum()
                target = logits.gather(1, wanted)[:, 0].float()
                shares = logits.softmax(1, dtype=torch.float32)
                # log Σ exp, by way of the likeliest piece, whose share cannot be zero
                losses[part] = top.float() - shares.gather(1, guess[:, None])[:, 0].log() - target
                if d_rows is not None and d_table is not None and d_bias is not None:
                    del logits
                    shares.scatter_add_(1, wanted, shares.new_full((len(wanted), 1), -1.0))
                    d_bias += shares.sum(0)
                    shares = shares.to(low)
                    d_rows[part] = shares @ table
                    if low == d_table.dtype:
                        d_table.addmm_(shares.t(), x[part])
                    else:
                        d_table += shares.t() @ x[part]
        ctx.gradients = [d_rows, d_table, d_bias]
        ctx.mark_non_differentiable(correct)
        return losses.sum(), correct

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        gradients, ctx.gradients = ctx.gradients, None
        assert gradients is not None, "the gradients of a batch are given out once"
        return (*(gradient.mul_(outer[0]) for gradient in gradients), None)


def _blocks(num_rows: int, vocab_size: int) -> list[slice]:
    """Slices of about equal size, none larger than a block."""
    most = max(1, _BLOCK_BYTES // (4 * vocab_size))
    size = -(-num_rows // max(1, -(-num_rows // most)))
    return [slice(start, start + size) for start in range(0, num_rows, max(size, 1))]


def classification_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """(B, C) against (B,): cross-entropy, or the squared error where there is one output."""
    if logits.shape[-1] == 1:
        return F.mse_loss(logits[:, 0], labels.to(logits.dtype))
    return F.cross_entropy(logits, labels)


def span_loss(
    logits: torch.Tensor, lengths: torch.Tensor, spans: torch.Tensor, *, reduction: str = "mean"
) -> torch.Tensor:
    """(T, 2) logits against `spans (B, 2)`, the first and last token of each answer in its sequence.

    The mean (or the sum) of two cross-entropies a sequence, each over its own tokens.
    """
    ragged = Ragged.of(lengths.cpu(), logits.device)
    grid = ragged.pad(logits)  # (B, S, 2)
    if ragged.mask is not None:
        grid = grid.masked_fill(ragged.mask[:, :, None] < 0, float("-inf"))
    return F.cross_entropy(grid, spans, reduction=reduction)
