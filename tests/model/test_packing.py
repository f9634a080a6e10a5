"""How a batch is cut into attention buckets."""

from __future__ import annotations

import random

import pytest
import torch

import bertsmith.model.packing as packing
from bertsmith.model.packing import Plan, Ragged, plan_buckets
from twins import random_model

CPU = torch.device("cpu")


def test_equal_lengths_need_no_padding():
    plan = Plan.of(torch.tensor([9, 9, 9, 9]), CPU)
    assert [bucket.places for bucket in plan.buckets] == [None]
    assert plan.order is None


@pytest.mark.parametrize("longest", [16, 64, 128, 512])
@pytest.mark.parametrize("count", [8, 32, 200])
def test_few_calls_when_all_lengths_differ(longest, count):
    """Not one attention call a length; and where lengths are far apart, not all padded to the longest either."""
    lengths = random.Random(0).sample(range(1, longest + 1), min(count, longest))
    with torch.no_grad():
        buckets = Plan.of(torch.tensor(lengths), CPU).buckets
    assert len(buckets) <= 12
    padded = sum(bucket.num_runs * bucket.width**2 for bucket in buckets)
    if longest > 64:
        assert padded < 0.7 * len(lengths) * max(lengths) ** 2


def test_the_cut_is_the_cheapest_there_is():
    """Against all ways to cut eight lengths."""
    rng = random.Random(3)
    for _ in range(30):
        lengths = sorted(rng.randint(1, 60) for _ in range(8))
        call = max(1000, int(packing.CALL_SHARE * sum(n * (n + packing.COPY_PRICE) for n in lengths)))

        def cost(sizes, lengths=lengths, call=call):
            total = 0
            for part in torch.tensor(lengths).split(list(sizes)):
                longest = int(part.max())
                copied = packing.COPY_PRICE if len(set(part.tolist())) > 1 else 0
                total += call + len(part) * longest * (longest + copied)
            return total

        every = [
            [stop - start for start, stop in zip([0, *cuts], [*cuts, 8], strict=True)]
            for cuts in ([place for place in range(1, 8) if number >> place & 1] for number in range(0, 256, 2))
        ]
        assert cost(plan_buckets(lengths, 1000)) == min(map(cost, every))


def test_fewer_calls_where_each_has_a_gradient():
    lengths = torch.arange(5, 60, 2)
    trained = Plan.of(lengths, CPU)
    with torch.no_grad():
        assert 1 < len(trained.buckets) < len(Plan.of(lengths, CPU).buckets)


def test_one_attention_call_per_bucket(monkeypatch):
    calls = []
    real = torch.nn.functional.scaled_dot_product_attention

    def counted(*arguments, **options):
        calls.append(arguments[0].shape)
        return real(*arguments, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    encoder = random_model("encoder").encoder
    lengths = torch.tensor([5, 3, 9, 12, 1, 2, 30])
    encoder(torch.ones(int(lengths.sum()), dtype=torch.int64), None, lengths)
    assert len(calls) == len(encoder.layers) * len(Plan.of(lengths, CPU).buckets)
    assert len(calls) < len(encoder.layers) * len(lengths)


@pytest.mark.parametrize("counts", [[3, 1, 2], [0, 2, 1], [1, 0, 0], [4, 4]])
def test_pad_and_unpad(counts):
    """There and back is the identity, and both have the right gradient where the rest is masked."""
    ragged = Ragged.of(torch.tensor(counts), CPU)
    rows = torch.randn(sum(counts), 4, dtype=torch.float64, requires_grad=True)
    grid = ragged.pad(rows)
    assert grid.shape == (len(counts), max(counts), 4)
    assert torch.equal(ragged.unpad(grid), rows)
    kept = torch.ones(grid.shape[:2]) if ragged.mask is None else ragged.mask.exp()
    assert kept.sum(1).tolist() == counts
    assert torch.autograd.gradcheck(lambda rows: ragged.pad(rows) * kept[:, :, None], rows)
    assert torch.autograd.gradcheck(ragged.unpad, torch.randn_like(grid, requires_grad=True))


def test_locate_finds_rows_in_any_order():
    lengths = torch.tensor([4, 2, 5])
    plan = Plan.of(lengths, CPU)
    rows = torch.arange(11) * 10
    arranged = plan.arrange(rows)
    assert torch.equal(plan.restore(arranged), rows)
    read = torch.tensor([9, 0, 5, 5, 4])
    reading = plan.locate(read)
    assert torch.equal(arranged[reading.rows][reading.back], rows[read])
    assert sum(part.num_rows for part in reading.queries) == len(read)
