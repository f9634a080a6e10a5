"""Phrases in tokens, against a search that tries everything."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.vocab.phrases import PhraseFinder

NUM_IDS = 6
CONTINUES = np.array([False] * 4 + [True] * 2)  # the ids 4 and 5 are pieces such as ##ing
WORD = st.builds(lambda first, rest: [first, *rest], st.integers(0, 3), st.lists(st.integers(4, 5), max_size=2))
WORDS = st.lists(WORD, max_size=8).map(lambda words: [token for word in words for token in word])
PHRASES = st.lists(st.lists(WORD, min_size=1, max_size=3).map(lambda words: [t for w in words for t in w]), max_size=6)


def search(phrases: list[list[int]], sentence: list[int]) -> list[int]:
    """At each place all phrases, the longest first."""
    marks = [0] * len(sentence)
    place = 0
    while place < len(sentence):
        for phrase in sorted(phrases, key=len, reverse=True):
            end = place + len(phrase)
            whole_words = end == len(sentence) or (end < len(sentence) and not CONTINUES[sentence[end]])
            if phrase and sentence[place:end] == phrase and whole_words:
                marks[place:end] = [1] + [2] * (len(phrase) - 1)
                place = end
                break
        else:
            place += 1
    return marks


def mark(phrases: list[list[int]], sentences: list[list[int]]) -> list[int]:
    tokens = np.array([token for sentence in sentences for token in sentence], np.int64)
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    return PhraseFinder(phrases, CONTINUES).mark(tokens, lengths).tolist()


@given(phrases=PHRASES, sentences=st.lists(WORDS, max_size=5))
def test_marks_are_those_of_a_naive_search(phrases: list[list[int]], sentences: list[list[int]]) -> None:
    assert mark(phrases, sentences) == [found for sentence in sentences for found in search(phrases, sentence)]


def test_the_longest_phrase_wins_from_the_left() -> None:
    assert mark([[0, 1], [0, 1, 2], [1, 2, 3]], [[0, 1, 2, 3], [1, 2, 3], [0, 1, 3]]) == [1, 2, 2, 0, 1, 2, 2, 1, 2, 0]


def test_a_longer_phrase_that_fails_leaves_the_shorter_one() -> None:
    assert mark([[0, 1], [0, 1, 2, 3]], [[0, 1, 2, 0]]) == [1, 2, 0, 0]


def test_neighbours_of_the_same_phrase_stay_two() -> None:
    assert mark([[0, 1]], [[0, 1, 0, 1]]) == [1, 2, 1, 2]


def test_no_phrase_crosses_sentences() -> None:
    assert mark([[0, 1]], [[2, 0], [1, 0, 1], [], [0]]) == [0, 0, 0, 1, 2, 0]


def test_no_phrase_ends_inside_a_word() -> None:
    assert mark([[0, 1]], [[0, 1, 4], [0, 1]]) == [0, 0, 0, 1, 2]


def test_no_phrases_and_empty_phrases_mark_nothing() -> None:
    assert mark([], [[0, 1]]) == [0, 0]
    assert mark([[]], [[0, 1]]) == [0, 0]
