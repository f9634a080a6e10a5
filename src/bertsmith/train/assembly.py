"""What every run begins with: a loop put together from settings, and a folder that is new or goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from bertsmith.folders import remove_unfinished
from bertsmith.train.checkpoint import Progress, drop_later_bests, latest_checkpoint, load_checkpoint
from bertsmith.train.distributed import spread_model
from bertsmith.train.loop import Loop
from bertsmith.train.optimizer import build_optimizers
from bertsmith.train.request import CONFIG_FILE, write_request
from bertsmith.train.schedule import SCHEDULES
from bertsmith.train.speed import working_type

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

    from bertsmith.model.heads import BertModel
    from bertsmith.train.distributed import World
    from bertsmith.train.loop import Work
    from bertsmith.train.request import RunRequest
    from bertsmith.train.settings import RunSettings

__all__ = ["assemble", "open_run"]


def assemble(
    work: Work,
    objective: nn.Module,
    model: BertModel,
    settings: RunSettings,
    world: World,
    total: int,
    *,
    scale: Callable[[str], float] = lambda _: 1.0,
) -> Loop:
    """A loop at step 0. `objective` is what is called, and holds the `model`; `scale` is that of `build_optimizers`."""
    chosen, schedule = settings.optimizer, settings.schedule
    layers = list(model.encoder.layers)
    if settings.compile:
        for layer in layers:
            layer._finish = torch.compile(layer._finish, dynamic=True)  # type: ignore[assignment, arg-type]
    forward = spread_model(objective, layers, world, settings.spread, methods=("forward_rows",))
    optimizers = build_optimizers(
        chosen.kind,
        model,
        rate=chosen.rate,
        betas=chosen.betas,
        eps=chosen.eps,
        weight_decay=chosen.weight_decay,
        scale=scale,
    )
    warmup = round(schedule.warmup * total)
    dtype = working_type(world.device)
    return Loop(
        work=work,
        model=model,
        forward=forward,
        optimizers=optimizers,
        rate_at=lambda step: SCHEDULES[schedule.kind](step, total, warmup),
        clip=chosen.clip,
        seed=settings.seed,
        world=world,
        autocast=None if dtype == torch.float32 else dtype,
    )


def open_run(folder: Path, loop: Loop, request: RunRequest, note: Callable[[str], object]) -> Progress:
    """Make the run folder, or go on with the last checkpoint in it; all processes must call it."""
    latest = None
    if loop.world.is_main:
        folder.mkdir(parents=True, exist_ok=True)
        logs, results = ("metrics.jsonl", "examples.jsonl"), ("predictions.jsonl", "result.json", "report.html")
        remove_unfinished(folder, CONFIG_FILE, "model", *logs, *results)
        write_request(folder, request)
        latest = latest_checkpoint(folder / "checkpoints")
    latest = loop.world.tell(latest)
    progress = Progress() if latest is None else load_checkpoint(latest, loop.model, loop.optimizers)
    there = loop.world.is_main and drop_later_bests(folder / "checkpoints", progress.step)
    if not loop.world.tell(there):
        progress = replace(progress, best_cost=None, best_step=None)
    if latest is not None:
        note(f"going on from step {progress.step:,}")
    return progress
