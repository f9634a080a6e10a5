"""The peak of a machine is the best of its shapes; here with shapes so small that nothing is measured."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from bertsmith.train import speed


def test_the_peak_is_the_rate_of_the_best_shape_by_its_median(monkeypatch):
    """A clock of our own: the first shape takes 1 s a product, but once 60, the second 5 s for four times the work."""
    monkeypatch.setattr(speed, "PEAK_SHAPES", {"small": (2, 3, 5), "large": (4, 6, 5)})
    times = [*[90.0, 90.0, 1.0, 60.0, 1.0], *[5.0] * 5]  # of each the first two are warm-up
    ticks = itertools.chain.from_iterable((0.0, seconds) for seconds in times)
    monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    assert speed.measure_peak(repeats=3) == speed.Peak(pytest.approx(2 * 2 * 3 * 5 / 1.0), "small")
