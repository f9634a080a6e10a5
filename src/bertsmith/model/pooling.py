"""A text's token rows to one vector: which layers, how they are joined over the tokens, and whitening.

    mean, max    over all tokens of the last layer, `[CLS]` and `[SEP]` included
    cls          `[CLS]` of the last layer
    last4        the last four layers side by side, each the mean over tokens (section 5.3 of the paper)
    first-last   the mean over tokens of the first layer's and the last layer's average

`layers` names other layers for mean, max and cls, 0 being the embeddings and -1 the last; several are averaged.

Whitening (Su et al., 2021) moves, turns and scales vectors so that over a sample they have mean 0 and the identity as
covariance; fewer dimensions may be kept, those of the largest variance.

Shapes: T tokens, B sequences, H width, D width of a vector, N vectors of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from pydantic import model_validator

from bertsmith.errors import InputError
from bertsmith.model.packing import cls_rows
from bertsmith.settings import Strict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bertsmith.model.encoder import Encoder

__all__ = ["Pool", "Pooling", "Whitening"]

Pool = Literal["mean", "cls", "max", "last4", "first-last"]
_ROUNDING = 1e-6  # of a float32 vector on its way through a model
_OWN_LAYERS = {"last4": (-4, -3, -2, -1), "first-last": (1, -1)}


class Pooling(Strict):
    """How the vector of a sequence is made; `normalize` scales it to length 1 at the very end.

    >>> Pooling(pool="last4").numbers(12)
    [9, 10, 11, 12]
    """

    pool: Pool = "mean"
    layers: tuple[int, ...] | None = None
    normalize: bool = False

    @model_validator(mode="after")
    def _layers_fit(self) -> Pooling:
        if self.layers is not None and (not self.layers or self.pool in _OWN_LAYERS):
            raise ValueError(f"layers: name some, for mean, max or cls; {self.pool} has its own")
        return self

    def width(self, hidden_size: int) -> int:
        """Of a vector."""
        return hidden_size * (4 if self.pool == "last4" else 1)

    def numbers(self, num_layers: int) -> list[int] | None:
        """The layers that are read, counted from the embeddings; None for the last one alone."""
        named = self.layers or _OWN_LAYERS.get(self.pool)
        if named is None:
            return None
        found = [number if number >= 0 else num_layers + 1 + number for number in named]
        if self.layers is None and min(found) < 1:
            raise InputError(f"pool {self.pool} needs more layers than the {num_layers} of this model")
        if not all(0 <= number <= num_layers for number in found):
            raise InputError(f"layers {', '.join(map(str, named))}: this model has layers 0 to {num_layers}")
        return None if found == [num_layers] else found

    def reads_as(self, other: Pooling, num_layers: int) -> bool:
        """Whether both make the same vectors, but for their length."""
        return (self.pool, self.numbers(num_layers)) == (other.pool, other.numbers(num_layers))

    def vectors(
        self, encoder: Encoder, input_ids: torch.Tensor, token_type_ids: torch.Tensor | None, lengths: torch.Tensor
    ) -> torch.Tensor:
        """(B, D): one vector for each sequence of a packed batch, before whitening and scaling."""
        numbers = self.numbers(len(encoder.layers))
        if numbers is None:
            read = cls_rows(lengths) if self.pool == "cls" else None
            rows = encoder(input_ids, token_type_ids, lengths, read=read).rows
            return rows if self.pool == "cls" else _over_tokens(rows, lengths, self.pool)
        states = encoder(input_ids, token_type_ids, lengths, hidden_states=True).hidden_states
        assert states is not None
        chosen = [states[number] for number in numbers]
        if self.pool == "last4":
            return torch.cat([_over_tokens(rows, lengths, "mean") for rows in chosen], dim=1)
        return _over_tokens(torch.stack(chosen).mean(0), lengths, "mean" if self.pool == "first-last" else self.pool)


def _over_tokens(rows: torch.Tensor, lengths: torch.Tensor, pool: str) -> torch.Tensor:
    if pool == "cls":
        return rows.index_select(0, cls_rows(lengths).to(rows.device))
    return torch.segment_reduce(rows, pool, lengths=lengths.to(rows.device))


@dataclass(frozen=True)
class Whitening:
    """The map (x - mean) · kernel."""

    mean: torch.Tensor  # (D,)
    kernel: torch.Tensor  # (D, D')

    def __post_init__(self) -> None:
        fits = self.mean.ndim == 1 and self.kernel.ndim == 2 and len(self.mean) == len(self.kernel)
        if not fits or not self.kernel.shape[1]:
            raise InputError(f"whitening: {tuple(self.mean.shape)} and {tuple(self.kernel.shape)} do not fit together")
        if {self.mean.dtype, self.kernel.dtype} != {torch.float32}:
            raise InputError(f"whitening: {self.mean.dtype} and {self.kernel.dtype}, not float32")

    @classmethod
    def fit(cls, vectors: torch.Tensor | Iterable[torch.Tensor], width: int | None = None) -> Whitening:
        """From a sample (N, D), at once or in parts; directions in which it does not vary are left out."""
        sample = _Moments()
        for part in [vectors] if isinstance(vectors, torch.Tensor) else vectors:
            sample.add(part)
        if sample.count < 2:
            raise InputError("whitening: one text is no sample; give some hundreds at least")
        if width is not None and not 1 <= width <= len(sample.mean):
            raise InputError(f"whitening: dimensions must be from 1 to {len(sample.mean)}, not {width}")
        variances, directions = torch.linalg.eigh(sample.covariance)
        # The variance that equal texts get in different batches.
        rounding = _ROUNDING**2 * (sample.covariance.diagonal() + sample.mean.square()).mean()
        usable = int((variances > torch.maximum(rounding, 1e-9 * variances[-1])).sum())
        if not usable:
            raise InputError("whitening: all texts of the sample have the same vector")
        kept = min(width or usable, usable)
        kernel = (directions / variances.clamp_min(1e-300).sqrt()).flip(1)[:, :kept]
        return cls(sample.mean.float(), kernel.float().contiguous())

    def to(self, device: torch.device | str) -> Whitening:
        """The same on another device."""
        return Whitening(self.mean.to(device), self.kernel.to(device))

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        """(B, D) to (B, D')."""
        return F.linear(vectors - self.mean, self.kernel.T)


class _Moments:
    """Mean and covariance of vectors that come in parts, in double precision; counted from the first part's mean."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, part: torch.Tensor) -> None:
        """Some more, (N, D)."""
        part = part.double()
        if not self.count:
            self._origin = part.mean(0) if len(part) else part.new_zeros(part.shape[1])
            self._sum, self._products = torch.zeros_like(self._origin), part.new_zeros(part.shape[1], part.shape[1])
        part = part - self._origin
        self.count += len(part)
        self._sum += part.sum(0)
        self._products += part.T @ part

    @property
    def mean(self) -> torch.Tensor:
        """(D,)."""
        return self._origin + self._sum / self.count

    @property
    def covariance(self) -> torch.Tensor:
        """(D, D)."""
        return (self._products - torch.outer(self._sum, self._sum) / self.count) / (self.count - 1)
