"""The original's optimizer and schedule, step by step beside a calculation by hand in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertsmith.train.optimizer import BertAdam, decay_groups
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
