"""The plan of a run: steps for every kind of budget, sizes by arithmetic, and the disk."""

from __future__ import annotations

import shutil
from collections import namedtuple

import pytest

from bertsmith.config import BertConfig
from bertsmith.errors import TrainingError
from bertsmith.model.heads import build
from bertsmith.pretraining.planning import Epoch, RunPlan, Timing, check_disk, plan_run, steps_for
from bertsmith.pretraining.settings import Budget, Settings
from bertsmith.settings import changed

EPOCHS = [Epoch(40, 40_000), Epoch(8, 40_000)]
Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        (Budget(steps=17), 17),
        (Budget(tokens=10_000), 5),  # 3/4 of the steps have 1,000 tokens, 1/4 have 5,000: 2,000 on average
        (Budget(tokens=1), 1),
        (Budget(epochs=2.5), 50),  # 3/4 of the steps are a 40th of an epoch each, 1/4 an 8th: a 20th on average
        (Budget(epochs=0.001), 1),
        (
            Budget(minutes=2),
            66,
        ),  # 3/4 of the steps take 1 s, 1/4 take 3 s: 1.5 s on average, and 21 evaluations 1 s each
        (Budget(minutes=0.2), 4),  # evaluations get no more than half
        (Budget(minutes=0.001), 1),
    ],
)
def test_steps_for_each_kind_of_budget(budget, steps):
    settings = changed(Settings(), {"phases": "32:0.75:1000,64:0.25:5000"})
    assert steps_for(budget, settings, EPOCHS, Timing([1.0, 3.0], 1.0)) == steps


def test_minutes_are_those_of_steps_and_evaluations():
    often = changed(Settings(), {"phases": "32:1", "evaluation.every": 10})
    timing = Timing([1.0], 5.0)
    steps = steps_for(Budget(minutes=3), often, EPOCHS[:1], timing)
    assert steps == 120
    assert timing.seconds(often, steps) == 120 + 13 * 5  # one before the first step
    seldom = changed(Settings(), {"phases": "32:1"})
    assert timing.seconds(seldom, 100) == 100 + 21 * 5


def test_a_batch_larger_than_the_data_is_counted_as_it_is():
    settings = changed(Settings(), {"phases": "32:1", "batch.tokens": 1_000_000})
    assert steps_for(Budget(tokens=10_000), settings, [Epoch(1, 500)]) == 20


def test_the_numbers_of_a_plan_by_hand():
    config = BertConfig(vocab_size=100, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32)
    changes = {"phases": "32:0.75:1000,64:0.25:5000", "batch.part": 4000, "checkpoint.keep": 2}
    plan = plan_run(config, 10_000, changed(Settings(), changes), 100, EPOCHS, Timing([0.1, 0.2], 0.0))
    assert plan.tokens == 75 * 1000 + 25 * 5000
    assert plan.epochs == 75 / 40 + 25 / 8
    assert (plan.parameters, plan.steps, plan.seconds) == (10_000, 100, pytest.approx(12.5))
    # two checkpoints, the best and one being written, each of weights and two moments; the model and as much again
    assert plan.disk_bytes == (4 * 3 + 2) * 40_000 + 100 * 600
    # weights, gradients, two moments, a copy; what 4,000 tokens leave in three layers; three blocks of logits
    # of each token 2.3 times its attention to 64 others by two heads, because there is dropout
    kept = 10 * 8 + 3 * 32 + round(2.3 * 2 * 64)
    assert plan.memory_bytes == 5 * 40_000 + 4 * 4000 * 3 * kept + 3 * 25 * 2**20
    less = plan_run(config, 10_000, changed(Settings(), {**changes, "dropout": 0.0}), 100, EPOCHS, None)
    assert less.memory_bytes == 5 * 40_000 + 4 * 4000 * 3 * (10 * 8 + 3 * 32) + 3 * 25 * 2**20


def test_no_part_is_larger_than_the_batch():
    config = BertConfig(hidden_size=8, num_attention_heads=2, intermediate_size=32)
    small = changed(Settings(), {"batch.tokens": 500, "batch.part": 10_000})
    large = changed(Settings(), {"batch.tokens": 500, "batch.part": 500})
    plans = [plan_run(config, 10, settings, 10, [Epoch(1, 500)] * 2, None) for settings in (small, large)]
    assert plans[0] == plans[1]


def test_a_run_that_does_not_fit_the_disk_is_refused(tmp_path, monkeypatch):
    plan = RunPlan(parameters=1, steps=1, tokens=1, epochs=1, memory_bytes=1, disk_bytes=5 * 2**20)
    folder = tmp_path / "not" / "there" / "yet"
    asked = []

    def usage(path):
        asked.append(path)
        return Usage(0, 0, free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    free = 5 * 2**20
    check_disk(plan, folder)
    free -= 1
    with pytest.raises(TrainingError, match=r"needs 5 MiB of disk and 5 MiB are free; .*checkpoint\.keep=1"):
        check_disk(plan, folder)
    assert set(asked) == {tmp_path}
    assert not folder.exists()
    folder.mkdir(parents=True)
    (folder / "checkpoint").write_bytes(b"1")  # what a run has written already is not needed again
    check_disk(plan, folder)


def test_a_checkpoint_and_the_model_are_no_larger_than_planned(ask, tmp_path):
    """The plan against what a run really leaves; training keeps three copies of the weights in a checkpoint."""
    from bertsmith.jobs.pretrain import pretrain

    request = ask(8, checkpoint__every=2)
    result = pretrain(request, tmp_path / "run")
    used = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*.safetensors"))
    weights = 4 * result.plan.parameters
    assert 3 * weights < used < result.plan.disk_bytes
    assert result.plan.parameters == sum(weight.numel() for weight in build_like(result).parameters())
    assert result.plan.steps == 8


def build_like(result):
    from bertsmith.bundle.folder import read_bundle

    return build(read_bundle(result.model).model.config, "pretraining")
