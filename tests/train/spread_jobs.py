"""Started by torchrun: several pre-training runs, one after another, in one group of processes.

Comes in: a JSON file with a list of jobs. Goes out: the run folders, each with `result-RANK.json` of every process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bertsmith.jobs import pretrain as job
from bertsmith.jobs.pretrain import Observer, make_request, pretrain
from bertsmith.pretraining.settings import Budget
from bertsmith.report import pretraining as report
from bertsmith.train import keeping
from bertsmith.train.distributed import World, joined
from bertsmith.train.speed import Peak

STEPS, CUT = 16, 8
# Batches of a few examples, in parts so small that some processes have nothing to do in some of them.
SETTINGS = {
    "phases": "32:0.5,64:0.5",
    "batch.tokens": 160,
    "batch.part": 48,
    "evaluation.every": 8,
    "checkpoint.every": 8,
    "optimizer.clip": 0.5,
}


def run(
    shards: Path, output: Path, changes: dict[str, Any], *, resume: bool = False, stop_at: int | None = None
) -> Any:
    """One run; what it would measure of the machine, and its report, are left out."""
    keeping.measure_peak = lambda **_: Peak(1e12, "square")
    report.write_report = lambda _: None
    request = make_request(shards, size="tiny", budget=Budget(steps=STEPS), changes={**SETTINGS, **changes})
    return pretrain(None if resume else request, output, resume=resume, observer=Stopping(stop_at))


class Stopping(Observer):
    """Has the process that it is in stop, as a scheduler would."""

    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_step(self, values: dict[str, float], progress: Any, total: int) -> None:
        """A line of the log."""
        del values, total
        if progress.step == self.step:
            os.kill(os.getpid(), signal.SIGUSR1)


def cut_back(source: Path, target: Path, spread: str) -> None:
    """A run as it was when it had its first checkpoint and a little more, now to be spread in a way of its own."""
    shutil.copytree(source, target)
    shutil.rmtree(target / "model")
    shutil.rmtree(target / "checkpoints" / f"step-{STEPS:06d}")
    assert (target / "checkpoints" / f"step-{CUT:06d}").is_dir()
    content = json.loads((target / "config.json").read_text())
    content["settings"]["spread"] = spread
    (target / "config.json").write_text(json.dumps(content))


def work_off(shards: Path, jobs: list[dict[str, Any]], world: World) -> None:
    """All jobs; a job that has `source` goes on with a run that was cut back."""
    job.joined = lambda: nullcontext(world)
    for each in jobs:
        output, changes = Path(each["output"]), each.get("changes", {})
        if world.is_main and "source" in each:
            cut_back(Path(each["source"]), output, each["spread"])
        world.wait()
        result = run(shards, output, changes, resume="source" in each, stop_at=each.get("stop_at"))
        found = {"step": result.progress.step, "stopped_by": result.stopped_by, "progress": asdict(result.progress)}
        (output / f"result-{world.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined() as this:
        work_off(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), this)
