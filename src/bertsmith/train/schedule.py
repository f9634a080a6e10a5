"""Learning rates: functions of the step, as a share of the peak."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SCHEDULES", "faithful_rate", "linear_rate", "one_cycle_rate"]


def faithful_rate(step: int, total: int, warmup: int) -> float:
    """The original's: linear decay counted from step 0, replaced by step/warmup during warm-up: it jumps at the end.

    >>> [round(faithful_rate(step, total=10, warmup=4), 2) for step in (0, 3, 4, 9)]
    [0.0, 0.75, 0.6, 0.1]
    """
    return step / warmup if step < warmup else max(0.0, 1 - step / total)


def linear_rate(step: int, total: int, warmup: int) -> float:
    """Up to the peak in `warmup` steps, then straight down to zero at `total`.

    As `transformers` has it, but for the warm-up, which begins a step later there, at zero.

    >>> [round(linear_rate(step, total=10, warmup=4), 2) for step in (0, 3, 4, 9)]
    [0.25, 1.0, 1.0, 0.17]
    """
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (total - step) / max(total - warmup, 1))


def one_cycle_rate(step: int, total: int, warmup: int) -> float:
    """Up in `warmup` steps, then down along a cosine to nearly nothing."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(total - warmup, 1))))


SCHEDULES: dict[str, Callable[[int, int, int], float]] = {
    "faithful": faithful_rate,
    "linear": linear_rate,
    "one_cycle": one_cycle_rate,
}
