"""Fine-tuning as the loop sees it: the items of a step, and their loss.

Which items a step reads follows from (seed, epoch, batch): an epoch is a permutation of all, cut into batches.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from bertsmith.data.examples import cut_by_tokens
from bertsmith.data.stream import share_of
from bertsmith.model.operations import encoder_operations
from bertsmith.tasks.task import TaskBatch
from bertsmith.train.loop import StepData

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bertsmith.config import BertConfig
    from bertsmith.finetuning.settings import Settings
    from bertsmith.tasks.task import Criterion, Item, Task
    from bertsmith.train.distributed import World

__all__ = ["FinetuningWork", "Objective"]


class Objective(nn.Module):
    """The model as it is trained: a batch in, the sum of its losses out; or the logits alone."""

    def __init__(self, model: nn.Module, task: Task[Any], criterion: Criterion) -> None:
        super().__init__()
        self.model, self.task, self.criterion = model, task, criterion

    def forward(self, batch: TaskBatch, *, logits: bool = False) -> torch.Tensor:
        """See `Task.loss` and `Task.logits`."""
        found = self.task.logits(self.model, batch)
        return found if logits else self.task.loss(found, batch, self.criterion)


class FinetuningWork:
    """The steps of a run over the items of a training file."""

    def __init__(
        self,
        items: Sequence[Item],
        task: Task[Any],
        criterion: Criterion,
        settings: Settings,
        config: BertConfig,
        world: World,
    ) -> None:
        self.items, self.task, self.criterion = items, task, criterion
        self.settings, self.config, self.world = settings, config, world
        self._lengths = np.array([item.num_tokens for item in items])
        self._epoch: Callable[[int], list[np.ndarray]] = lru_cache(maxsize=2)(self.batches)

    def batches(self, epoch: int) -> list[np.ndarray]:
        """The items of an epoch's steps, by number."""
        order = np.random.default_rng([self.settings.seed, epoch]).permutation(len(self.items))
        batch = self.settings.batch
        if batch.tokens is None:
            cuts = np.arange(batch.size, len(order), batch.size)
        else:
            cuts = cut_by_tokens(self._lengths[order], batch.tokens)[1:-1]
        return np.split(order, cuts)

    def step(self, number: int, position: Mapping[str, int]) -> StepData:
        """This process's share of a step; each process has as many parts as the others."""
        del number
        epoch, place = position.get("epoch", 0), position.get("batch", 0)
        rows = self._epoch(epoch)[place]
        lengths = self._lengths[rows]
        num_parts = math.ceil(lengths.sum() / (self.settings.batch.part * self.world.size))
        count, first = num_parts * self.world.size, num_parts * self.world.rank
        shares = [rows[share_of(lengths, first + part, count)] for part in range(num_parts)]
        mine = [self.items[row] for share in shares for row in share]
        after = {"epoch": epoch, "batch": place + 1}
        if after["batch"] == len(self._epoch(epoch)):
            after = {"epoch": epoch + 1, "batch": 0}
        counts: dict[str, Any] = {
            "tokens": sum(item.num_tokens for item in mine),
            "items": len(mine),
            "weight": self.task.weigh(mine, self.criterion),
            "operations": self.count_operations(mine),
        }
        return StepData([self._part(share, rows) for share in shares], counts, after, {"epoch": epoch, "batch": place})

    def _part(self, share: np.ndarray, rows: np.ndarray) -> tuple[TaskBatch, float]:
        """A batch and its weight: 0 for one that only keeps this process in step with the others."""
        chosen = share if len(share) else rows[:1]
        return TaskBatch.of([self.items[row] for row in chosen], self.world.device), float(len(share) > 0)

    def losses(
        self, model: nn.Module, part: tuple[TaskBatch, float], counts: Mapping[str, float]
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss over its global weight."""
        batch, weight = part
        total = model(batch) * weight
        return total / max(counts["weight"], 1e-9), {"loss": total}

    def means(self, sums: Mapping[str, float], counts: Mapping[str, float]) -> dict[str, float]:
        """The mean loss."""
        return {"loss": sums["loss"] / max(counts["weight"], 1e-9)}

    def count_operations(self, items: Sequence[Item]) -> int:
        """What the matrix products of a step on these items need."""
        lengths: list[int] = []
        read: list[int] = []
        for item in items:
            lengths.extend(len(sequence) for sequence in item.ids)
            if item.read is not None:
                read.append(len(item.read))
            else:
                read.extend(self.task.num_read(len(sequence)) for sequence in item.ids)
        return 3 * encoder_operations(self.config, lengths, read)
