"""Many processes do what one does: real processes on the CPU, on a data set that is real but small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bertsmith.config import named_size
from bertsmith.data.shards import ShardSet
from bertsmith.model.heads import build
from bertsmith.pretraining.evaluation import Evaluation
from bertsmith.pretraining.request import make_request
from bertsmith.pretraining.work import Objective, PretrainingWork
from bertsmith.train.distributed import World, joined, spread_model
from bertsmith.train.metrics import read_log
from bertsmith.vocab.tokenizer import Tokenizer
from train import spread_jobs
from train.spread_jobs import CUT, SETTINGS, STEPS, cut_back

TOLERANCE = 1e-4


def torchrun(*arguments, code=0):
    """Two processes of one thread each; what they printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == code, done.stderr[-4000:]
    return done


@pytest.fixture
def alone(shards, tmp_path, monkeypatch):
    """Runs in this one process, by what they change."""
    monkeypatch.setattr("bertsmith.train.keeping.measure_peak", None)  # put back afterwards what `run` replaces
    monkeypatch.setattr("bertsmith.report.pretraining.write_report", None)

    def run(name, changes=None, **options):
        result = spread_jobs.run(shards, tmp_path / name, changes or {}, **options)
        assert result.progress.step == STEPS
        return tmp_path / name

    return run


def assert_same_run(found, expected):
    """The same log, each line once; the same examples; the same model."""
    lines = [
        [entry for entry in read_log(path / "metrics.jsonl") if entry["kind"] != "fill"] for path in (found, expected)
    ]
    ours, theirs = ({(entry["kind"], entry["step"]): entry for entry in entries} for entries in lines)
    assert len(ours) == len(lines[0])
    assert list(ours) == list(theirs)
    assert [step for kind, step in ours if kind == "train"] == list(range(1, STEPS + 1))
    assert [step for kind, step in ours if kind == "eval"] == [0, CUT, STEPS]
    for key, entry in ours.items():
        names = [name for name in entry if name in ("mlm_loss", "pair_loss", "loss", "norm", "rate", "tokens")]
        assert {name: entry[name] for name in names} == pytest.approx(
            {name: theirs[key][name] for name in names}, rel=TOLERANCE
        ), key
    assert (found / "examples.jsonl").read_bytes() == (expected / "examples.jsonl").read_bytes()
    kept = {path.name for path in (found / "checkpoints").iterdir()}
    assert kept == {path.name for path in (expected / "checkpoints").iterdir()}
    weights, others = (load_file(folder / "model" / "model.safetensors") for folder in (found, expected))
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, others[name], rtol=1e-3, atol=1e-4, msg=lambda text, name=name: name + text)


def test_two_processes_on_the_command_line_train_as_one(shards, alone, tmp_path):
    """Losses, norms, examples, model: as one process has them, and written once."""
    changes = [part for name, value in SETTINGS.items() if name != "phases" for part in ("--set", f"{name}={value}")]
    command = ["-m", "bertsmith", "pretrain", "--shards", shards, "--size", "tiny", "--steps", STEPS]
    torchrun(*command, "--phases", SETTINGS["phases"], *changes, "--output", tmp_path / "two")
    assert_same_run(tmp_path / "two", alone("one"))
    assert (tmp_path / "two" / "report.html").is_file()
    assert len(list((tmp_path / "two" / "tensorboard").iterdir())) == 1


def test_what_the_main_process_refuses_ends_all_and_is_said_once(shards, tmp_path):
    command = ["-m", "bertsmith", "pretrain", "--shards", shards, "--size", "tiny", "--steps", STEPS]
    refused = torchrun(*command, "--output", tmp_path, code=1)
    assert refused.stderr.count(f"bertsmith: {tmp_path}: exists already; go on with --resume") == 1
    ours = [line for line in refused.stderr.splitlines() if "bertsmith/" in line]
    assert ours == [], "a traceback from one of the processes"


