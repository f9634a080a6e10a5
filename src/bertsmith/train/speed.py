"""What the machine could do: the rate of plain matrix products, to compare a training step with."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

__all__ = ["PEAK_SHAPES", "Peak", "measure_peak", "working_type"]

# Shapes (rows, inner, columns) of x @ w that stand for what a machine can do.
PEAK_SHAPES = {"square": (2048, 2048, 2048), "deep": (4096, 1536, 384), "wide": (4096, 768, 3072)}
_WARM_UP = 2


@dataclass(frozen=True)
class Peak:
    """The best rate in operations a second that this machine shows on plain matrix products."""

    flops: float
    shape: str


def working_type(device: torch.device) -> torch.dtype:
    """What matrix products of a training step are done in: bfloat16 on GPUs that have it."""
    half = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if half else torch.float32


def measure_peak(repeats: int = 15, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Peak:
    """Best of the three named shapes, each by its median, into memory that is already there."""
    rates = {}
    for name, (rows, inner, columns) in PEAK_SHAPES.items():
        x = torch.randn(rows, inner, device=device, dtype=dtype)
        w = torch.randn(inner, columns, device=device, dtype=dtype)
        out = torch.empty(rows, columns, device=device, dtype=dtype)
        seconds = []
        with torch.no_grad():
            for _ in range(repeats + _WARM_UP):
                begun = time.perf_counter()
                torch.mm(x, w, out=out)
                if device != "cpu":
                    torch.cuda.synchronize()
                seconds.append(time.perf_counter() - begun)
        rates[name] = 2 * rows * inner * columns / statistics.median(seconds[_WARM_UP:])
    best = max(rates, key=lambda name: rates[name])
    return Peak(rates[best], best)
