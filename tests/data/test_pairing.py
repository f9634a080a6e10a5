"""Plans of an epoch: the original's rules beside a plain loop, balance, partners, coverage, purity."""

from __future__ import annotations

import numpy as np
import pytest

from bertsmith.data import pairing
from bertsmith.data.pairing import Bounds, _front, _trimmed, plan_epoch
from bertsmith.data.randomness import key_of
from bertsmith.errors import CorpusError

KINDS = ("faithful", "balanced", "sop", "none")


def make_bounds(num_documents, seed=0, longest=30):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, longest, num_documents)
    lengths = rng.integers(1, 40, counts.sum())
    return Bounds(np.concatenate(([0], np.cumsum(lengths))), np.concatenate(([0], np.cumsum(counts))))


def document_of(bounds, token):
    sentence = np.searchsorted(bounds.sentences, token, side="right") - 1
    return np.searchsorted(bounds.documents, sentence, side="right") - 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_length", [16, 128, 512])
def test_examples_fit_and_sides_stay_in_their_documents(kind, max_length):
    bounds = make_bounds(300)
    plan = plan_epoch(bounds, kind, max_length, seed=1, epoch=0)
    assert plan.lengths.max() <= max_length
    assert plan.a_length.min() >= 1
    last_a = plan.a_start + plan.a_length - 1
    first_a = document_of(bounds, plan.a_start)
    assert (first_a == document_of(bounds, last_a)).all()
    if kind == "none":
        return
    assert plan.b_length.min() >= 1
    first_b = document_of(bounds, plan.b_start)
    assert (first_b == document_of(bounds, plan.b_start + plan.b_length - 1)).all()
    same = first_a == first_b
    assert (same == ((plan.labels == 0) | (kind == "sop"))).all()


@pytest.mark.parametrize("kind", ["faithful", "balanced", "sop"])
def test_a_very_long_document_is_gone_through_in_stretches(kind, monkeypatch):
    """Hundreds of steps instead of tens of thousands; all of it is used, and partners are still of other documents."""
    steps = []
    step = pairing._step
    monkeypatch.setattr(pairing, "_step", lambda *given: steps.append(1) or step(*given))
    rng = np.random.default_rng(0)
    bounds = Bounds(np.concatenate(([0], np.cumsum(rng.integers(1, 40, 100_010)))), np.array([0, 5, 100_005, 100_010]))
    plan = plan_epoch(bounds, kind, 128, seed=1, epoch=0)
    assert len(steps) < pairing._LONGEST_WALK
    assert len(plan) > 15_000
    other = document_of(bounds, plan.a_start) != document_of(bounds, plan.b_start)
    assert (other == (plan.labels == 1)).all() or kind == "sop"
    follows = plan.take(plan.labels == 0)
    starts = np.sort(follows.a_start)
    assert len(np.unique(starts)) == len(starts), "no example is made twice"
    assert np.diff(starts).max() < 20_000, "no part of the document is left out"


@pytest.mark.parametrize("kind", ["balanced", "sop"])
def test_exactly_half_of_the_pairs_have_each_label(kind):
    for epoch in range(3):
        for num_documents in (2, 51, 300):
            labels = plan_epoch(make_bounds(num_documents), kind, 64, seed=3, epoch=epoch).labels
            assert abs(2 * labels.sum() - len(labels)) <= (kind == "sop")


def test_documents_of_one_sentence_leave_no_balance_to_be_had_but_no_error():
    bounds = Bounds(np.arange(0, 110, 10), np.arange(11))
    plan = plan_epoch(bounds, "balanced", 64, seed=0, epoch=0)
    assert len(plan) == 0
    assert len(plan_epoch(bounds, "faithful", 64, seed=0, epoch=0)) == 10


def test_a_little_more_than_half_are_random_in_the_original():
    labels = plan_epoch(make_bounds(2000), "faithful", 128, seed=0, epoch=0).labels
    assert 0.5 < labels.mean() < 0.7


