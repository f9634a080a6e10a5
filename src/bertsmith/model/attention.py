"""Self-attention over packed sequences.

Shapes: T tokens in all, R rows that are read, H width, A heads, D = H / A; in one bucket n sequences of
at most S keys and Q queries. Everything outside `attend` is (T, H) or (R, H) and knows no padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from bertsmith.model.dropout import draw_mask, draws_masks
from bertsmith.model.eight_bit import EightBitLinear

if TYPE_CHECKING:
    from bertsmith.config import BertConfig
    from bertsmith.model.packing import Plan, Ragged, Reading

__all__ = ["SelfAttention", "attend"]

_VECTOR = 16  # floats


class SelfAttention(nn.Module):
    """Queries, keys and values from one product; then attention bucket by bucket."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.qkv = nn.Linear(width, 3 * width)
        self.num_heads = config.num_attention_heads
        self.dropout = config.attention_probs_dropout_prob

    def forward(self, x: torch.Tensor, plan: Plan, *, maps: list[torch.Tensor] | None = None) -> torch.Tensor:
        """(T, H) to (T, H). `maps` collects one (A, S, S) map of probabilities for each sequence."""
        dropout = self.dropout if self.training else 0.0
        qkv = self.qkv(x)  # (T, 3H)
        if maps is None and _varlen_fits(qkv, x.shape[-1] // self.num_heads, dropout):
            return _attend_varlen(qkv, plan, self.num_heads)
        contexts = []
        for rows, bucket in zip(qkv.split([b.num_rows for b in plan.buckets]), plan.buckets, strict=True):
            grid = bucket.pad(rows).unflatten(-1, (3, self.num_heads, -1))  # (n, S, 3, A, D)
            query, key, value = grid.permute(2, 0, 3, 1, 4).unbind()  # each (n, A, S, D)
            if maps is not None:
                maps.extend(_probabilities(query, key, bucket))
            context = attend(query, key, value, bucket.mask, dropout)
            contexts.append(bucket.unpad(context.transpose(1, 2).flatten(2)))
        return _join(contexts)

    def forward_rows(self, x: torch.Tensor, plan: Plan, reading: Reading) -> torch.Tensor:
        """As `forward`, but only for the rows that are read: (T, H) to (R, H). Keys and values stay whole."""
        dropout = self.dropout if self.training else 0.0
        q, kv = _project_apart(x, x.index_select(0, reading.rows), self.qkv)  # (R, H), (T, 2H)
        contexts = []
        parts = zip(
            q.split([rows.num_rows for rows in reading.queries]),
            kv.split([bucket.num_rows for bucket in plan.buckets]),
            reading.queries,
            plan.buckets,
            strict=True,
        )
        for q_rows, kv_rows, rows, bucket in parts:
            if not rows.num_rows:
                continue
            key, value = bucket.pad(kv_rows).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
            query = rows.pad(q_rows).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (n, A, Q, D)
            context = attend(query, key, value, bucket.mask, dropout)
            contexts.append(rows.unpad(context.transpose(1, 2).flatten(2)))
        return _join(contexts) if contexts else x[:0]


def _project_apart(
    x: torch.Tensor, read: torch.Tensor, qkv: nn.Linear | EightBitLinear
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries of the rows that are read, keys and values of all."""
    if isinstance(qkv, EightBitLinear):
        return qkv.query(read), qkv.key_value(x)
    width = x.shape[-1]
    weight, bias = qkv.weight, qkv.bias
    return F.linear(read, weight[:width], bias[:width]), F.linear(x, weight[width:], bias[width:])


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, dropout: float
) -> torch.Tensor:
    """softmax(Q Kᵀ / √D) V for one bucket, by the fastest way that there is for the device."""
    if mask is not None:
        mask = mask.to(query.dtype)[:, None, None, :].expand(-1, 1, query.shape[2], -1)  # (n, 1, Q, S)
    if draws_masks(query, dropout):
        return _TrainedAttention.apply(query, key, value, mask, dropout)  # type: ignore[no-untyped-call]
    if not dropout and _plain_is_faster(query, key):
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)  # (n, A, Q, S)
        return (scores if mask is None else scores.add_(mask)).softmax(-1) @ value
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)


class _TrainedAttention(torch.autograd.Function):
    """Attention with dropout on a CPU, for which torch has no kernel, and its gradient, each in a few plain steps."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, dropout: float
    ) -> torch.Tensor:
        heads, scale = query.shape[:2], query.shape[-1] ** -0.5
        q, k, v = (each.flatten(0, 1) for each in (query, key, value))  # each (n·A, ·, D)
        scores = _product(q, k.transpose(1, 2), scale)  # (n·A, Q, S)
        if mask is not None:
            scores.unflatten(0, heads).add_(mask)
        shares = scores.softmax(-1)
        kept = draw_mask(shares.shape, dropout)
        left = shares * kept
        ctx.save_for_backward(q, k, v, shares, kept, left)
        ctx.heads, ctx.scale = heads, scale
        return (left @ v).unflatten(0, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, shares, kept, left = ctx.saved_tensors
        gradient = gradient.flatten(0, 1)  # (n·A, Q, D)
        of_shares = (gradient @ v.transpose(1, 2)).mul_(kept)
        of_scores = torch._softmax_backward_data(of_shares, shares, -1, shares.dtype)
        found = (
            _product(of_scores, k, ctx.scale),
            _product(of_scores.transpose(1, 2), q, ctx.scale),
            left.transpose(1, 2) @ gradient,
        )
        return (*(each.unflatten(0, ctx.heads) for each in found), None, None)


def _product(one: torch.Tensor, other: torch.Tensor, scale: float) -> torch.Tensor:
    """(b, i, j) times (b, j, k), scaled on the way."""
    return torch.baddbmm(one.new_empty(()), one, other, beta=0, alpha=scale)


def _plain_is_faster(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Torch's kernel for CPUs takes the keys behind the last whole vector one by one: half its time where keys are few.

    Measured on AVX-512, one thread, 12 heads of 32: with 31 keys it takes 1.6 times what three plain steps take.
    """
    if query.is_cuda or query.requires_grad:
        return False
    num_keys = key.shape[2]
    return _VECTOR < num_keys < 4 * _VECTOR and num_keys % _VECTOR > _VECTOR // 4


def _join(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _probabilities(query: torch.Tensor, key: torch.Tensor, bucket: Ragged) -> list[torch.Tensor]:
    """The attention maps of a bucket, each cut to its sequence's own length."""
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5  # (n, A, S, S)
    if bucket.mask is None:
        return list(scores.softmax(-1))
    maps = (scores + bucket.mask[:, None, None, :]).softmax(-1)
    sizes = (bucket.mask == 0).sum(1).tolist()
    return [one[:, :size, :size] for one, size in zip(maps, sizes, strict=True)]


def _varlen_fits(qkv: torch.Tensor, head_size: int, dropout: float) -> bool:
    """Flash attention over the packed run itself: half precision on recent GPUs, and no dropout in it."""
    if not qkv.is_cuda or dropout or qkv.dtype not in (torch.float16, torch.bfloat16):
        return False
    fits = head_size % 8 == 0 and head_size <= 256
    return fits and torch.cuda.get_device_capability(qkv.device) >= (8, 0)


def _attend_varlen(qkv: torch.Tensor, plan: Plan, num_heads: int) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = qkv.unflatten(-1, (3, num_heads, -1)).unbind(1)  # each (T, A, D)
    bounds = F.pad(plan.lengths.cumsum(0), (1, 0)).to(qkv.device, torch.int32)
    longest = int(plan.lengths[-1])
    context = varlen_attn(query, key, value, bounds, bounds, longest, longest)
    return context.flatten(1)  # type: ignore[union-attr]
