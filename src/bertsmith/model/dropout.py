"""Dropout whose mask does not take longer than the layers around it.

Torch draws one Bernoulli number an element, and on one core alone wherever the processor is not Intel's. Here one draw
of 64 bits decides on four elements, and all else runs on all cores.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["Dropout", "draw_mask", "draws_masks", "drop"]

_PER_DRAW, _CASES = 4, 2**16  # elements, each by 16 bits: a share of them is zeroed that is `p` to within 1e-5


class Dropout(nn.Dropout):
    """As torch's, by `drop`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        return drop(x, self.p) if self.training else x


def drop(x: torch.Tensor, p: float) -> torch.Tensor:
    """Zero a share `p` of the elements, and scale the others so that the mean stays; by torch's own generator."""
    return x * draw_mask(x.shape, p) if draws_masks(x, p) else F.dropout(x, p)


def draws_masks(x: torch.Tensor, p: float) -> bool:
    """Whether a mask for `x` is better drawn here than by torch."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and 0 < p < 1 and not torch.compiler.is_compiling()


def draw_mask(shape: torch.Size, p: float) -> torch.Tensor:
    """0 for what is dropped, else the scale."""
    dropped, number = round(p * _CASES), shape.numel()
    draws = torch.empty(-(-number // _PER_DRAW), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    bits = draws.view(torch.int16)[:number].view(shape)
    mask = torch.ge(bits, dropped - _CASES // 2, out=torch.empty(shape))
    return mask.mul_(_CASES / (_CASES - dropped))
