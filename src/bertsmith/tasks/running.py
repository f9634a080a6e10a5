"""Items through a model, in batches of like lengths, and their outputs in the order of the items."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from bertsmith.data.batches import by_token_budget
from bertsmith.model.streams import run_streams
from bertsmith.tasks.task import Criterion, TaskBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from bertsmith.tasks.task import Item, Task

__all__ = ["Run", "run_batches", "run_items", "token_budget"]

# Tokens in a batch: enough to keep the cores busy, few enough for the activations to stay in cache.
_CPU_BUDGET, _GPU_BUDGET = 1536, 32768


@dataclass(frozen=True)
class Run:
    """What came out: an array an item, and the mean loss where all items say what is right."""

    outputs: list[np.ndarray]
    loss: float | None


def run_items(
    task: Task[Any],
    forward: Callable[[TaskBatch], torch.Tensor],
    items: Sequence[Item],
    *,
    device: torch.device | str = "cpu",
    in_order: bool = False,
) -> Run:
    """All items through `forward`, which gives logits; `in_order`: one batch after the other, the same everywhere."""
    known = bool(items) and all(item.targets is not None for item in items)
    plain = Criterion()
    losses: list[float] = []

    def run(batch: TaskBatch) -> list[np.ndarray]:
        logits = forward(batch)
        if known:
            losses.append(float(task.loss(logits, batch, plain)))
        return task.outputs(logits, batch)

    outputs = run_batches(run, items, device=device, in_order=in_order)
    # An exact sum, because threads end in any order.
    return Run(outputs, math.fsum(losses) / task.weigh(items, plain) if known else None)


def run_batches(
    function: Callable[[TaskBatch], list[np.ndarray]],
    items: Sequence[Item],
    *,
    device: torch.device | str = "cpu",
    in_order: bool = False,
    progress: Callable[[int], object] | None = None,
) -> list[np.ndarray]:
    """What a function says of each item, given batches of them; `progress` is told the size of each batch."""
    streams = torch.get_num_threads() if torch.device(device).type == "cpu" and not in_order else 1

    def run(numbers: list[int]) -> tuple[list[int], list[np.ndarray]]:
        with torch.no_grad():
            return numbers, function(TaskBatch.of([items[number] for number in numbers], device))

    outputs: list[Any] = [None] * len(items)
    batches = by_token_budget([item.num_tokens for item in items], token_budget(device), streams=streams)
    for numbers, found in run_streams(run, batches) if streams > 1 else map(run, batches):
        for number, output in zip(numbers, found, strict=True):
            outputs[number] = output
        if progress is not None:
            progress(len(numbers))
    return outputs


def token_budget(device: torch.device | str) -> int:
    """Tokens in a batch."""
    return _CPU_BUDGET if torch.device(device).type == "cpu" else _GPU_BUDGET
