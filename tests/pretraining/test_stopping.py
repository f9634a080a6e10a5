"""A run that was stopped or killed and went on is, to the last bit, the run that never stopped."""

from __future__ import annotations

import json
import random
import signal
import time

import pytest

from bertsmith.jobs.pretrain import pretrain
from pretraining.small_runs import SMALL, count_lines, read_lines, start_process, wait_for

STEPS = 40
TIMES = {"seconds", "tokens_per_second", "share_of_peak", "seconds_left"}


@pytest.fixture
def request_(ask):
    """A run with dropout, two phases, several epochs, and parts."""
    return ask(STEPS, dropout=0.1, checkpoint__every=7, batch__part=150)


@pytest.fixture
def command(request_, tmp_path):
    """The same as a command line, to begin or to go on."""
    settings = {**SMALL, "dropout": 0.1, "checkpoint.every": 7, "batch.part": 150}
    changes = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    begin = ["--shards", request_.shards, "--from", request_.start, "--steps", STEPS, *changes]
    return ["pretrain", "--output", tmp_path / "run", "--resume", *begin]


def assert_same_run(folder, undisturbed):
    """Weights, optimizer, examples and figures; all but the time that it took."""
    last = f"checkpoints/step-{STEPS:06d}"
    for name in ("model/model.safetensors", f"{last}/model.safetensors", f"{last}/optimizer.safetensors"):
        assert (folder / name).read_bytes() == (undisturbed / name).read_bytes(), name
    assert (folder / "examples.jsonl").read_bytes() == (undisturbed / "examples.jsonl").read_bytes()
    logs = [read_lines(each / "metrics.jsonl") for each in (folder, undisturbed)]
    timeless = [[{k: v for k, v in line.items() if k not in TIMES} for line in log] for log in logs]
    assert timeless[0] == timeless[1]
    states = [json.loads((each / last / "state.json").read_bytes()) for each in (folder, undisturbed)]
    for state in states:
        state.pop("seconds")
    assert states[0] == states[1]
    kept = [sorted(path.name for path in (each / "checkpoints").iterdir()) for each in (folder, undisturbed)]
    assert kept[0] == kept[1]


def test_a_signal_saves_the_run_and_going_on_is_exact(request_, command, tmp_path):
    """SIGTERM, then SIGUSR1, then Ctrl-C, each in a process of its own that says how to go on."""
    pretrain(request_, tmp_path / "undisturbed")
    run = tmp_path / "run"
    for number, lines in ((signal.SIGTERM, 5), (signal.SIGUSR1, 16), (signal.SIGINT, 25)):
        process = start_process(command, seconds_per_step=0.05)
        wait_for(lambda lines=lines: count_lines(run / "examples.jsonl") >= lines, process)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130, said
        assert f"stopped by {signal.Signals(number).name} after step" in said
        assert f"bertsmith pretrain --output {run} --resume" in said
        assert "Traceback" not in said
        done = count_lines(run / "examples.jsonl")
        assert lines <= done < STEPS
        assert (run / "checkpoints" / f"step-{done:06d}").is_dir()
        assert not (run / "model").exists()
    assert pretrain(None, run, resume=True).progress.step == STEPS
    assert_same_run(run, tmp_path / "undisturbed")


def test_a_killed_run_goes_on_from_its_last_checkpoint(request_, command, tmp_path):
    """Two kills at random moments, the first perhaps before any checkpoint."""
    pretrain(request_, tmp_path / "undisturbed")
    run = tmp_path / "run"
    rng = random.Random(time.time_ns())
    moments = [rng.uniform(0.0, 0.3) for _ in range(2)]
    for moment in moments:
        before = count_lines(run / "examples.jsonl")
        process = start_process(command, seconds_per_step=0.02)
        wait_for(lambda before=before: count_lines(run / "examples.jsonl") != before, process)
        time.sleep(moment)
        process.kill()
        process.communicate()
        assert not (run / "model").exists()
    assert pretrain(None, run, resume=True).progress.step == STEPS, moments
    assert_same_run(run, tmp_path / "undisturbed")
    assert not [path for path in run.rglob(".*") if path.is_dir()], "no half-written checkpoint is left"


def test_a_second_ctrl_c_does_not_wait(request_, tmp_path):
    """The first is noted; the second ends a step that takes too long."""
    from bertsmith.pretraining.keeping import Observer

    class Impatient(Observer):
        def on_step(self, values, progress, total):
            if progress.step == 3:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        pretrain(request_, tmp_path / "run", observer=Impatient())
    assert signal.getsignal(signal.SIGINT) is before
