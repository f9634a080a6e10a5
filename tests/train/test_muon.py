"""Muon beside torch's own, and beside a calculation by hand in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertsmith.train.muon import Muon, orthogonalize


def matrices(count, rows, columns, seed=0):
    """With singular values from 0.05 to 1: some way from orthogonal, and none so small that it takes no part."""
    generator = torch.Generator().manual_seed(seed)
    short = min(rows, columns)
    left = torch.linalg.qr(torch.randn(count, rows, short, generator=generator, dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(count, columns, short, generator=generator, dtype=torch.float64)).Q
    return (left * torch.linspace(0.05, 1, short, dtype=torch.float64)) @ right.mT


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize(("count", "rows", "columns"), [(1, 16, 16), (3, 8, 40), (2, 40, 8), (4, 1, 9), (1, 9, 1)])
def test_singular_values_come_near_one_and_directions_stay(count, rows, columns, scale):
    given = matrices(count, rows, columns)
    straight = orthogonalize((given * scale).float()).double()
    assert straight.shape == given.shape
    left, values, right = torch.linalg.svd(given, full_matrices=False)
    found = left.mT @ straight @ right.mT  # in the given matrix's own directions: near to the identity
    diagonal = found.diagonal(dim1=1, dim2=2)
    assert 0.67 < diagonal.min() <= diagonal.max() < 1.2
    assert (found - torch.diag_embed(diagonal)).abs().max() < 1e-3
    assert values.min() < 0.1 or min(rows, columns) == 1  # the test began far from there


def test_each_matrix_of_a_stack_is_alone():
    """A large neighbour does not change what becomes of a small one."""
    first, second = matrices(1, 6, 10, seed=1).float(), 1e3 * matrices(1, 6, 10, seed=2).float()
    together = orthogonalize(torch.cat((first, second)))
    torch.testing.assert_close(together, torch.cat((orthogonalize(first), orthogonalize(second))))


def test_no_gradient_is_no_step():
    assert orthogonalize(torch.zeros(2, 3, 4)).abs().max() == 0
    weight = torch.nn.Parameter(torch.ones(3, 4))
    Muon([{"params": [weight]}], lr=1.0, weight_decay=0.0).step()
    assert (weight == 1).all()


def run(starts, gradients, *, stacked=1, **settings):
    """Weights after some steps."""
    weights = [torch.nn.Parameter(start.clone()) for start in starts]
    optimizer = Muon([{"params": weights, "stacked": stacked}], **settings)
    for each in gradients:
        for weight, gradient in zip(weights, each, strict=True):
            weight.grad = gradient.clone()
        optimizer.step()
    return [weight.detach() for weight in weights]


def some(shapes, steps=4, seed=0):
    torch.manual_seed(seed)
    starts = [torch.randn(shape) for shape in shapes]
    return starts, [[torch.randn(shape) for shape in shapes] for _ in range(steps)]


@pytest.mark.parametrize("shape", [(24, 24), (12, 40), (40, 12)])
def test_steps_are_those_of_torch_to_the_precision_that_torch_works_in(shape):
    """Torch's iteration is in bfloat16, with eight bits."""
    starts, gradients = some([shape])
    ours = run(starts, gradients, lr=0.02, momentum=0.95, weight_decay=0.1)[0]
    theirs = torch.nn.Parameter(starts[0].clone())
    optimizer = torch.optim.Muon(
        [theirs], lr=0.02, momentum=0.95, weight_decay=0.1, nesterov=True, adjust_lr_fn="match_rms_adamw"
    )
    for (gradient,) in gradients:
        theirs.grad = gradient.clone()
        optimizer.step()
    moved, expected = ours - starts[0], theirs.detach() - starts[0]
    assert (moved - expected).norm() < 0.03 * expected.norm()


def by_hand(start, gradients, *, rate, momentum, decay):
    """Nesterov's momentum, five quintic steps, and a step of the size of Adam's."""
    weight, mean = start.astype(np.float64), np.zeros(start.shape)
    for gradient in gradients:
        mean = momentum * mean + (1 - momentum) * gradient
        ahead = momentum * mean + (1 - momentum) * gradient
        x = ahead / np.linalg.norm(ahead)
        for _ in range(5):
            square = x @ x.T
            x = 3.4445 * x - 4.7750 * square @ x + 2.0315 * square @ square @ x
        weight = weight - rate * decay * weight - rate * 0.2 * max(weight.shape) ** 0.5 * x
    return weight


@pytest.mark.parametrize("shape", [(8, 8), (5, 12), (12, 5)])
def test_steps_are_those_of_a_calculation_by_hand(shape):
    starts, gradients = some([shape])
    ours = run(starts, gradients, lr=0.05, momentum=0.9, weight_decay=0.1)[0]
    expected = by_hand(starts[0].numpy(), [g.numpy() for (g,) in gradients], rate=0.05, momentum=0.9, decay=0.1)
    np.testing.assert_allclose(ours.numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("shape", [(8, 8), (5, 12), (12, 5)])
def test_stacked_matrices_are_treated_as_if_they_were_apart(shape):
    """Query, key and value share a parameter; each is made orthogonal on its own, and steps have a matrix's size."""
    starts, gradients = some([shape] * 6)
    apart = run(starts, gradients, lr=0.05)
    pairs = [starts[:3], starts[3:]]
    stacked = [[torch.cat(each[:3]), torch.cat(each[3:])] for each in gradients]
    stacks = run([torch.cat(pair) for pair in pairs], stacked, stacked=3, lr=0.05)
    torch.testing.assert_close(torch.cat(stacks), torch.cat(apart))
    whole = run([torch.cat(pairs[0])], [each[:1] for each in stacked], lr=0.05)
    assert (whole[0] - stacks[0]).abs().max() > 0.01  # which is not what one large matrix becomes


def test_matrices_of_many_shapes_are_as_if_each_had_an_optimizer():
    shapes = [(6, 6), (6, 9), (6, 6), (9, 6), (6, 9)]
    starts, gradients = some(shapes)
    together = run(starts, gradients, lr=0.05)
    for number, weight in enumerate(together):
        alone = run([starts[number]], [[each[number]] for each in gradients], lr=0.05)[0]
        torch.testing.assert_close(weight, alone)
