"""Dropout by few draws: its share, its scale, its independence; and attention with it."""

import pytest
import torch

from bertsmith.model.attention import attend
from bertsmith.model.dropout import Dropout, drop


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_that_is_asked_for_is_zeroed_and_the_rest_scaled(p):
    torch.manual_seed(0)
    found = drop(torch.ones(400, 1000), p)
    assert (found == 0).float().mean().item() == pytest.approx(p, abs=0.003)  # 6 standard deviations at most
    assert torch.unique(found[found != 0]).tolist() == pytest.approx([1 / (1 - p)], rel=1e-4)
    assert found.mean().item() == pytest.approx(1, abs=0.03)


def test_neighbours_are_dropped_independently():
    """Four neighbours come from one draw, of which each has bits of its own."""
    torch.manual_seed(1)
    dropped = (drop(torch.ones(100_000, 4), 0.5) == 0).double()
    correlation = torch.corrcoef(dropped.T) - torch.eye(4)
    assert correlation.abs().max().item() < 0.02
    assert dropped.mean(0).tolist() == pytest.approx([0.5] * 4, abs=0.01)


def test_torchs_seed_decides_and_no_two_calls_are_alike():
    x = torch.randn(7, 9)
    torch.manual_seed(3)
    first, second = drop(x, 0.3), drop(x, 0.3)
    torch.manual_seed(3)
    assert torch.equal(drop(x, 0.3), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 7), (0, 4)])
def test_any_shape(shape):
    assert drop(torch.ones(shape), 0.5).shape == shape


def test_the_gradient_goes_where_the_value_went():
    x = torch.ones(50, 50, requires_grad=True)
    found = drop(x, 0.4)
    found.sum().backward()
    assert torch.equal(x.grad, found.detach())


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_nothing_and_everything(p):
    assert torch.equal(drop(torch.ones(5), p), torch.full((5,), 1 - p))


def test_other_types_are_left_to_torch():
    x = torch.ones(1000, dtype=torch.float64)
    torch.manual_seed(0)
    found = drop(x, 0.2)
    torch.manual_seed(0)
    assert torch.equal(found, torch.nn.functional.dropout(x, 0.2))


def test_the_module_drops_in_training_alone():
    module, x = Dropout(0.5), torch.ones(1000)
    assert (module(x) == 0).any()
    assert torch.equal(module.eval()(x), x)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_with_dropout_is_attention_in_the_mean(masked):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 6, 8)
    mask = torch.zeros(2, 6)
    mask[1, 4:] = -torch.inf
    given = mask if masked else None
    exact = attend(query, key, value, given, 0.0)
    drawn = torch.stack([attend(query, key, value, given, 0.3) for _ in range(4000)])
    error = drawn.std(0) / 4000**0.5
    assert ((drawn.mean(0) - exact).abs() < 5 * error + 1e-6).all()
    assert (drawn.std(0) > 0.01).all()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("num_queries", [6, 1])
def test_attention_with_dropout_and_its_gradient_are_those_of_the_plain_formula(masked, num_queries):
    """The same draws, and torch's own gradients of softmax(Q Kᵀ / √D) V."""
    torch.manual_seed(1)
    query, key, value = (torch.randn(2, 4, number, 8, requires_grad=True) for number in (num_queries, 6, 6))
    mask = torch.zeros(2, 6)
    mask[1, 4:] = -torch.inf
    weights = torch.randn(2, 4, num_queries, 8)

    torch.manual_seed(2)
    got = attend(query, key, value, mask if masked else None, 0.3)
    gradients = torch.autograd.grad((got * weights).sum(), (query, key, value))

    torch.manual_seed(2)
    scores = query @ key.transpose(-1, -2) / 8**0.5
    shares = (scores + mask[:, None, None, :] if masked else scores).softmax(-1)
    wanted = drop(shares.flatten(0, 1), 0.3).view_as(shares) @ value
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
    plain = torch.autograd.grad((wanted * weights).sum(), (query, key, value))
    torch.testing.assert_close(gradients, plain, rtol=1e-5, atol=1e-6)
