"""Started by torchrun: several fine-tuning runs, one after another, in one group of processes.

Comes in: a JSON file with a list of jobs. Goes out: the run folders, each with `result-RANK.json` of every process.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from bertsmith.jobs import finetune as job
from bertsmith.jobs.finetune import make_request
from bertsmith.train import keeping
from bertsmith.train.distributed import World, joined
from bertsmith.train.speed import Peak


def run(each: dict[str, Any], changes: dict[str, Any], output: Path) -> Any:
    """One run; what it would measure of the machine, and its report, are left out."""
    request = make_request(each["model"], kind=each["kind"], train=each["file"], dev=each["file"], changes=changes)
    return job.finetune(request, output)


def work_off(jobs: list[dict[str, Any]], world: World) -> None:
    """All jobs."""
    job.joined = lambda: nullcontext(world)
    for each in jobs:
        result = run(each, {**each["changes"], "spread": each["spread"]}, Path(each["output"]))
        found = {"step": result.progress.step, "scores": result.scores, "is_main": result.is_main}
        (Path(each["output"]) / f"result-{world.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    keeping.measure_peak = lambda **_: Peak(1e12, "square")
    sys.modules["bertsmith.report.finetuning"] = SimpleNamespace(write_report=lambda folder: None)  # type: ignore[assignment]
    with joined() as this:
        work_off(json.loads(Path(sys.argv[1]).read_text()), this)
