"""Two processes fine-tune as one does: real processes on the CPU, as DDP and with the model in pieces."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from bertsmith.train.metrics import read_log
from finetuning import spread_tasks
from finetuning.small_tasks import QUICK

# Parts so small that some processes have nothing to do in some of them.
CHANGES = {**QUICK, "epochs": 2, "batch.part": 24, "optimizer.clip": 0.5, "layer_decay": 0.9}
JOBS = {
    "ddp-segments": ("classify", "ddp", {"task.long": {"mode": "segments", "pool": "attention"}, "task.max_length": 8}),
    "fsdp": ("classify", "fsdp", {"optimizer.weight_decay": 1.0}),
    "fsdp-frozen": ("tag", "fsdp", {"class_weights": "balanced", "freeze": 1}),
}  # fmt: skip


def assert_same_run(found, expected):
    """The same losses, scores and weights."""
    ours, theirs = (list(read_log(path / "metrics.jsonl")) for path in (found, expected))
    assert [(entry["kind"], entry["step"]) for entry in ours] == [(entry["kind"], entry["step"]) for entry in theirs]
    for one, other in zip(ours, theirs, strict=True):
        names = [name for name in one if name in ("loss", "norm", "rate", "tokens", "f1", "accuracy")]
        assert {name: one[name] for name in names} == pytest.approx({name: other[name] for name in names}, rel=1e-4)
    weights, others = (load_file(folder / "model" / "model.safetensors") for folder in (found, expected))
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        if weight.dim() > 1:  # some biases change nothing, and learn from rounding alone
            torch.testing.assert_close(
                weight, others[name], rtol=1e-3, atol=1e-4, msg=lambda text, name=name: name + text
            )
    if (expected / "model" / "bertsmith.safetensors").exists():
        extras, others = (load_file(folder / "model" / "bertsmith.safetensors") for folder in (found, expected))
        torch.testing.assert_close(
            extras["segments.query.weight"], others["segments.query.weight"], rtol=1e-3, atol=1e-4
        )
    assert len((found / "predictions.jsonl").read_bytes().splitlines()) == 12


def spread_out(jobs, tmp_path):
    """Two processes do all of them."""
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [spread_tasks.__file__, str(tmp_path / "jobs.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[:6000]


def results_of(folder):
    """What each process says of a run."""
    return [json.loads((folder / f"result-{rank}.json").read_text()) for rank in (0, 1)]


def test_two_processes_train_as_one_stop_as_one_and_refuse_as_one(small_model, kinds, tmp_path):
    """One group of processes for all: to begin it takes longer than the runs."""
    jobs = [
        {"kind": kind, "spread": spread, "file": kinds[kind][-1], "model": str(small_model),
         "changes": {**CHANGES, **more}, "output": str(tmp_path / name)}
        for name, (kind, spread, more) in JOBS.items()
    ]  # fmt: skip
    stopped = {**jobs[1], "output": str(tmp_path / "stopped"), "stop_at": 4}
    broken = {**jobs[0], "file": str(tmp_path / "broken.tsv"), "output": str(tmp_path / "broken")}
    (tmp_path / "broken.tsv").write_text("text\tlabel\na good river\n")
    spread_out([*jobs, stopped, broken], tmp_path)

    for each in jobs:
        name = each["output"]
        alone = tmp_path / "alone" / name.rsplit("/", 1)[1]
        spread_tasks.run(each, each["changes"], alone)
        assert_same_run(tmp_path / name, alone)
        results = results_of(tmp_path / name)
        assert [result["step"] for result in results] == [6, 6]
        assert results[0]["scores"] == results[1]["scores"]
        assert [result["is_main"] for result in results] == [True, False]

    # In pieces over two processes, then in one: the same run.
    assert [(result["step"], result["stopped_by"]) for result in results_of(tmp_path / "stopped")] == [
        (4, "SIGUSR1"), (4, "another process"),
    ]  # fmt: skip
    assert not (tmp_path / "stopped" / "model").exists()
    spread_tasks.run(stopped, {**stopped["changes"], "spread": "fsdp"}, tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "stopped", tmp_path / "alone" / "fsdp")

    # A broken file ends all, and one process says why.
    assert "broken.tsv, line 2: " in (tmp_path / "broken.0").read_text()
    assert (tmp_path / "broken.1").read_text().startswith("SaidByMainError")
    assert not (tmp_path / "broken").exists()
