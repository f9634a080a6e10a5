"""Optimizers: the original's Adam, and who decays.

The original's Adam (optimization.py of 2018) differs from torch's: no bias correction, ε outside the square root, and a
decay that is decoupled and multiplied by the learning rate. Not on LayerNorm nor on biases; embeddings do decay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["BertAdam", "decay_groups"]


class BertAdam(torch.optim.Optimizer):
    """Adam as the original has it.

    m ← β₁m + (1-β₁)g;  v ← β₂v + (1-β₂)g²;  w ← w - lr·(m / (√v + ε) + decay·w)
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]] | Iterable[torch.Tensor],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        assert closure is None, "nothing here needs the loss again"
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            gradients = [weight.grad for weight in weights]
            means, squares = self._moments(weights)
            (beta1, beta2), rate = group["betas"], group["lr"]
            torch._foreach_lerp_(means, gradients, 1 - beta1)
            torch._foreach_mul_(squares, beta2)
            torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
            roots = torch._foreach_sqrt(squares)
            torch._foreach_add_(roots, group["eps"])
            if group["weight_decay"]:
                torch._foreach_mul_(weights, 1 - rate * group["weight_decay"])
            torch._foreach_addcdiv_(weights, means, roots, -rate)

    def _moments(self, weights: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {"mean": torch.zeros_like(weight), "square": torch.zeros_like(weight)}
        states = [self.state[weight] for weight in weights]
        return [state["mean"] for state in states], [state["square"] for state in states]


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups of parameters: those that decay, and LayerNorms and biases, which do not."""
    decays: list[nn.Parameter] = []
    stays: list[nn.Parameter] = []
    norms = {
        id(weight) for module in model.modules() if isinstance(module, nn.LayerNorm) for weight in module.parameters()
    }
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        (stays if id(weight) in norms or name.endswith("bias") else decays).append(weight)
    return [{"params": decays, "weight_decay": weight_decay}, {"params": stays, "weight_decay": 0.0}]