def test_however_a_run_is_spread_and_wherever_it_goes_on_it_is_the_same(shards, alone, tmp_path):
    """A model in pieces (fsdp) under each optimizer; checkpoints that go from one number of processes to another."""
    muon = {"optimizer.kind": "muon", "pairs": "none"}  # without pairs two heads are frozen
    faithful = {"optimizer.kind": "bert_adam", "optimizer.rate": 1e-3}
    one = {"adamw": alone("one"), "muon": alone("one-muon", muon), "bert_adam": alone("one-bert-adam", faithful)}
    jobs = [
        {"output": "fsdp", "changes": {"spread": "fsdp"}},
        {"output": "fsdp-muon", "changes": {"spread": "fsdp", **muon}},
        {"output": "fsdp-bert-adam", "changes": {"spread": "fsdp", **faithful}},
        {"output": "one-ddp", "source": "one", "spread": "ddp"},
        {"output": "one-fsdp", "source": "one", "spread": "fsdp"},
        {"output": "fsdp-ddp", "source": "fsdp", "spread": "ddp"},
        {"output": "muon-fsdp", "source": "fsdp-muon", "spread": "fsdp"},
        {"output": "stopped", "changes": {"spread": "fsdp"}, "stop_at": 3},
    ]
    placed = [{**job, **{key: str(tmp_path / job[key]) for key in ("output", "source") if key in job}} for job in jobs]
    (tmp_path / "jobs.json").write_text(json.dumps(placed))
    torchrun(Path(spread_jobs.__file__), shards, tmp_path / "jobs.json")
    for job in jobs[:-1]:
        kind = next((kind for kind in ("muon", "bert-adam") if kind in job["output"]), "adamw")
        assert_same_run(tmp_path / job["output"], one[kind.replace("-", "_")])
        results = [json.loads((tmp_path / job["output"] / f"result-{rank}.json").read_text()) for rank in (0, 1)]
        assert [result["step"] for result in results] == [STEPS] * 2
        assert results[0]["progress"]["best_cost"] == results[1]["progress"]["best_cost"]

    cut_back(tmp_path / "fsdp", tmp_path / "fsdp-one", "ddp")
    assert_same_run(alone("fsdp-one", resume=True), one["adamw"])

    stopped = [json.loads((tmp_path / "stopped" / f"result-{rank}.json").read_text()) for rank in (0, 1)]
    assert [result["step"] for result in stopped] == [3, 3]
    assert [result["stopped_by"] for result in stopped] == ["SIGUSR1", "another process"]
    assert (tmp_path / "stopped" / "checkpoints" / "step-000003" / "state.json").is_file()
    assert not (tmp_path / "stopped" / "model").exists()


def parts_of_a_run(shards):
    tokenizer = Tokenizer.from_folder(shards)
    config = named_size("tiny", vocab_size=tokenizer.vocab_size, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    settings = make_request(shards, size="tiny", changes={**SETTINGS, "phases": "64:1", "batch.tokens": 192}).settings
    return settings, tokenizer, Objective(build(config, "pretraining", seed=0))


def test_shares_of_a_step_add_up_to_the_step(shards):
    """Of three processes, in parts; some have no example, and then take part without a weight."""
    settings, tokenizer, objective = parts_of_a_run(shards)
    data, config = ShardSet(shards), objective.model.config

    def work(rank, size):
        return PretrainingWork(data, tokenizer, settings, config, 99, World(rank, size))

    def gradients(parts, counts):
        objective.zero_grad()
        sums = Counter()
        for part in parts:
            loss, found = work(0, 1).losses(objective, part, counts)
            loss.backward()
            sums.update({name: value.item() for name, value in found.items()})
        return [weight.grad.clone() for weight in objective.parameters()], sums

    idle = 0
    for batch in range(4):
        position = {"phase": 0, "epoch": 0, "batch": batch}
        whole = work(0, 1).step(5, position)
        shares = [work(rank, 3).step(5, position) for rank in range(3)]
        assert sum((Counter(share.counts) for share in shares), Counter()) == Counter(whole.counts)
        assert {len(share.parts) for share in shares} == {len(shares[0].parts)}
        assert all(share.position == whole.position and share.log == whole.log for share in shares)
        parts = [part for share in shares for part in share.parts]
        idle += sum(part.weight == 0 for part in parts)
        expected, sums = gradients(whole.parts, whole.counts)
        found, others = gradients(parts, whole.counts)
        assert dict(others) == pytest.approx(dict(sums), rel=1e-5)
        for weight, other in zip(expected, found, strict=True):
            torch.testing.assert_close(weight, other, rtol=1e-3, atol=1e-6)
    assert idle


@dataclass(frozen=True)
class Noting(World):
    """Notes what would be summed over all processes."""

    noted: list[list[float]] = field(default_factory=list)

    def sum(self, values):
        self.noted.append(list(values))
        return list(values)


@torch.no_grad()
def test_shares_of_an_evaluation_add_up_to_the_evaluation(shards):
    """With more processes than examples, so that some have nothing to do."""
    settings, tokenizer, objective = parts_of_a_run(shards)
    held_out, objective = ShardSet(shards, "holdout"), objective.eval()
    counted = []
    for size in (1, 3, 200):
        worlds = [Noting(rank, size) for rank in range(size)]
        for world in worlds:
            Evaluation(held_out, tokenizer, settings, world)(objective)
        counted.append(torch.tensor([world.noted[0] for world in worlds], dtype=torch.float64).sum(0))
    torch.testing.assert_close(counted[1], counted[0], rtol=1e-5, atol=0)
    torch.testing.assert_close(counted[2], counted[0], rtol=1e-5, atol=0)


def test_one_process_is_a_world_of_its_own(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined() as world:
        assert (world.rank, world.size, world.is_main) == (0, 1, True)
        assert world.sum([1, 2.5]) == [1, 2.5]
        assert world.tell("this") == "this"
        world.wait()
    model = torch.nn.Linear(2, 2)
    assert spread_model(model, [], World(), "ddp") is model
    assert spread_model(model, [], World(), "fsdp") is model  # so that a run of many processes can go on in one
