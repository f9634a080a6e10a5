"""The stream of batches: every example once an epoch, from any place on, shared among any number."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from bertsmith.data.pairing import Plan
from bertsmith.data.stream import Place, Stream, share_of
from bertsmith.errors import CorpusError


class Made:
    """Stands for `Examples`: epochs of different sizes."""

    def __init__(self, sizes=(50, 37, 61)):
        self.sizes = sizes

    def plan(self, epoch):
        count = self.sizes[epoch % len(self.sizes)]
        lengths = np.random.default_rng(epoch).integers(5, 30, count)
        return Plan(*[lengths] * 2, *[lengths * 0] * 2, np.full(count, -1))


def test_every_example_is_read_once_an_epoch():
    seen = {}
    for batch in islice(Stream(Made(), 200).batches(), 20):
        seen.setdefault(batch.epoch, []).extend(batch.rows.tolist())
    assert seen[0] == list(range(50))
    assert seen[1] == list(range(37))


def test_going_on_from_a_place_gives_the_same_batches():
    stream = Stream(Made(), 100)
    whole = list(islice(stream.batches(), 40))
    for stop in (0, 3, 11, 25):
        place = whole[stop].after
        rest = list(islice(stream.batches(place), 10))
        for expected, got in zip(whole[stop + 1 :], rest, strict=False):
            assert expected.epoch == got.epoch
            assert (expected.rows == got.rows).all()


@pytest.mark.parametrize("num_parts", [1, 2, 3, 8])
def test_shares_are_all_of_the_batch_and_alike(num_parts):
    lengths = np.random.default_rng(0).integers(5, 129, 64)
    shares = [share_of(lengths, part, num_parts) for part in range(num_parts)]
    assert np.concatenate(shares).tolist() == list(range(64))
    tokens = [lengths[share].sum() for share in shares]
    assert max(tokens) - min(tokens) <= 2 * 129


def test_no_example_at_all_is_an_error():
    with pytest.raises(CorpusError, match="no example"):
        next(Stream(Made(sizes=(0,)), 100).batches(Place()))