def test_b_follows_a_where_the_label_says_so():
    bounds = make_bounds(300)
    plan = plan_epoch(bounds, "faithful", 512, seed=1, epoch=0)
    uncut = (plan.labels == 0) & (plan.lengths < 400)
    assert uncut.sum() > 20
    follows = plan.a_start + plan.a_length == plan.b_start
    assert follows[uncut].mean() > 0.95  # the rest were cut to a short target


def test_swapped_halves_follow_each_other_the_other_way_round():
    plan = plan_epoch(make_bounds(300), "sop", 512, seed=1, epoch=0)
    swapped = plan.labels == 1
    assert (plan.b_start[swapped] < plan.a_start[swapped]).all()
    assert (plan.a_start[~swapped] < plan.b_start[~swapped]).all()


def test_without_pairs_every_token_is_seen_once():
    bounds = make_bounds(50)
    for epoch in range(3):
        plan = plan_epoch(bounds, "none", 64, seed=1, epoch=epoch)
        seen = np.concatenate([np.arange(s, s + n) for s, n in zip(plan.a_start, plan.a_length, strict=True)])
        assert sorted(seen.tolist()) == list(range(bounds.sentences[-1]))


def test_without_pairs_a_document_that_fits_is_one_example():
    bounds = Bounds(np.array([0, 10, 20, 30, 60, 140]), np.array([0, 3, 4, 5]))  # documents of 30, 30 and 80 tokens
    for epoch in range(5):
        plan = plan_epoch(bounds, "none", 42, seed=1, epoch=epoch)
        whole = {(int(start), int(n)) for start, n in zip(plan.a_start, plan.a_length, strict=True) if start < 60}
        assert whole == {(0, 30), (30, 30)}
        assert plan.a_length[plan.a_start >= 60].max() == 40


def test_without_chance_sentences_are_collected_until_the_target_is_reached():
    """One document of sentences of ten tokens beside another: stretches end at the target or with the document."""
    bounds = Bounds(np.arange(0, 410, 10), np.array([0, 20, 40]))
    plan = plan_epoch(bounds, "sop", 53, seed=0, epoch=0)
    spans = (
        np.minimum(plan.a_start, plan.b_start),
        np.maximum(plan.a_start + plan.a_length, plan.b_start + plan.b_length),
    )
    assert set((spans[1] - spans[0]).tolist()) <= {10 * n for n in range(2, 6)}
    assert (spans[1] - spans[0] == 50).sum() >= 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_is_a_pure_function_of_seed_and_epoch(kind):
    bounds = make_bounds(100)

    def columns(**key):
        plan = plan_epoch(bounds, kind, 64, **key)
        return np.stack([plan.a_start, plan.a_length, plan.b_start, plan.b_length]).tobytes()

    assert columns(seed=1, epoch=2) == columns(seed=1, epoch=2)
    assert len({columns(seed=1, epoch=2), columns(seed=1, epoch=3), columns(seed=2, epoch=2)}) == 3


def test_one_document_is_an_error_that_says_what_to_do():
    bounds = Bounds(np.array([0, 5, 9]), np.array([0, 2]))
    with pytest.raises(CorpusError, match="--pairs none"):
        plan_epoch(bounds, "balanced", 64, seed=0, epoch=0)
    assert len(plan_epoch(bounds, "none", 64, seed=0, epoch=0))


def test_cutting_is_that_of_one_token_at_a_time():
    for a in range(1, 30):
        for b in range(1, 30):
            left, right = a, b
            while left + right > 21:
                if left > right:
                    left -= 1
                else:
                    right -= 1
            got = _trimmed(np.array([a]), np.array([b]), 21)
            assert (int(got[0][0]), int(got[1][0])) == (left, right)


def test_tokens_come_off_front_and_back_with_even_chance():
    for dropped in (1, 7, 64, 100, 512):
        front = _front(np.full(4000, dropped), key_of(1, np.arange(4000)))
        assert front.min() >= 0
        assert front.max() <= dropped
        assert abs(front.mean() / dropped - 0.5) < 0.03
        assert abs(front.var() / (dropped / 4) - 1) < 0.12
    assert _front(np.array([0, 1000]), key_of(1, np.arange(2))).tolist() == [0, 500]
