"""Started by torchrun: several fine-tuning runs, one after another, in one group of processes.

Comes in: a JSON file with a list of jobs. Goes out: the run folders, each with `result-RANK.json` of every process.
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from bertsmith.errors import BertsmithError
from bertsmith.jobs import finetune as job
from bertsmith.jobs.finetune import Observer, make_request
from bertsmith.train import keeping
from bertsmith.train.distributed import World, joined
from bertsmith.train.signals import StopRequest
from bertsmith.train.speed import Peak


class Stopping(Observer):
    """Has the process that it is in stop, as a scheduler would."""

    def __init__(self, step: int | None) -> None:
        self.step, self.stop = step, StopRequest()

    def on_step(self, values: dict[str, float], progress: Any, total: int) -> None:
        """A line of the log."""
        del values, total
        if progress.step == self.step:
            self.stop.receive(signal.SIGUSR1, None)


def run(each: dict[str, Any], changes: dict[str, Any], output: Path, *, resume: bool = False) -> Any:
    """One run; what it would measure of the machine, and its report, are left out."""
    request = make_request(each["model"], kind=each["kind"], train=each["file"], dev=each["file"], changes=changes)
    observer = Stopping(None if resume else each.get("stop_at"))
    return job.finetune(request, output, resume=resume, observer=observer, stop=observer.stop)


def work_off(jobs: list[dict[str, Any]], world: World) -> None:
    """All jobs."""
    job.joined = lambda: nullcontext(world)
    for each in jobs:
        Path(each["output"]).parent.mkdir(parents=True, exist_ok=True)
        try:
            result = run(each, {**each["changes"], "spread": each["spread"]}, Path(each["output"]))
        except BertsmithError as error:
            (Path(each["output"] + f".{world.rank}")).write_text(f"{type(error).__name__}: {error}")
            continue
        found = {"step": result.progress.step, "scores": result.scores, "is_main": result.is_main,
                 "stopped_by": result.stopped_by}  # fmt: skip
        (Path(each["output"]) / f"result-{world.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    keeping.measure_peak = lambda **_: Peak(1e12, "square")
    sys.modules["bertsmith.report.finetuning"] = SimpleNamespace(write_report=lambda folder: None)  # type: ignore[assignment]
    with joined() as this:
        work_off(json.loads(Path(sys.argv[1]).read_text()), this)
