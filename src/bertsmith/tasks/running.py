"""Items through a model, in batches of like lengths, and their outputs in the order of the items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from bertsmith.data.batches import by_token_budget
from bertsmith.model.streams import run_streams
from bertsmith.tasks.task import Criterion, TaskBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from torch import nn

    from bertsmith.tasks.task import Item, Prediction, Task
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["Run", "predict_stream", "run_items"]

_CPU_BUDGET, _GPU_BUDGET = 1536, 32768
_EXAMPLES_AT_ONCE = 2048


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
    on_cpu = torch.device(device).type == "cpu"
    streams = torch.get_num_threads() if on_cpu and not in_order else 1
    budget = _CPU_BUDGET if on_cpu else _GPU_BUDGET
    known = bool(items) and all(item.targets is not None for item in items)
    plain = Criterion()

    def run(numbers: list[int]) -> tuple[list[int], list[np.ndarray], float]:
        with torch.no_grad():
            batch = TaskBatch.of([items[number] for number in numbers], device)
            logits = forward(batch)
            loss = float(task.loss(logits, batch, plain)) if known else 0.0
            return numbers, task.outputs(logits, batch), loss

    outputs: list[Any] = [None] * len(items)
    total = 0.0
    batches = by_token_budget([item.num_tokens for item in items], budget, streams=streams)
    for numbers, found, loss in run_streams(run, batches) if streams > 1 else map(run, batches):
        total += loss
        for number, output in zip(numbers, found, strict=True):
            outputs[number] = output
    return Run(outputs, total / task.weigh(items, plain) if known else None)


def predict_stream(
    task: Task[Any],
    model: nn.Module,
    examples: Iterable[Any],
    tokenizer: Tokenizer,
    *,
    device: torch.device | str = "cpu",
) -> Iterator[tuple[Any, Prediction]]:
    """Each example with its prediction, in order; only some thousand are in memory at a time."""
    for some in _cut_stream(task, examples):
        items = task.encode(some, tokenizer)
        run = run_items(task, lambda batch: task.logits(model, batch), items, device=device)
        yield from zip(some, task.decode(some, items, run.outputs), strict=True)


def _cut_stream(task: Task[Any], examples: Iterable[Any]) -> Iterator[list[Any]]:
    """Some thousand examples at a time, those that are read together never apart."""
    some: list[Any] = []
    for example in examples:
        if len(some) >= _EXAMPLES_AT_ONCE and not task.reads_together(some[-1], example):
            yield some
            some = []
        some.append(example)
    if some:
        yield some
