"""`pretrain`: from shards to a BERT, from scratch or from a model, in one process or many."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from bertsmith.errors import TrainingError
from bertsmith.folders import claimed
from bertsmith.jobs.settling import settle
from bertsmith.pretraining.keeping import Observer
from bertsmith.pretraining.planning import check_disk
from bertsmith.pretraining.request import Request, make_request, read_request
from bertsmith.pretraining.run import PretrainingRun, Result
from bertsmith.train.checkpoint import Progress
from bertsmith.train.distributed import joined
from bertsmith.train.signals import listening

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Observer", "Request", "Result", "make_request", "pretrain"]


def pretrain(
    request: Request | None,
    output: Path,
    *,
    resume: bool = False,
    dry_run: bool = False,
    observer: Observer | None = None,
) -> Result:
    """Train as asked (`make_request`); with `resume`, go on with the run in `output`."""
    with joined() as world:
        watcher = observer if observer is not None and world.is_main else Observer()
        settled = partial(settle, request, output, resume=resume, read=read_request, missing="--shards")
        request = world.decide(partial(settled, note=watcher.on_note))
        run = world.together(partial(PretrainingRun, request, output, world, watcher))
        plan = run.plan(measure=dry_run)
        if dry_run:
            try:
                check_disk(plan, output)
            except TrainingError:  # which a plan explains
                watcher.on_plan(plan, run.request)
                raise
            return Result(output, plan, Progress(), {}, {}, [], is_main=world.is_main)
        watcher.on_plan(plan, run.request)
        with ExitStack() as claim:
            world.decide(partial(claim.enter_context, claimed(output)))
            with listening() as stop:
                result = run.train(plan, stop)
        if world.is_main and result.model is not None:
            from bertsmith.report.pretraining import write_report  # loads matplotlib

            write_report(output)
        return result
