"""`pretrain`: from shards to a BERT, from scratch or from a model, in one process or many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertsmith.errors import InputError
from bertsmith.pretraining.keeping import Observer
from bertsmith.pretraining.planning import check_disk
from bertsmith.pretraining.request import CONFIG_FILE, Request, make_request, read_request, take_up
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
        request = world.tell(_settle(request, output, watcher, resume=resume) if world.is_main else None)
        assert request is not None
        run = PretrainingRun(request, output, world, watcher)
        plan = run.plan(measure=dry_run)
        if dry_run:
            check_disk(plan, output)
            return Result(output, plan, Progress(), {}, {}, [], is_main=world.is_main)
        watcher.on_plan(plan, run.request)
        with listening() as stop:
            result = run.train(plan, stop)
        if world.is_main and result.model is not None:
            from bertsmith.report.pretraining import write_report  # loads matplotlib

            write_report(output)
        return result


def _settle(request: Request | None, output: Path, watcher: Observer, *, resume: bool) -> Request:
    """A new run, or one that goes on with its own configuration."""
    if resume and (output / CONFIG_FILE).is_file():
        stored = read_request(output)
        return stored if request is None else take_up(request, stored)
    if output.exists() and not (resume and _is_empty(output)):
        remedy = (
            "it holds no run to go on with; name a new folder"
            if resume
            else "go on with --resume, or name a new folder"
        )
        raise InputError(f"{output}: exists already; {remedy}")
    if request is None:
        raise InputError(f"{output}: there is nothing to resume, and no --shards to begin with")
    if resume:
        watcher.on_note(f"{output}: nothing to resume, so a new run begins")
    return request


def _is_empty(output: Path) -> bool:
    """Whether nothing of a run, or of anything else, is in a folder yet; a file is not."""
    return output.is_dir() and not any(output.iterdir())
