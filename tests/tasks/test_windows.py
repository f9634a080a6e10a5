"""Windows over long text: nothing is left out, nothing is too large, and each unit has its best place."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertsmith.tasks.windows import cut_windows, most_context


def original_windows(num_pieces, room, stride):
    """As the original's `convert_examples_to_features` cuts a context, written from its description."""
    windows, start = [], 0
    while start < num_pieces:
        stop = min(start + room, num_pieces)
        windows.append((start, stop))
        if stop == num_pieces:
            break
        start += min(stop - start, stride)
    return windows


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 60))
def test_windows_of_pieces_are_those_of_the_original(num_pieces, room, stride):
    assert cut_windows(np.arange(num_pieces + 1), room, stride) == original_windows(num_pieces, room, stride)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(1, 40), st.integers(1, 40))
@example([30, 1, 1, 30, 5], 10, 5)
def test_windows_of_words_leave_nothing_out(sizes, room, step):
    """Each goes further than the one before, and all together cover everything; only a lone unit may be too large."""
    ends = np.cumsum([0, *sizes])
    windows = cut_windows(ends, room, step)
    assert windows[0][0] == 0
    assert windows[-1][1] == len(sizes)
    for (start, stop), (following, further) in pairwise(windows):
        assert start < following <= stop < further
    for start, stop in windows:
        assert ends[stop] - ends[start] <= room or stop - start == 1
    owner = most_context(windows, ends)
    assert len(owner) == len(sizes)
    assert all(windows[number][0] <= unit < windows[number][1] for unit, number in enumerate(owner))


def plain_most_context(windows, ends):
    """The rule as the original states it, unit by unit."""
    owners = []
    for unit in range(len(ends) - 1):
        scores = {}
        for number, (start, stop) in enumerate(windows):
            if start <= unit < stop:
                left, right = ends[unit] - ends[start], ends[stop] - ends[unit + 1]
                scores[number] = min(left, right) + 0.01 * (ends[stop] - ends[start])
        owners.append(max(scores, key=lambda number: (scores[number], -number)))
    return owners


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(2, 20), st.integers(1, 20))
def test_most_context_is_the_rule_of_the_original(sizes, room, step):
    ends = np.cumsum([0, *sizes])
    windows = cut_windows(ends, room, step)
    assert most_context(windows, ends).tolist() == plain_most_context(windows, ends)


def test_a_worked_case():
    """Windows of six over ten pieces: piece 4 has 1 to its right in the first and 1 to its left in the second.

    The first wins by coming first; piece 7 has 1 to its right in the second window, and 1 to its left in the last,
    which is the shorter.
    """
    windows = cut_windows(np.arange(11), room=6, step=3)
    assert windows == [(0, 6), (3, 9), (6, 10)]
    assert most_context(windows, np.arange(11)).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 2, 2]


def test_nothing_has_no_window():
    assert cut_windows(np.array([0]), 5, 2) == []
    assert most_context([(0, 0)], np.array([0])).tolist() == []
