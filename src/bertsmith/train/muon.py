"""Muon: the momentum of a hidden matrix is replaced by the nearest matrix with all singular values about one.

As torch's own (`torch.optim.Muon`), with three differences: it works in float32 where a CPU has no bfloat16; several
matrices stacked in one parameter (query, key, value) are each made orthogonal on their own; and all matrices of one
shape go through the iteration together, or a share of them in each of several processes. Steps are scaled to the size
of Adam's (0.2·√(longer side); "Muon is Scalable for LLM Training", section 2.2), so that both share one learning rate.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor

from bertsmith.train.distributed import placed_like, shared_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Muon", "orthogonalize"]

_QUINTIC = (3.4445, -4.7750, 2.0315)
_ADAM_SIZE = 0.2


class Muon(torch.optim.Optimizer):
    """For parameters of two dimensions; `stacked` in a group says how many matrices stand above each other in each."""

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float = 1e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        iterations: int = 5,
    ) -> None:
        settings = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "iterations": iterations}
        super().__init__(params, {**settings, "stacked": 1})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        assert closure is None, "nothing here needs the loss again"
        for group in self.param_groups:
            alike: dict[torch.Size, list[tuple[torch.Tensor, torch.Tensor]]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    alike[weight.shape].append((weight, self._momentum(weight, group["momentum"])))
            for shape, pairs in alike.items():
                self._update(pairs, shape, group)

    def _momentum(self, weight: torch.Tensor, momentum: float) -> torch.Tensor:
        """Nesterov's: a look ahead of the running mean."""
        assert weight.grad is not None
        if not self.state[weight]:
            self.state[weight] = {"mean": torch.zeros_like(weight)}
        mean = self.state[weight]["mean"].lerp_(weight.grad, 1 - momentum)
        return weight.grad.lerp(mean, momentum)

    def _update(self, pairs: list[tuple[torch.Tensor, torch.Tensor]], shape: torch.Size, group: dict[str, Any]) -> None:
        stacked, rate = group["stacked"], group["lr"]
        rows = shape[0] // stacked
        matrices = torch.cat([_whole(ahead).view(stacked, rows, shape[1]) for _, ahead in pairs])
        straight = shared_out(lambda some: orthogonalize(some, group["iterations"]), matrices)
        size = rate * _ADAM_SIZE * max(rows, shape[1]) ** 0.5
        for (weight, _), direction in zip(pairs, straight.reshape(len(pairs), *shape), strict=True):
            weight.mul_(1 - rate * group["weight_decay"])
            weight.add_(placed_like(direction.to(weight.dtype), weight), alpha=-size)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def orthogonalize(matrices: torch.Tensor, iterations: int = 5) -> torch.Tensor:
    """(n, rows, columns): each with its singular values brought near one, by a quintic Newton-Schulz iteration.

    bfloat16 on a GPU, as the iteration forgives it; float32 elsewhere.
    """
    x = matrices.to(torch.bfloat16 if matrices.is_cuda else torch.float32)
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    a, b, c = _QUINTIC
    for _ in range(iterations):
        square = x @ x.mT
        mixed = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, mixed, x, beta=a)
    return x.mT if tall else x
