"""Masking: rates, whole units, the plain procedure beside the vectorised one, independence of the batch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bertsmith.data.index import IN_PHRASE, PHRASE_START, WORD_START
from bertsmith.data.masking import Masking, _run_starts, _take, _take_runs, mask_examples
from bertsmith.data.randomness import key_of

VOCAB, MASK = 1000, 3
KINDS = ("piece", "word", "ngram", "span", "entity")


def make_batch(num_examples, length, seed=0):
    """Examples [CLS] A [SEP] B [SEP] of made-up words of one to four pieces, some of them in phrases."""
    rng = np.random.default_rng(seed)
    tokens, units, segments, lengths = [], [], [], []
    for _ in range(num_examples):
        size = int(rng.integers(length // 2, length + 1)) - 3
        cut = int(rng.integers(1, size))
        starts = rng.random(size) < 0.7
        flags = np.where(starts, WORD_START, 0)
        words = np.flatnonzero(starts)
        for first in words[:-2][rng.random(max(len(words) - 2, 0)) < 0.05]:
            last = words[np.searchsorted(words, first) + 2]
            if not (flags[first:last] & (PHRASE_START | IN_PHRASE)).any():
                flags[first] |= PHRASE_START
                flags[first + 1 : last] |= IN_PHRASE
        body = rng.integers(4, VOCAB, size)
        tokens.append([1, *body[:cut], 2, *body[cut:], 2])
        units.append([0, *flags[:cut], 0, *flags[cut:], 0])
        segments.append([-1, *[0] * cut, -1, *[1] * (size - cut), -1])
        lengths.append(size + 3)
    flat = [np.concatenate(part) for part in (tokens, units, segments)]
    return flat[0], flat[1].astype(np.uint8), flat[2], np.array(lengths)


def masked(batch, masking, keys=None, **options):
    keys = key_of(7, np.arange(len(batch[3]))) if keys is None else keys
    return mask_examples(*batch, keys, masking, vocab_size=VOCAB, mask_id=MASK, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [128, 512])
def test_rates_hold(kind, length):
    batch = make_batch(200_000 // length, length)
    tokens, _, segments, _ = batch
    result = masked(batch, Masking(kind))
    can = (segments >= 0).sum()
    assert abs(len(result.positions) / can - 0.15) < 0.002
    assert (segments[result.positions] >= 0).all()
    assert (result.labels == tokens[result.positions]).all()
    others = np.setdiff1d(np.arange(len(tokens)), result.positions)
    assert (result.input_ids[others] == tokens[others]).all()
    seen = result.input_ids[result.positions]
    assert abs((seen == MASK).mean() - 0.8) < 0.012
    assert abs((seen == result.labels).mean() - 0.1) < 0.012


@pytest.mark.parametrize("kind", ["word", "ngram", "span", "entity"])
def test_a_word_is_chosen_whole_or_not_at_all(kind):
    batch = make_batch(300, 128)
    _, units, segments, _ = batch
    chosen = np.zeros(len(units), bool)
    chosen[masked(batch, Masking(kind)).positions] = True
    inside = (units & WORD_START == 0) & (segments >= 0)
    inside[1:] &= segments[1:] == segments[:-1]
    places = np.flatnonzero(inside)
    assert len(places) > 1000
    assert (chosen[places] == chosen[places - 1]).all()


def test_a_phrase_is_chosen_whole_or_not_at_all():
    batch = make_batch(300, 128)
    _, units, segments, _ = batch
    chosen = np.zeros(len(units), bool)
    chosen[masked(batch, Masking("entity")).positions] = True
    places = np.flatnonzero((units & IN_PHRASE > 0) & (np.roll(segments, 1) == segments))
    assert len(places) > 500
    assert (chosen[places] == chosen[places - 1]).all()
    assert chosen[places].any()


def test_the_faithful_count_is_the_originals():
    batch = make_batch(400, 128)
    lengths = batch[3]
    result = masked(batch, Masking("piece", faithful=True, max_predictions=17))
    ends = np.cumsum(lengths)
    counts = np.bincount(np.searchsorted(ends, result.positions, side="right"), minlength=len(lengths))
    expected = [min(17, max(1, round(0.15 * length))) for length in lengths.tolist()]
    assert counts.tolist() == expected


def draw_units(rng, num_examples, largest):
    """Some units: their examples, sizes and keys, and the budgets of the examples."""
    keys = rng.integers(0, 2**63, 40).astype(np.uint64)
    example, size = np.sort(rng.integers(0, num_examples, 40)), rng.integers(1, largest + 1, 40)
    return example, size, keys, rng.integers(0, 25, num_examples)


def test_units_are_taken_as_one_by_one_in_their_order():
    rng = np.random.default_rng(0)
    for _ in range(200):
        example, size, keys, budgets = draw_units(rng, num_examples=4, largest=6)
        expected = []
        for number in range(4):
            left = budgets[number]
            for unit in sorted(np.flatnonzero(example == number), key=lambda unit: keys[unit]):
                if size[unit] <= left:
                    expected.append(unit)
                    left -= size[unit]
        assert sorted(_take(example, size, keys, budgets).tolist()) == sorted(expected)


def test_runs_tile_each_segment_with_lengths_as_drawn():
    segment = np.repeat(np.arange(3000), 40)
    weights = 0.8 ** np.arange(10)
    starts = _run_starts(segment, key_of(1, np.arange(len(segment))), weights)
    assert starts[::40].all()
    places = np.flatnonzero(starts)
    lengths = np.diff(places)[(places[1:] % 40) != 0]  # without the last of each segment, which may be cut
    whole = places[:-1][(places[1:] % 40) != 0] % 40 < 28  # nor those near the end, where long ones do not fit
    shares = np.bincount(lengths[whole], minlength=11)[1:] / whole.sum()
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.01)


def test_runs_are_taken_one_by_one_and_the_last_is_cut():
    rng = np.random.default_rng(0)
    for _ in range(200):
        example, size, keys, budgets = draw_units(rng, num_examples=3, largest=3)
        new = rng.random(40) < 0.4
        new[np.flatnonzero(np.diff(example, prepend=-1))] = True
        expected = [
            unit for number in range(3) for unit in plain_runs(number, example, size, keys, new, budgets[number])
        ]
        assert sorted(_take_runs(example, size, keys, new, budgets).tolist()) == sorted(expected)


def plain_runs(number, example, size, keys, new, left):
    """The units of one example: runs by their keys until a unit does not fit, then single units that do."""
    units = np.flatnonzero(example == number)
    runs = np.split(units, np.flatnonzero(new[units])[1:]) if len(units) else []
    chosen = []
    for unit in [unit for run in sorted(runs, key=lambda run: keys[run[0]]) for unit in run]:
        if size[unit] > left:
            break
        chosen.append(unit)
        left -= size[unit]
    for unit in sorted(set(units) - set(chosen), key=lambda unit: keys[unit]):
        if size[unit] <= left:
            chosen.append(unit)
            left -= size[unit]
    return chosen


def test_chosen_spans_have_the_lengths_that_were_drawn():
    """Long ones are not passed over: only the last of each example is cut. One-piece words, so words are tokens."""
    number, length = 3000, 400
    example, size = np.repeat(np.arange(number), length), np.ones(number * length, np.int64)
    keys = key_of(1, np.arange(len(size)))
    weights = Masking("span").run_weights()
    new = _run_starts(example, key_of(2, np.arange(len(size))), weights)
    chosen = np.zeros(len(size), bool)
    chosen[_take_runs(example, size, keys, new, np.full(number, 60))] = True
    begins = np.flatnonzero(new)
    drawn, taken = np.add.reduceat(size, begins), np.add.reduceat(chosen.astype(int), begins)
    assert (np.bincount(example[begins], (taken > 0) & (taken < drawn), minlength=number) <= 1).all()
    found = np.bincount(drawn[taken > 0], minlength=11)[1:] / (taken > 0).sum()
    np.testing.assert_allclose(found, weights / weights.sum(), atol=0.02)
    assert chosen.sum() / (taken > 0).sum() == pytest.approx(3.8, rel=0.05)


@pytest.mark.parametrize("kind", ["word", "span", "entity"])
def test_what_becomes_of_a_word_is_drawn_piece_by_piece(kind):
    """Two neighbouring pieces of a word are both [MASK] in 64% of cases; a draw for the whole word would give 80%."""
    batch = make_batch(3000, 128)
    _, units, segments, _ = batch
    result = masked(batch, Masking(kind))
    hidden = result.input_ids == MASK
    chosen = np.zeros(len(units), bool)
    chosen[result.positions] = True
    inside = np.flatnonzero(chosen & (units & WORD_START == 0) & (np.roll(segments, 1) == segments))
    inside = inside[chosen[inside - 1]]
    assert len(inside) > 5000
    assert (hidden[inside] & hidden[inside - 1]).mean() == pytest.approx(0.64, abs=0.025)


def test_masks_do_not_depend_on_the_batch_and_change_with_the_key():
    batch = make_batch(6, 64)
    tokens, units, segments, lengths = batch
    keys = key_of(5, np.arange(6))
    whole = masked(batch, Masking("span"), keys)
    ends = np.cumsum(lengths)
    for number, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        part = slice(end - length, end)
        alone = (tokens[part], units[part], segments[part], lengths[number : number + 1])
        result = masked(alone, Masking("span"), keys[number : number + 1])
        assert (result.input_ids == whole.input_ids[part]).all()
    assert (masked(batch, Masking("span"), key_of(6, np.arange(6))).input_ids != whole.input_ids).any()


def test_the_rate_can_be_changed_from_step_to_step():
    batch = make_batch(300, 128)
    can = (batch[2] >= 0).sum()
    assert abs(len(masked(batch, Masking("word"), rate=0.4).positions) / can - 0.4) < 0.01


def test_random_pieces_come_from_the_whole_vocabulary():
    batch = make_batch(400, 128)
    result = masked(batch, Masking("piece", mask_share=0, random_share=1))
    seen = Counter(result.input_ids[result.positions].tolist())
    assert min(seen) == 0
    assert max(seen) == VOCAB - 1
    assert max(seen.values()) < 40
