"""The weights that a model begins with: the original's random ones, layers that see word order, a bias by counts."""

from __future__ import annotations

import torch
from torch import nn

from bertsmith.model.encoder import Encoder, Layer

__all__ = ["continued_positions", "initialise", "log_shares", "look_at_neighbours", "sinusoids"]

_POSITION_STD = 0.06  # beside 0.02 for words: what stands where is the louder part at first
_LONGEST_WAVE = 10_000
_RIDGE = 0.3  # of the mean square of a wave; 0.1 and 1 left a Chinese mini with more loss at 512 tokens


@torch.no_grad()
def initialise(model: nn.Module, *, std: float, generator: torch.Generator | None = None) -> None:
    """Set every parameter as the original does: N(0, std) cut at 2 std, zero biases, unit LayerNorms."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                nn.init.zeros_(parameter)


@torch.no_grad()
def look_at_neighbours(encoder: Encoder) -> None:
    """Begin with heads in the lower half that look one token back, one ahead, two back, two ahead, and so on.

    A model with random weights first learns which words occur together, and may stay there for ten thousand steps:
    attention has no reason to look next door until the values say something of what stands there, and the values have
    none to say it until attention looks. Nothing here is fixed: all of it is weights of a plain BERT that training
    changes.

    Positions become waves, the angle of wave i at position p being p·fᵢ. A head's keys are some of the waves; its
    queries are the same ones, turned by offset·fᵢ, so that query and key agree most at that offset.
    """
    config = encoder.config
    width, heads = config.hidden_size, config.num_attention_heads
    encoder.embeddings.position.weight.copy_(_waves(config.max_position_embeddings, width))
    size = width // heads
    # Short waves tell neighbours apart: those from 6 tokens long to about 60, as many as a head has room for.
    some = torch.linspace(0, width // 8, size // 2).round().long()
    sines, cosines, rows = 2 * some, 2 * some + 1, torch.arange(0, size - 1, 2)
    offsets = torch.tensor([(head // 2 + 1) * (1 if head % 2 else -1) for head in range(heads)])
    turns = offsets[:, None] * _frequencies(width)[some]  # (A, waves)
    for layer in encoder.layers[: max(1, len(encoder.layers) // 2)]:
        assert isinstance(layer, Layer)
        query, key, _ = layer.attention.qkv.weight.view(3, heads, size, width)
        key[:, rows, sines] += 1
        key[:, rows + 1, cosines] += 1
        query[:, rows, sines] += turns.cos()
        query[:, rows, cosines] += turns.sin()
        query[:, rows + 1, sines] -= turns.sin()
        query[:, rows + 1, cosines] += turns.cos()


def continued_positions(rows: torch.Tensor, trained: int) -> torch.Tensor:
    """A position table that began as waves, (positions, width), with the rows after the first `trained` made anew.

    No example has had those positions yet, and what the model expects of a position has changed since. So what training
    has made of the first waves is done to the others: waves that the trained rows have seen whole go on, and the linear
    map that fits the change best (ridge regression) is applied to all. Where training has changed nothing, short waves
    stay as they are.
    """
    waves, seen = _waves(*rows.shape).double(), rows[:trained].double()
    waves, mean = waves - waves[:trained].mean(dim=0), seen.mean(dim=0)
    lengths = (2 * torch.pi / _frequencies(rows.shape[1])).repeat_interleave(2)[: rows.shape[1]]
    going_on = waves * (lengths <= trained)
    known = waves[:trained]
    squares = known.T @ known
    ridge = _RIDGE * squares.diagonal().mean() * torch.eye(len(squares), dtype=torch.double)
    change = torch.linalg.solve(squares + ridge, known.T @ (seen - mean - going_on[:trained]))
    return torch.cat([rows[:trained], (going_on + waves @ change + mean)[trained:].to(rows)])


def log_shares(counts: torch.Tensor) -> torch.Tensor:
    """How often each piece occurs, (V,), to the logarithm of its share; one that never does counts as half a time.

    As the bias of the masked-word head it says from the first step what the original learns in thousands: which words
    are rare. Until the bias knows, the word table says it, by one direction that all rare words have in common.

    >>> log_shares(torch.tensor([6, 1, 0])).exp()
    tensor([0.7647, 0.1765, 0.0588])
    """
    smoothed = counts.double() + 0.5
    return (smoothed / smoothed.sum()).log().float()


def _waves(num_positions: int, width: int) -> torch.Tensor:
    waves = sinusoids(num_positions, width)
    waves -= waves.mean(dim=0)
    return waves * (_POSITION_STD / waves.std())


def sinusoids(num_positions: int, width: int) -> torch.Tensor:
    """(positions, width): a sine and a cosine in turn, of waves that grow from 2π tokens to 2π times 10,000."""
    angles = torch.arange(num_positions)[:, None] * _frequencies(width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


def _frequencies(width: int) -> torch.Tensor:
    return _LONGEST_WAVE ** (-torch.arange(0, width, 2) / width)
