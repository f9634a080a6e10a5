"""The plan of a run before it begins: steps, tokens, memory, time and disk."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bertsmith.errors import TrainingError

if TYPE_CHECKING:
    from pathlib import Path

    from bertsmith.config import BertConfig
    from bertsmith.pretraining.settings import Budget, Settings

__all__ = ["RunPlan", "check_disk", "plan_run", "steps_for"]

_FLOAT = 4
_COPIES_IN_MEMORY = 5  # weights, gradients, two moments, a snapshot being written
_COPIES_ON_DISK = 3  # weights and two moments
_LOG_BYTES_PER_STEP = 600
_LOSS_BLOCK = 3 * 25 * 2**20


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


def steps_for(budget: Budget, settings: Settings, batches_per_epoch: int, seconds_per_step: list[float]) -> int:
    """The number of steps that a budget comes to. For minutes, `seconds_per_step` has the time of each phase."""
    if budget.steps is not None:
        return budget.steps
    if budget.tokens is not None:
        mean = sum(phase.share * settings.batch_tokens(phase) for phase in settings.phases)
        return max(1, round(budget.tokens / mean))
    if budget.epochs is not None:
        return max(1, round(budget.epochs * batches_per_epoch))
    assert budget.minutes is not None
    mean = sum(phase.share * seconds for phase, seconds in zip(settings.phases, seconds_per_step, strict=True))
    return max(1, round(60 * budget.minutes / mean))


def plan_run(
    config: BertConfig, parameters: int, settings: Settings, steps: int, epoch_tokens: int, seconds: float | None
) -> RunPlan:
    """Sizes by arithmetic."""
    ends = [0, *settings.phase_ends(steps)]
    per_phase = zip(settings.phases, ends, ends[1:], strict=False)
    tokens = sum((end - begin) * settings.batch_tokens(phase) for phase, begin, end in per_phase)
    weights = _FLOAT * parameters
    checkpoints = settings.checkpoint.keep + 2  # the best, and one being written
    part = min(settings.batch.part, max(settings.batch_tokens(phase) for phase in settings.phases))
    width = 10 * config.hidden_size + 3 * config.intermediate_size  # what each layer keeps of a token for the way back
    activations = _FLOAT * part * config.num_hidden_layers * width
    return RunPlan(
        parameters=parameters,
        steps=steps,
        tokens=tokens,
        epochs=tokens / max(epoch_tokens, 1),
        memory_bytes=_COPIES_IN_MEMORY * weights + activations + _LOSS_BLOCK,
        disk_bytes=(checkpoints * _COPIES_ON_DISK + 2) * weights + steps * _LOG_BYTES_PER_STEP,
        seconds=seconds,
    )


def check_disk(plan: RunPlan, folder: Path) -> None:
    """Refuse to begin what would not fit."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < plan.disk_bytes:
        raise TrainingError(
            f"{folder}: the run needs {plan.disk_bytes / 2**20:,.0f} MiB of disk and {free / 2**20:,.0f} MiB are free; "
            "make room, name another folder, or keep fewer checkpoints (--set checkpoint.keep=1)"
        )
