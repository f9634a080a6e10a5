"""A run that stopped and went on is the run that never stopped."""

from __future__ import annotations

import pytest
import torch

from bertsmith.errors import WeightsError
from bertsmith.train.checkpoint import (
    Progress,
    latest_checkpoint,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from bertsmith.train.optimizer import BertAdam, decay_groups
from twins import random_model


def make(kind, seed=0):
    torch.manual_seed(seed)
    model = random_model("pretraining").float()
    groups = decay_groups(model, 0.01)
    return model, BertAdam(groups, lr=1e-2) if kind == "faithful" else torch.optim.AdamW(groups, lr=1e-2)


def train(model, optimizer, steps):
    for step in steps:
        torch.manual_seed(step)
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight)
        optimizer.step()


@pytest.mark.parametrize("kind", ["faithful", "adamw"])
def test_going_on_from_a_checkpoint_is_exact(kind, tmp_path):
    whole, optimizer = make(kind)
    train(whole, optimizer, range(3))
    save_checkpoint(tmp_path / "step-3", whole, optimizer, Progress(3, {"epoch": 1, "batch": 7}, 2.5))
    train(whole, optimizer, range(3, 6))
    resumed, other = make(kind, seed=9)
    assert load_checkpoint(tmp_path / "step-3", resumed, other) == Progress(3, {"epoch": 1, "batch": 7}, 2.5)
    train(resumed, other, range(3, 6))
    for name, weight in whole.named_parameters():
        assert torch.equal(weight, dict(resumed.named_parameters())[name]), name


def test_the_last_few_are_kept_and_the_latest_is_found(tmp_path):
    assert latest_checkpoint(tmp_path / "none") is None
    for step in (5, 40, 300, 7):
        (tmp_path / f"step-{step}").mkdir()
    (tmp_path / ".step-900.x").mkdir()  # half-written
    prune_checkpoints(tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-300", "step-40"]
    assert latest_checkpoint(tmp_path).name == "step-300"


def test_a_damaged_or_foreign_checkpoint_is_an_error(tmp_path):
    model, optimizer = make("faithful")
    train(model, optimizer, range(1))
    save_checkpoint(tmp_path / "step-1", model, optimizer, Progress(1))
    with pytest.raises(WeightsError, match="step-1"):
        load_checkpoint(tmp_path / "step-1", torch.nn.Linear(3, 3), optimizer)
    data = (tmp_path / "step-1" / "optimizer.safetensors").read_bytes()
    (tmp_path / "step-1" / "optimizer.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(WeightsError, match="step-1"):
        load_checkpoint(tmp_path / "step-1", model, optimizer)
