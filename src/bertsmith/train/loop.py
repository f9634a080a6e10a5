"""The loop: a step's data in, weights changed, a record out; evaluations, checkpoints and signals on the way.

It knows no task. A `Work` makes the data of a step and turns it into losses; everything else is handed in as functions.
A step is a pure function of (weights, optimizer, step number, position), so a run that goes on from a checkpoint is
the run that never stopped.

Gradients are those of sums divided by counts over *all* processes and parts, so neither the number of processes nor the
size of the parts changes what a step does, but for what dropout draws.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

import torch

from bertsmith.errors import DivergenceError
from bertsmith.train.distributed import gathered, holding_gradients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from bertsmith.train.checkpoint import Checkpoints, Progress
    from bertsmith.train.distributed import World
    from bertsmith.train.signals import StopRequest

__all__ = ["Cadence", "Hooks", "Loop", "Record", "StepData", "Work"]


@dataclass(frozen=True)
class StepData:
    """This process's share of one step, cut into parts that fit into memory.

    `counts` is what it adds to the global counts; `position` is where the next step goes on; `log` is what proves
    later which examples were read.
    """

    parts: Sequence[Any]
    counts: dict[str, int]
    position: dict[str, int]
    log: dict[str, int] = field(default_factory=dict)


class Work(Protocol):
    """What a run is trained on."""

    def step(self, number: int, position: Mapping[str, int]) -> StepData:
        """The data of a step."""

    def losses(
        self, model: nn.Module, part: Any, counts: Mapping[str, float]
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss of a part, divided by the global counts, and sums for the record."""

    def means(self, sums: Mapping[str, float], counts: Mapping[str, float]) -> dict[str, float]:
        """Figures that people read, from sums and counts over all processes."""


@dataclass(frozen=True)
class Record:
    """One step, as it is logged."""

    step: int
    rate: float
    norm: float
    seconds: float
    counts: dict[str, float]
    figures: dict[str, float]
    log: dict[str, int]


@dataclass(frozen=True)
class Cadence:
    """When things happen, in steps; checkpoints by the clock where no number of steps is given."""

    total: int
    evaluate: int
    checkpoint: int | None = None
    checkpoint_minutes: float = 10.0
    patience: int | None = None  # so many evaluations without a better one are the end

    def saves_at(self, step: int, seconds_since: float) -> bool:
        """Whether a checkpoint is due."""
        if self.checkpoint is not None:
            return step % self.checkpoint == 0
        return seconds_since >= 60 * self.checkpoint_minutes

    def has_waited(self, progress: Progress) -> bool:
        """Whether it is time to give up hope for a better evaluation."""
        if self.patience is None or progress.best_step is None:
            return False
        return progress.step - progress.best_step >= self.patience * self.evaluate


@dataclass(frozen=True)
class Hooks:
    """What happens besides training. `evaluate` gives figures (None: never); the least `cost` of them is the best."""

    evaluate: Callable[[], dict[str, float]] | None
    on_step: Callable[[Record, Progress], None]
    on_evaluation: Callable[[dict[str, float], Progress], None]
    cost: Callable[[dict[str, float]], float] = itemgetter("loss")


