"""A run that stopped and went on is the run that never stopped; what is on disk is whole."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsmith.errors import BertsmithError, WeightsError
from bertsmith.train.checkpoint import (
    Checkpoints,
    Progress,
    latest_checkpoint,
    load_checkpoint,
    load_weights,
    save_checkpoint,
)
from bertsmith.train.distributed import World
from bertsmith.train.optimizer import build_optimizers
from twins import random_model

FAR = Progress(
    step=3, tokens=900, seconds=2.5, position={"phase": 0, "epoch": 1, "batch": 7}, best_cost=0.1, best_step=2
)


def make(kind, seed=0):
    model = random_model("pretraining", seed=seed).float()
    return model, build_optimizers(kind, model, rate=1e-2, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)


def train(model, optimizers, steps):
    """Steps with made-up gradients; the rate changes, as in a run."""
    for step in steps:
        torch.manual_seed(step)
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] / (step + 1)
            optimizer.step()


def copies(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("kind", ["bert_adam", "adamw", "muon"])
def test_going_on_from_a_checkpoint_is_exact(kind, tmp_path):
    """Weights, and everything that the optimizers remember: moments, counts of steps, rates."""
    whole, optimizers = make(kind)
    train(whole, optimizers, range(3))
    save_checkpoint(tmp_path / "step-3", whole, optimizers, FAR)
    rates = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    train(whole, optimizers, range(3, 6))
    resumed, others = make(kind, seed=9)
    train(resumed, others, range(20, 21))  # what they remember already must be forgotten
    assert load_checkpoint(tmp_path / "step-3", resumed, others) == FAR
    assert [group["lr"] for optimizer in others for group in optimizer.param_groups] == rates
    train(resumed, others, range(3, 6))
    for name, weight in copies(resumed).items():
        assert torch.equal(weight, copies(whole)[name]), name


def test_going_back_to_before_the_first_step_forgets_everything(tmp_path):
    model, optimizers = make("muon")
    save_checkpoint(tmp_path / "step-0", model, optimizers, Progress())
    train(model, optimizers, range(2))
    assert load_checkpoint(tmp_path / "step-0", model, optimizers) == Progress()
    assert not any(optimizer.state for optimizer in optimizers)


def test_the_weights_alone_can_be_loaded(tmp_path):
    model, optimizers = make("adamw")
    save_checkpoint(tmp_path / "step-1", model, optimizers, Progress(1))
    other, _ = make("adamw", seed=5)
    load_weights(tmp_path / "step-1", other)
    assert all(torch.equal(weight, copies(model)[name]) for name, weight in copies(other).items())


def test_writing_in_the_background_keeps_what_was_there_when_it_was_asked_for(tmp_path):
    """Training goes on at once, in the very tensors that are being written."""
    model, optimizers = make("muon")
    train(model, optimizers, range(2))
    before = copies(model)
    checkpoints = Checkpoints(tmp_path, World(), keep=2)
    checkpoints.save(model, optimizers, FAR)
    train(model, optimizers, range(2, 5))
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        for optimizer in optimizers:
            for memory in optimizer.state.values():
                for value in memory.values():
                    value.zero_()
    checkpoints.finish()
    assert latest_checkpoint(tmp_path) == tmp_path / "step-000003"
    resumed, others = make("muon", seed=2)
    load_checkpoint(tmp_path / "step-000003", resumed, others)
    assert all(torch.equal(weight, before[name]) for name, weight in copies(resumed).items())
    memories = [value for optimizer in others for memory in optimizer.state.values() for value in memory.values()]
    assert memories
    assert all(value.abs().max() > 0 for value in memories)


def test_the_last_few_are_kept_and_one_best_apart(tmp_path):
    model, optimizers = make("adamw")
    checkpoints = Checkpoints(tmp_path, World(), keep=2)
    for step in (1, 2, 9, 10, 11):
        checkpoints.save(model, optimizers, Progress(step))
        if step in (1, 9):
            checkpoints.save(model, optimizers, Progress(step, best_step=step), best=True)
    checkpoints.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best-000009", "step-000010", "step-000011"]
    assert latest_checkpoint(tmp_path) == tmp_path / "step-000011"
    assert load_checkpoint(tmp_path / "best-000009", model, optimizers).best_step == 9


def test_only_the_main_process_writes(tmp_path):
    model, optimizers = make("adamw")
    checkpoints = Checkpoints(tmp_path / "run", World(rank=1, size=2), keep=2)
    checkpoints.save(model, optimizers, FAR)
    checkpoints.finish()
    assert not (tmp_path / "run").exists()


def test_the_latest_is_found_by_number_and_leftovers_are_removed(tmp_path):
    """A killed process leaves a hidden folder with half a checkpoint; it must neither be used nor stay."""
    assert latest_checkpoint(tmp_path / "none") is None
    assert latest_checkpoint(tmp_path) is None
    for name in ("step-5", "step-300", "step-1000000", "step-000040", "best-9000000", "step-x", "steps-9999999"):
        (tmp_path / name).mkdir()
    for name in (".step-900.x1", ".best-000007.ab"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    assert latest_checkpoint(tmp_path) == tmp_path / "step-1000000"
    assert not list(tmp_path.glob(".*"))
    assert len(list(tmp_path.iterdir())) == 7


def test_a_write_that_fails_leaves_nothing_and_is_an_error_of_the_run(tmp_path, monkeypatch):
    """In the background nobody would see it: it must come up when the run next looks."""
    model, optimizers = make("adamw")
    checkpoints = Checkpoints(tmp_path / "run", World(), keep=2)

    def fail(*_):
        raise OSError("the cable came off")

    monkeypatch.setattr("bertsmith.train.checkpoint.save_file", fail)
    checkpoints.save(model, optimizers, Progress(1))
    with pytest.raises(OSError, match="cable"):
        checkpoints.finish()
    assert not list((tmp_path / "run").iterdir())

    (tmp_path / "file").write_text("no folder")
    checkpoints = Checkpoints(tmp_path / "file", World(), keep=2)
    checkpoints.save(model, optimizers, Progress(1))
    with pytest.raises(BertsmithError, match="cannot be written"):
        checkpoints.save(model, optimizers, Progress(2))


@pytest.fixture
def stored(tmp_path):
    """A checkpoint, and what it is of."""
    model, optimizers = make("adamw")
    train(model, optimizers, range(1))
    save_checkpoint(tmp_path / "step-1", model, optimizers, Progress(1))
    return tmp_path / "step-1"


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "noise"])
def test_a_damaged_checkpoint_is_an_error_that_names_it(name, damage, stored):
    path = stored / name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "noise": bytes(range(256)) * 4}[damage])
    with pytest.raises(WeightsError, match=r"step-1.*remove it"):
        load_checkpoint(stored, *make("adamw"))


@pytest.mark.parametrize("text", ["[]", "3", '"words"', "{}", '{"optimizer": []}', '{"optimizer": [[3, 3]]}', "null"])
def test_a_state_of_another_form_is_an_error(text, stored):
    (stored / "state.json").write_text(text)
    with pytest.raises(WeightsError, match="step-1"):
        load_checkpoint(stored, *make("adamw"))


def test_a_state_with_unknown_fields_is_an_error(stored):
    state = json.loads((stored / "state.json").read_text())
    (stored / "state.json").write_text(json.dumps({**state, "weather": "fine"}))
    with pytest.raises(WeightsError, match="weather"):
        load_checkpoint(stored, *make("adamw"))


def test_the_checkpoint_of_another_model_or_optimizer_is_an_error(stored):
    linear = torch.nn.Linear(3, 3)
    with pytest.raises(WeightsError, match="another model"):
        load_checkpoint(stored, linear, [torch.optim.AdamW(linear.parameters())])
    for kind in ("bert_adam", "muon"):
        with pytest.raises(WeightsError, match="step-1"):
            load_checkpoint(stored, *make(kind))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_a_tensor_of_another_shape_is_an_error(name, stored):
    tensors = load_file(stored / name)
    changed = next(key for key, tensor in tensors.items() if tensor.dim() == 2)
    save_file({**tensors, changed: torch.zeros(2, 3)}, stored / name)
    with pytest.raises(WeightsError, match="step-1"):
        load_checkpoint(stored, *make("adamw"))


def test_a_memory_of_an_unknown_parameter_is_an_error(stored):
    tensors = load_file(stored / "optimizer.safetensors")
    save_file({**tensors, "stranger:exp_avg": torch.zeros(3)}, stored / "optimizer.safetensors")
    with pytest.raises(WeightsError, match="stranger"):
        load_checkpoint(stored, *make("adamw"))
