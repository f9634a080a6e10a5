"""`finetune`: a model, a task and its files to a model that does the task; once, with several seeds, or as a search."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from bertsmith.errors import ConfigError, InputError
from bertsmith.finetuning.keeping import Observer
from bertsmith.finetuning.many import Summary, Trial, opened, run_grid, run_seeds
from bertsmith.finetuning.request import Request, make_request, read_request, with_digests
from bertsmith.finetuning.run import FinetuningRun, Result, finished
from bertsmith.finetuning.study import check_free, run_study
from bertsmith.folders import claimed
from bertsmith.jobs.settling import settle
from bertsmith.train.distributed import joined
from bertsmith.train.signals import listening

if TYPE_CHECKING:
    from pathlib import Path

    from bertsmith.train.signals import StopRequest

__all__ = [
    "Observer",
    "Request",
    "Result",
    "Search",
    "Summary",
    "Trial",
    "check_free",
    "finetune",
    "finetune_many",
    "make_request",
    "refuse_several_processes",
]

Search = Literal["grid", "optuna"]


def finetune(
    request: Request | None,
    output: Path,
    *,
    resume: bool = False,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
) -> Result:
    """Train as asked (`make_request`); with `resume`, go on with the run in `output`.

    `stop` is that of a caller who listens to signals; without one this does.
    """
    with joined() as world:
        watcher = observer if observer is not None and world.is_main else Observer()
        settled = partial(settle, request, output, resume=resume, read=read_request, missing="model and files")
        request = world.decide(partial(settled, note=watcher.on_note))
        done = world.decide(lambda: finished(output))
        if done is not None:
            world.decide(partial(with_digests, request))  # or its scores are not those of these files
            watcher.on_note(f"{output}: is at its end already")
            if done.model is None or not done.model.is_dir():
                raise InputError(f"{output}: is at its end, and its model is gone; begin a new run in another folder")
            if world.is_main:  # of a run that was killed at its very end
                shutil.rmtree(output / "checkpoints", ignore_errors=True)
            result = replace(done, is_main=world.is_main)
        else:
            run = world.together(partial(FinetuningRun, request, output, world, watcher))
            with ExitStack() as claim:
                world.decide(partial(claim.enter_context, claimed(output)))
                with listening() if stop is None else nullcontext(stop) as signals:
                    result = run.train(signals)
        if world.is_main and result.model is not None and not (done and (output / "report.html").is_file()):
            from bertsmith.report.finetuning import write_report  # loads matplotlib

            write_report(output)
        return result


def finetune_many(
    request: Request,
    output: Path,
    *,
    seeds: int | None = None,
    search: Search | None = None,
    trials: int = 20,
    resume: bool = False,
    observer: Observer | None = None,
) -> Summary:
    """The same with several seeds, or a search for the best settings; each run is a folder in `output`.

    A search replaces what the request has of the settings that it looks for; `check_free` asks whether any was chosen.
    """
    refuse_several_processes()
    if (seeds is None) == (search is None):
        raise ConfigError("give either a number of seeds or a search, one after the other")
    if (seeds is not None and seeds < 1) or trials < 1:
        raise ConfigError("the number of runs must be 1 or more")
    if search is not None:
        check_free(request, search, ())
    if request.dev is None:
        raise InputError("there is nothing to compare runs by; give a --dev file")
    request = with_digests(request)  # all runs read the same files
    watcher = observer or Observer()
    with opened(output, search or "seeds", resume=resume, note=watcher.on_note), listening() as stop:
        run_one = partial(_run_one, observer=watcher, stop=stop)
        if seeds is not None:
            summary = run_seeds(request, output, seeds, run_one, stop, watcher)
        elif search == "grid":
            summary = run_grid(request, output, run_one, stop, watcher)
        else:
            summary = run_study(request, output, trials, run_one, stop, watcher)
    if summary.model is not None:
        from bertsmith.report.several import write_report

        write_report(output)
    return summary


def refuse_several_processes() -> None:
    """Many runs, one after the other, are decided on by one process."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("several runs are not spread over processes; start them without torchrun, or one by one")


def _run_one(
    request: Request, folder: Path, other: Observer | None, *, observer: Observer, stop: StopRequest
) -> Result:
    return finetune(request, folder, resume=folder.exists(), observer=other or observer, stop=stop)