@dataclass
class Loop:
    """A run in memory: the model, the model as it is called (spread over processes), and what changes it.

    `before_step` may change weights by itself, given the number of the step and the position: the same for the same.
    """

    work: Work
    model: nn.Module
    forward: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    rate_at: Callable[[int], float]
    clip: float
    seed: int
    world: World
    autocast: torch.dtype | None = None
    before_step: Callable[[nn.Module, int, Mapping[str, int]], None] | None = None

    def run(
        self, progress: Progress, cadence: Cadence, checkpoints: Checkpoints, hooks: Hooks, stop: StopRequest
    ) -> Progress:
        """Train to the end, until patience is, or until a signal; the last state is on disk when this returns."""
        try:
            return self._run(progress, cadence, checkpoints, hooks, stop)
        finally:  # what was begun to be written is written, also where the loss is not finite
            checkpoints.finish()

    def _run(
        self, progress: Progress, cadence: Cadence, checkpoints: Checkpoints, hooks: Hooks, stop: StopRequest
    ) -> Progress:
        saved_at = time.monotonic()
        while progress.step < cadence.total and not cadence.has_waited(progress):
            progress, record = self.take_step(progress)
            hooks.on_step(record, progress)
            if hooks.evaluate and (progress.step % cadence.evaluate == 0 or progress.step == cadence.total):
                progress = self._evaluate(hooks.evaluate, progress, checkpoints, hooks)
            ends = progress.step == cadence.total or cadence.has_waited(progress)
            due = cadence.saves_at(progress.step, time.monotonic() - saved_at)
            stops, saves = self.world.sum([float(bool(stop)), float(due and self.world.is_main)])
            if stops or saves or ends:
                checkpoints.save(self.model, self.optimizers, progress)
                saved_at = time.monotonic()
            if stops or ends:
                break
        return progress

    def measure(self, evaluate: Callable[[], dict[str, float]]) -> dict[str, float]:
        """What `evaluate` gives, without dropout and without gradients."""
        self.model.eval()
        with torch.no_grad():
            return evaluate()

    def decay(self, weight: nn.Parameter, num_steps: int) -> float:
        """The share that the first steps leave of a weight that has no gradient."""
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        (group,) = (group for group in groups if any(weight is one for one in group["params"]))
        rates = (group["peak"] * self.rate_at(step) for step in range(num_steps))
        return math.prod(1 - rate * group["weight_decay"] for rate in rates)

    def take_step(self, progress: Progress) -> tuple[Progress, Record]:
        """One optimizer step."""
        begun = time.perf_counter()
        if self.before_step is not None:
            self.before_step(self.model, progress.step, progress.position)
        data = self.work.step(progress.step, progress.position)
        counts = dict(zip(data.counts, self.world.sum(list(data.counts.values())), strict=True))
        self._seed_dropout(progress.step)
        self.model.train()
        sums = self._accumulate(data.parts, counts)
        norm = self._clip()
        if not math.isfinite(norm):
            raise DivergenceError(
                f"the loss or its gradient is not finite at step {progress.step + 1}; begin a new run with a lower "
                "learning rate (--set optimizer.rate=…)"
            )
        share = self.rate_at(progress.step)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * share
            optimizer.step()
            optimizer.zero_grad()
        totals = dict(zip(sums, self.world.sum([float(value) for value in sums.values()]), strict=True))
        seconds = time.perf_counter() - begun
        after = replace(
            progress,
            step=progress.step + 1,
            tokens=progress.tokens + int(counts["tokens"]),
            seconds=progress.seconds + seconds,
            position=data.position,
        )
        rate = self.optimizers[0].param_groups[0]["lr"]
        figures = self.work.means(totals, counts)
        return after, Record(after.step, rate, norm, seconds, counts, figures, data.log)

    def _accumulate(self, parts: Sequence[Any], counts: Mapping[str, float]) -> dict[str, torch.Tensor]:
        """Gradients of all parts; processes average theirs, so each loss is multiplied by their number."""
        sums: dict[str, torch.Tensor] = {}
        device = self.world.device.type
        for number, part in enumerate(parts, start=1):
            with holding_gradients(self.forward, last=number == len(parts)):
                with torch.autocast(device, self.autocast, enabled=self.autocast is not None):
                    loss, found = self.work.losses(self.forward, part, counts)
                (loss * self.world.size).backward()
            for name, value in found.items():
                sums[name] = sums[name] + value.detach() if name in sums else value.detach()
        return sums

    def _clip(self) -> float:
        weights = [weight for optimizer in self.optimizers for g in optimizer.param_groups for weight in g["params"]]
        return float(gathered(torch.nn.utils.clip_grad_norm_(weights, self.clip)))

    def _seed_dropout(self, step: int) -> None:
        torch.manual_seed(hash((self.seed, step, self.world.rank)) & (2**63 - 1))  # of whole numbers: always the same

    def _evaluate(
        self, evaluate: Callable[[], dict[str, float]], progress: Progress, checkpoints: Checkpoints, hooks: Hooks
    ) -> Progress:
        figures = self.measure(evaluate)
        cost = hooks.cost(figures)
        best = math.inf if progress.best_cost is None else progress.best_cost
        if cost < best:  # never so for a loss that is not a number
            progress = replace(progress, best_cost=cost, best_step=progress.step)
            checkpoints.save(self.model, self.optimizers, progress, best=True)
        hooks.on_evaluation(figures, progress)
        return progress
