"""Optimizers: the original's Adam, who decays, and which optimizer has which weights.

The original's Adam (optimization.py of 2018) differs from torch's: no bias correction, ε outside the square root, and a
decay that is decoupled and multiplied by the learning rate. Not on LayerNorm nor on biases; embeddings do decay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from bertsmith.train.muon import Muon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["BertAdam", "OptimizerKind", "build_optimizers", "decay_groups"]

OptimizerKind = Literal["bert_adam", "adamw", "muon"]


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


def build_optimizers(
    kind: OptimizerKind,
    model: nn.Module,
    *,
    rate: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    scale: Callable[[str], float] = lambda _: 1.0,
) -> list[torch.optim.Optimizer]:
    """The optimizers of a model; every group of parameters has its peak rate under `peak`.

    `scale` gives a parameter's share of the rate, by its name; the matrices that Muon has are not asked.
    """
    matrices = _hidden_matrices(model) if kind == "muon" else {}
    groups = decay_groups(model, weight_decay, without=set(matrices), scale=scale)
    made: list[torch.optim.Optimizer]
    if kind == "bert_adam":
        made = [BertAdam(groups, lr=rate, betas=betas, eps=eps)]
    else:
        made = [torch.optim.AdamW(groups, lr=rate, betas=betas, eps=eps, fused=True)]
    if matrices:
        weights = {id(weight): weight for weight in model.parameters()}
        stacks = [{"params": [weights[key] for key, number in matrices.items() if number == stacked],
                   "stacked": stacked} for stacked in sorted(set(matrices.values()))]  # fmt: skip
        made.append(Muon(stacks, lr=rate, weight_decay=weight_decay))
    for optimizer in made:
        for group in optimizer.param_groups:
            group["peak"] = rate * group.pop("scale", 1.0)
    return made


def _hidden_matrices(model: nn.Module) -> dict[int, int]:
    """The weights of the linear layers in the stack, by identity; with each, how many matrices are stacked in it."""
    found = {}
    for stack in (module for module in model.modules() if isinstance(module, nn.ModuleList)):
        for name, module in stack.named_modules():
            if isinstance(module, nn.Linear) and module.weight.requires_grad:
                found[id(module.weight)] = 3 if name.endswith("qkv") else 1
    return found


def decay_groups(
    model: nn.Module,
    weight_decay: float,
    *,
    without: set[int] | frozenset[int] = frozenset(),
    scale: Callable[[str], float] = lambda _: 1.0,
) -> list[dict[str, Any]]:
    """Groups of parameters: those that decay, and LayerNorms and biases, which do not; apart where `scale` differs."""
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    norms = {
        id(weight) for module in model.modules() if isinstance(module, nn.LayerNorm) for weight in module.parameters()
    }
    for name, weight in model.named_parameters():
        if not weight.requires_grad or id(weight) in without:
            continue
        stays = id(weight) in norms or name.endswith("bias")
        groups.setdefault((-scale(name), stays), []).append(weight)
    return [
        {"params": weights, "weight_decay": 0.0 if stays else weight_decay, "scale": -share}
        for (share, stays), weights in sorted(groups.items(), key=lambda group: group[0])
    ]
