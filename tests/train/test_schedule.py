"""Learning rates, worked by hand."""

from __future__ import annotations

import pytest

from bertsmith.train.schedule import SCHEDULES, faithful_rate, linear_rate, one_cycle_rate


def test_the_original_counts_its_decay_from_the_beginning():
    """It reaches 3/4 of the peak, then falls onto the line from 1 at step 0 to 0 at the end."""
    rates = [faithful_rate(step, total=10, warmup=4) for step in range(11)]
    assert rates == pytest.approx([0, 0.25, 0.5, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0])
    assert faithful_rate(12, total=10, warmup=4) == 0


def test_the_linear_rate_meets_the_peak_and_ends_at_nothing():
    rates = [linear_rate(step, total=8, warmup=3) for step in range(9)]
    assert rates == pytest.approx([1 / 3, 2 / 3, 1, 1, 0.8, 0.6, 0.4, 0.2, 0])
    assert linear_rate(99, total=8, warmup=3) == 0


def test_the_cycle_goes_down_along_a_cosine():
    rates = [one_cycle_rate(step, total=10, warmup=4) for step in range(11)]
    half_root = 3**0.5 / 2  # of cos 30°, a sixth of the way down
    assert rates[:5] == pytest.approx([0.25, 0.5, 0.75, 1, 1])
    assert rates[5:] == pytest.approx([(1 + half_root) / 2, 0.75, 0.5, 0.25, (1 - half_root) / 2, 0])
    assert one_cycle_rate(99, total=10, warmup=4) == pytest.approx(0)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_without_warm_up_a_run_begins_at_the_peak(name):
    assert SCHEDULES[name](0, 10, 0) == 1


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@pytest.mark.parametrize(("total", "warmup"), [(1, 0), (1, 1), (3, 3), (2, 5), (7, 1), (100, 10)])
def test_a_rate_is_a_share_of_the_peak_however_short_the_run(name, total, warmup):
    assert all(0 <= SCHEDULES[name](step, total, warmup) <= 1 for step in range(total + 2))
