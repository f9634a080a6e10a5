"""The plan of a run before it begins: steps, tokens, memory, time and disk."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bertsmith.errors import TrainingError

if TYPE_CHECKING:
    from pathlib import Path

    from bertsmith.config import BertConfig
    from bertsmith.pretraining.settings import Budget, Settings

__all__ = ["Epoch", "RunPlan", "Timing", "check_disk", "evaluation_interval", "plan_run", "steps_for"]

_FLOAT = 4
_COPIES_IN_MEMORY = 5  # weights, gradients, two moments, a snapshot being written
_COPIES_ON_DISK = 3  # weights and two moments
_KEPT_WEIGHTS = 2.3  # before and after dropout, and what was dropped, a byte each
_LOG_BYTES_PER_STEP = 600
_LOSS_BLOCK = 3 * 25 * 2**20
_NUM_EVALUATIONS = 20


@dataclass(frozen=True)
class RunPlan:
    """What a run will take. `seconds` is None where nothing was measured."""

    parameters: int
    steps: int
    tokens: int
    epochs: float
    memory_bytes: int
    disk_bytes: int
    seconds: float | None = None


class Epoch(NamedTuple):
    """The train split at the length of a phase."""

    batches: int
    tokens: int


@dataclass(frozen=True)
class Timing:
    """What a rehearsal found: the seconds of a step in each phase, and of an evaluation."""

    steps: list[float]
    evaluation: float = 0.0

    def seconds(self, settings: Settings, total: int) -> float:
        """Of a run of so many steps."""
        return total * self.step(settings) + (1 + total // evaluation_interval(settings, total)) * self.evaluation

    def step(self, settings: Settings) -> float:
        """Of a step, over all phases."""
        return sum(phase.share * seconds for phase, seconds in zip(settings.phases, self.steps, strict=True))


def evaluation_interval(settings: Settings, total: int) -> int:
    """How many steps are between two evaluations."""
    return settings.evaluation.every or max(1, total // _NUM_EVALUATIONS)


def steps_for(budget: Budget, settings: Settings, epochs: list[Epoch], timing: Timing | None = None) -> int:
    """The number of steps that a budget comes to; `epochs` has one for each phase, `timing` is for minutes."""
    phases = list(zip(settings.phases, epochs, strict=True))
    if budget.steps is not None:
        return budget.steps
    if budget.tokens is not None:
        return max(1, round(budget.tokens / sum(phase.share * epoch.tokens / epoch.batches for phase, epoch in phases)))
    if budget.epochs is not None:
        return max(1, round(budget.epochs / sum(phase.share / epoch.batches for phase, epoch in phases)))
    assert budget.minutes is not None
    assert timing is not None
    seconds, step = 60 * budget.minutes, timing.step(settings)
    if settings.evaluation.every is not None:
        return max(1, round(seconds / (step + timing.evaluation / settings.evaluation.every)))
    evaluations = min((_NUM_EVALUATIONS + 1) * timing.evaluation, seconds / 2)  # there is to be some training too
    return max(1, round((seconds - evaluations) / step))


def plan_run(
    config: BertConfig, parameters: int, settings: Settings, steps: int, epochs: list[Epoch], timing: Timing | None
) -> RunPlan:
    """Sizes by arithmetic."""
    ends = [0, *settings.phase_ends(steps)]
    phases = [(stop - start, epoch) for start, stop, epoch in zip(ends, ends[1:], epochs, strict=False)]
    weights = _FLOAT * parameters
    checkpoints = settings.checkpoint.keep + 2  # the best, and one being written
    part = min(settings.batch.part, max(settings.batch_tokens(phase) for phase in settings.phases))
    width = 10 * config.hidden_size + 3 * config.intermediate_size  # what each layer keeps of a token for the way back
    if settings.dropout:  # then torch keeps every weight of attention, on a CPU
        longest = max(phase.max_length for phase in settings.phases)
        width += round(_KEPT_WEIGHTS * config.num_attention_heads * longest)
    activations = _FLOAT * part * config.num_hidden_layers * width
    return RunPlan(
        parameters=parameters,
        steps=steps,
        tokens=round(sum(count * epoch.tokens / epoch.batches for count, epoch in phases)),
        epochs=sum(count / epoch.batches for count, epoch in phases),
        memory_bytes=_COPIES_IN_MEMORY * weights + activations + _LOSS_BLOCK,
        disk_bytes=(checkpoints * _COPIES_ON_DISK + 2) * weights + steps * _LOG_BYTES_PER_STEP,
        seconds=None if timing is None else timing.seconds(settings, steps),
    )


def check_disk(plan: RunPlan, folder: Path) -> None:
    """Refuse to begin, or to go on with, what would not fit beside what the run has written already."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    needed = plan.disk_bytes - sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if free < needed:
        raise TrainingError(
            f"{folder}: the run needs {needed / 2**20:,.0f} MiB of disk and {free / 2**20:,.0f} MiB are free; "
            "make room, name another folder, or keep fewer checkpoints (--set checkpoint.keep=1)"
        )
