"""Where the phrases of a list occur in tokens: from the left, the longest first, never in part of a word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PhraseFinder"]

_END = -1


class PhraseFinder:
    """A tree of token ids, entered only where a token begins some phrase.

    >>> finder = PhraseFinder([[7, 8], [7, 8, 9]], continues=np.zeros(10, bool))
    >>> finder.mark(np.array([7, 8, 9, 7, 8, 1]), np.array([6])).tolist()
    [1, 2, 2, 1, 2, 0]
    """

    def __init__(self, phrases: Sequence[Sequence[int]], continues: np.ndarray) -> None:
        self._continues = continues
        self._tree: dict[int, Any] = {}
        self._begins = np.zeros(len(continues), bool)
        self._reach = max(map(len, phrases), default=0) + 1
        for ids in phrases:
            if not ids:
                continue
            node = self._tree
            for token in ids:
                node = node.setdefault(token, {})
            node[_END] = {}
            self._begins[ids[0]] = True

    def mark(self, tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """For each token: 1 where it begins a phrase, 2 where it goes on with one, else 0."""
        marks = np.zeros(len(tokens), np.uint8)
        places = np.flatnonzero(self._begins[tokens])
        if not len(places):
            return marks
        bounds = np.cumsum(lengths)
        ends = bounds[np.searchsorted(bounds, places, side="right")]
        free = 0
        for place, end in zip(places.tolist(), ends.tolist(), strict=True):
            if place < free:
                continue
            stop = self._longest(tokens[place : min(end, place + self._reach)].tolist())
            if stop:
                marks[place] = 1
                marks[place + 1 : place + stop] = 2
                free = place + stop
        return marks

    def _longest(self, tokens: list[int]) -> int:
        """How many tokens the longest phrase takes that begins here and ends with a word; 0 where none does."""
        node, found = self._tree, 0
        for count, token in enumerate(tokens):
            if _END in node and not self._continues[token]:
                found = count
            if token not in node:
                return found
            node = node[token]
        return len(tokens) if _END in node else found
