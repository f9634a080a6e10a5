"""Linear layers of a model that only predicts, on a CPU.

Their weights stand by columns, so that a product x Wᵀ of many rows reads them in order. Of few rows, such as those of
one short text, MKL rearranges the weights for longer than it multiplies. For those oneDNN has a copy of the weights in
a layout of its own, made when it is first needed: one more time the memory of the layers.
"""

from __future__ import annotations

import platform

import torch
from torch import nn

__all__ = ["PreparedLinear", "prepare_linear_layers"]

_FEW_ROWS = 96  # on two AVX2 cores both ways take as long somewhere between 80 and 300
_USUAL_ROWS = 20  # for which the copy is laid out


class PreparedLinear(nn.Linear):
    """x Wᵀ + b without gradients, for any number of rows."""

    _packed: torch.Tensor | None = None

    @classmethod
    def of(cls, dense: nn.Linear) -> PreparedLinear:
        """The same weights, turned in memory, not in shape."""
        made = cls(dense.in_features, dense.out_features, device="meta")
        made.weight = nn.Parameter(dense.weight.detach().t().contiguous().t(), requires_grad=False)
        made.bias = dense.bias
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(T, K) to (T, N); the bias is added in place afterwards, where torch would copy it first."""
        if self._fits(x):
            return torch.ops.mkldnn._linear_pointwise(x, self._copy(), self.bias, "none", [], "")
        return torch.mm(x, self.weight.t()).add_(self.bias)

    def add_to(self, total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """`total + self(x)`, a new tensor: (T, N) and (T, K) to (T, N)."""
        if self._fits(x):
            return torch.ops.mkldnn._linear_pointwise.binary(x, total, self._copy(), self.bias, "add")
        return (total + self.bias).addmm_(x, self.weight.t())

    def _fits(self, x: torch.Tensor) -> bool:
        return 0 < x.shape[0] <= _FEW_ROWS and x.dtype == torch.float32 and _has_packed_products()

    def _copy(self) -> torch.Tensor:
        if self._packed is None:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous(), _USUAL_ROWS)
        return self._packed


def prepare_linear_layers(model: nn.Module) -> None:
    """Replace the linear layers of an encoder's stack, in place; the model can then only predict."""
    model.requires_grad_(False)
    for stack in (module for module in model.modules() if isinstance(module, nn.ModuleList)):
        for parent in list(stack.modules()):
            for name, child in list(parent.named_children()):
                if type(child) is nn.Linear:
                    setattr(parent, name, PreparedLinear.of(child))


def _has_packed_products() -> bool:
    """Measured on x86 alone."""
    return torch.backends.mkldnn.is_available() and platform.machine() in ("x86_64", "AMD64")
