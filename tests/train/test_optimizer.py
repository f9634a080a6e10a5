"""The original's optimizer and schedule, step by step beside a calculation by hand in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertsmith.train.optimizer import BertAdam, build_optimizers, decay_groups
from bertsmith.train.schedule import faithful_rate
from twins import random_model


def by_hand(weight, gradients, rates, decay):
    """Ten lines of the paper's appendix and the original's code."""
    weight, mean, square = weight.copy(), np.zeros_like(weight), np.zeros_like(weight)
    for gradient, rate in zip(gradients, rates, strict=True):
        norm = np.sqrt((gradient**2).sum())
        gradient = gradient * min(1.0, 1.0 / norm)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        weight = weight - rate * (mean / (np.sqrt(square) + 1e-6) + decay * weight)
    return weight


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_ten_steps_are_those_of_a_calculation_by_hand(decay):
    """The jump of the schedule at the end of warm-up is among them, and clipping on some steps."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(4, 5))
    gradients = [rng.normal(size=(4, 5)) * scale for scale in (0.01, 3, 0.1, 1, 0.2, 5, 0.02, 0.3, 1, 0.1)]
    rates = [1e-2 * faithful_rate(step, total=12, warmup=4) for step in range(10)]
    assert rates[4] < rates[3]  # the jump
    weight = torch.nn.Parameter(torch.tensor(start, dtype=torch.float32))
    optimizer = BertAdam([weight], lr=1.0, weight_decay=decay)
    for gradient, rate in zip(gradients, rates, strict=True):
        weight.grad = torch.tensor(gradient, dtype=torch.float32)
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
    np.testing.assert_allclose(weight.detach().numpy(), by_hand(start, gradients, rates, decay), atol=1e-6)


def test_layer_norms_and_biases_do_not_decay_and_embeddings_do():
    model = random_model("pretraining")
    decays, stays = decay_groups(model, 0.01)
    names = {id(weight): name for name, weight in model.named_parameters()}
    assert "encoder.embeddings.word.weight" in {names[id(weight)] for weight in decays["params"]}
    still = {names[id(weight)] for weight in stays["params"]}
    assert all(name.endswith("bias") or "norm" in name for name in still)
    assert len(decays["params"]) + len(stays["params"]) == len(names)
    assert stays["weight_decay"] == 0


def names_in(model, optimizer):
    names = {id(weight): name for name, weight in model.named_parameters()}
    return [names[id(weight)] for group in optimizer.param_groups for weight in group["params"]]


@pytest.mark.parametrize("kind", ["bert_adam", "adamw", "muon"])
@pytest.mark.parametrize("frozen", [False, True])
def test_every_parameter_that_learns_has_one_optimizer(kind, frozen):
    """Neither missing nor twice; what is frozen has none. The peak of the rate stands in every group."""
    model = random_model("pretraining")
    for head in (model.encoder.pooler, model.pair):
        head.requires_grad_(requires_grad=not frozen)
    optimizers = build_optimizers(kind, model, rate=2e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)
    given = [name for optimizer in optimizers for name in names_in(model, optimizer)]
    assert sorted(given) == sorted(name for name, weight in model.named_parameters() if weight.requires_grad)
    assert len(given) == len(dict(model.named_parameters())) - 4 * frozen
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    assert all(group["peak"] == group["lr"] == 2e-3 for group in groups)
    assert {group["betas"] for group in groups if "betas" in group} == {(0.9, 0.98)}
    assert {group["eps"] for group in groups if "eps" in group} == {1e-6}


def test_muon_has_the_matrices_of_the_layers_and_nothing_else():
    """Embeddings, heads, biases and norms are AdamW's; query, key and value are three matrices in one."""
    model = random_model("pretraining")
    adam, muon = build_optimizers("muon", model, rate=1e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)
    matrices = ("attention.qkv", "attention_output", "up", "down")
    assert set(names_in(model, muon)) == {
        f"encoder.layers.{layer}.{name}.weight" for layer in range(3) for name in matrices
    }
    stacked = {group["stacked"]: group["params"] for group in muon.param_groups}
    assert sorted(stacked) == [1, 3]
    assert {id(weight) for weight in stacked[3]} == {id(layer.attention.qkv.weight) for layer in model.encoder.layers}
    assert isinstance(adam, torch.optim.AdamW)
    assert {"encoder.embeddings.word.weight", "mlm.dense.weight", "pair.weight", "encoder.pooler.weight"} < set(
        names_in(model, adam)
    )
    assert all(group["weight_decay"] == 0.01 for group in muon.param_groups)
    assert [group["weight_decay"] for group in adam.param_groups] == [0.01, 0.0]


def test_without_a_gradient_a_weight_stays():
    """Not even decay moves what had no part in the loss."""
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = BertAdam(weights, lr=0.1)
    weights[0].grad = torch.ones(2)
    optimizer.step()
    assert (weights[0] < 1).all()
    assert (weights[1] == 1).all()
