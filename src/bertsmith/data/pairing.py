"""The plan of an epoch: which sentences make up each example. A pure function of (seed, epoch) and sentence lengths.

All documents are worked on at the same time, one example of each at a step, with random numbers keyed by document and
step (a very long one in several stretches at once). Rows of a plan are ranges of tokens, already cut to length:

    faithful   the original's next-sentence pairs (create_pretraining_data.py): a little more than half are random
    balanced   the same, with exactly half of the pairs random
    sop        two neighbouring stretches of a document, half of them swapped (ALBERT)
    none       full-length text, no pair

Label 1 means random (or swapped), 0 means that B follows A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertsmith.data.randomness import integers, key_of, uniforms
from bertsmith.errors import CorpusError

__all__ = ["Bounds", "PairKind", "Plan", "plan_epoch"]

PairKind = Literal["faithful", "balanced", "sop", "none"]

_TARGET, _LENGTH, _SPLIT, _RANDOM, _PARTNER, _START, _FRONT_A, _FRONT_B, _BALANCE, _SHUFFLE = range(10)
SHORT_SHARE = 0.1  # of documents have a random target length, so that short inputs are seen too
_NUM_SPECIAL = {"none": 2, "faithful": 3, "balanced": 3, "sop": 3}
# Fewer than half at first: the rest are drawn from the others, so that exactly half are.
_BALANCED_DRAW = 0.45
_LONGEST_WALK = 5000  # sentences


@dataclass(frozen=True)
class Bounds:
    """Where things begin, all shards taken as one: sentences among tokens, documents among sentences."""

    sentences: np.ndarray  # (S + 1,) int64
    documents: np.ndarray  # (D + 1,) int64

    @property
    def num_documents(self) -> int:
        """D."""
        return len(self.documents) - 1


@dataclass(frozen=True)
class Plan:
    """The examples of an epoch, in the order of training. B is empty where there is no pair."""

    a_start: np.ndarray  # (N,) int64, a token
    a_length: np.ndarray  # (N,)
    b_start: np.ndarray  # (N,)
    b_length: np.ndarray  # (N,)
    labels: np.ndarray  # (N,) int8; -1 where there is no pair task

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> Plan:
        """Some rows, in the order given."""
        columns = (self.a_start, self.a_length, self.b_start, self.b_length, self.labels)
        return Plan(*(column[rows] for column in columns))

    @property
    def lengths(self) -> np.ndarray:
        """(N,) tokens of each example, special ones included."""
        return self.a_length + self.b_length + 2 + (self.labels >= 0)


def plan_epoch(bounds: Bounds, kind: PairKind, max_length: int, *, seed: int, epoch: int) -> Plan:
    """All examples of an epoch, shuffled."""
    if kind in ("faithful", "balanced") and bounds.num_documents < 2:
        raise CorpusError(
            "the data set has one document, so no pair can have a partner from another; divide the text into "
            "documents (blank lines in a text file), or train without pairs (--pairs none)"
        )
    base = key_of(seed, epoch)
    budget = max_length - _NUM_SPECIAL[kind]
    plan = _stretches(bounds, budget, base) if kind == "none" else _pairs(bounds, kind, budget, base)
    order = np.argsort(key_of(base, _SHUFFLE, np.arange(len(plan))), kind="stable")
    return plan.take(order)


def _stretches(bounds: Bounds, budget: int, base: np.ndarray) -> Plan:
    """Each document that is too long cut into full lengths, from a random place on: cuts move from epoch to epoch."""
    begin = bounds.sentences[bounds.documents[:-1]]
    end = bounds.sentences[bounds.documents[1:]]
    length = end - begin
    drawn = integers(key_of(base, _START, np.arange(len(begin))), 1, np.minimum(budget, length))
    first = np.where(length <= budget, length, drawn)
    counts = 1 + -(-(length - first) // budget)
    document = np.repeat(np.arange(len(begin)), counts)
    number = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = np.where(number == 0, begin[document], begin[document] + first[document] + (number - 1) * budget)
    stop = np.minimum(begin[document] + first[document] + number * budget, end[document])
    zeros = np.zeros(len(start), np.int64)
    return Plan(start, stop - start, zeros, zeros, np.full(len(start), -1, np.int8))


def _pairs(bounds: Bounds, kind: PairKind, budget: int, base: np.ndarray) -> Plan:
    """Examples of all documents, step by step: `place` is the sentence that each walk has got to."""
    documents = np.arange(bounds.num_documents)
    short = uniforms(key_of(base, _TARGET, documents)) < SHORT_SHARE
    target = np.where(short, integers(key_of(base, _LENGTH, documents), 2, budget), budget)
    document, begin, end = _walks(bounds)
    first = begin - bounds.documents[document]  # of a walk's own numbers of steps: no two of a document meet
    place = begin.copy()
    walk = np.arange(len(document))
    steps = []
    step = 0
    while len(walk):
        owner = document[walk]
        keys = key_of(base, owner, first[walk] + step)
        rows, used = _step(bounds, kind, owner, place[walk], end[walk], target[owner], keys)
        steps.append(rows)
        place[walk] += used
        walk = walk[place[walk] < end[walk]]
        step += 1
    rows = _Rows(*(np.concatenate(parts) for parts in zip(*(row.columns for row in steps), strict=True)))
    if kind == "balanced":
        rows = _balance(rows, base)
    elif kind == "sop":
        rows = rows.take(rows.a_count < rows.count)  # one sentence has no order
        rows = rows.labelled(_half(len(rows), base))
    return _cut(rows, bounds, budget, swap=kind == "sop")


def _walks(bounds: Bounds) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(W,) documents, first sentences and ends of what is gone through at the same time.

    A document is one walk; a very long one is several, so that it takes no longer than the others.
    """
    begin, end = bounds.documents[:-1], bounds.documents[1:]
    counts = np.maximum(1, -(-(end - begin) // _LONGEST_WALK))
    document = np.repeat(np.arange(bounds.num_documents), counts)
    number = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = begin[document] + number * _LONGEST_WALK
    return document, start, np.minimum(start + _LONGEST_WALK, end[document])


@dataclass(frozen=True)
class _Rows:
    """Examples in sentences: `count` from `start` on, of which A has the first `a_count`."""

    document: np.ndarray
    start: np.ndarray
    count: np.ndarray
    a_count: np.ndarray
    target: np.ndarray
    labels: np.ndarray
    keys: np.ndarray

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        return self.document, self.start, self.count, self.a_count, self.target, self.labels, self.keys

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> _Rows:
        return _Rows(*(column[rows] for column in self.columns))

    def labelled(self, labels: np.ndarray) -> _Rows:
        return _Rows(self.document, self.start, self.count, self.a_count, self.target, labels, self.keys)


def _step(
    bounds: Bounds,
    kind: PairKind,
    document: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    target: np.ndarray,
    keys: np.ndarray,
) -> tuple[_Rows, np.ndarray]:
    """The next example of each walk, and how many sentences it used up.

    Sentences are collected until the target is reached or the end. Of n, A takes 1 to n-1. B is random if
    there is only one, or by chance; then those that A did not take are left for the next example.
    """
    reach = np.searchsorted(bounds.sentences, bounds.sentences[start] + target)
    count = np.minimum(np.maximum(reach, start + 1), end) - start
    a_count = np.where(count > 1, integers(key_of(keys, _SPLIT), 1, np.maximum(count - 1, 1)), 1)
    if kind == "sop":
        labels = np.zeros(len(count), np.int8)
    else:
        chance = 0.5 if kind == "faithful" else _BALANCED_DRAW
        labels = ((count == 1) | (uniforms(key_of(keys, _RANDOM)) < chance)).astype(np.int8)
    used = np.where(labels == 1, a_count, count)
    return _Rows(document, start, count, a_count, target, labels, keys), used


def _balance(rows: _Rows, base: np.ndarray) -> _Rows:
    """Make exactly half of the pairs random: give some that follow another partner, or drop what is too many."""
    rank = key_of(base, _BALANCE, rows.document, rows.start)
    random, follows = np.flatnonzero(rows.labels == 1), np.flatnonzero(rows.labels == 0)
    random, follows = random[np.argsort(rank[random])], follows[np.argsort(rank[follows])]
    labels = rows.labels.copy()
    surplus = len(follows) - len(random)
    keep = np.ones(len(rows), bool)
    if surplus >= 0:
        labels[follows[: surplus // 2]] = 1
        keep[follows[surplus // 2 : surplus // 2 + surplus % 2]] = False
    else:
        keep[random[:-surplus]] = False
    return rows.labelled(labels).take(keep)


def _half(count: int, base: np.ndarray) -> np.ndarray:
    """(count,) labels, exactly half of them 1 (one fewer where the number is odd)."""
    labels = np.zeros(count, np.int8)
    labels[np.argsort(key_of(base, _BALANCE, np.arange(count)))[: count // 2]] = 1
    return labels


def _cut(rows: _Rows, bounds: Bounds, budget: int, *, swap: bool) -> Plan:
    """Sentences to tokens: find random partners, cut what is too long, swap what is to be swapped."""
    token = bounds.sentences
    a_begin, a_end = token[rows.start], token[rows.start + rows.a_count]
    b_begin, b_end = a_end.copy(), token[rows.start + rows.count]
    random = np.flatnonzero(rows.labels == 1) if not swap else np.zeros(0, np.int64)
    if len(random):
        room = np.maximum(rows.target[random] - (a_end - a_begin)[random], 1)
        b_begin[random], b_end[random] = _partners(bounds, rows.document[random], room, rows.keys[random])
    a_length, b_length = _trimmed(a_end - a_begin, b_end - b_begin, budget)
    a_begin += _front(a_end - a_begin - a_length, key_of(rows.keys, _FRONT_A))
    b_begin += _front(b_end - b_begin - b_length, key_of(rows.keys, _FRONT_B))
    if swap:
        turned = rows.labels == 1
        a_begin, b_begin = np.where(turned, b_begin, a_begin), np.where(turned, a_begin, b_begin)
        a_length, b_length = np.where(turned, b_length, a_length), np.where(turned, a_length, b_length)
    return Plan(a_begin, a_length, b_begin, b_length, rows.labels)


def _partners(
    bounds: Bounds, document: np.ndarray, room: np.ndarray, keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A stretch of another document for each: from a random sentence on, until there are `room` tokens or it ends."""
    other = integers(key_of(keys, _PARTNER), 0, bounds.num_documents - 2)
    other += other >= document
    start = integers(key_of(keys, _START), bounds.documents[other], bounds.documents[other + 1] - 1)
    reach = np.searchsorted(bounds.sentences, bounds.sentences[start] + room)
    stop = np.minimum(np.maximum(reach, start + 1), bounds.documents[other + 1])
    return bounds.sentences[start], bounds.sentences[stop]


def _trimmed(a: np.ndarray, b: np.ndarray, budget: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths after dropping tokens one by one from the longer side, from B where both are equal.

    >>> _trimmed(np.array([10, 3]), np.array([4, 3]), budget=8)
    (array([4, 3]), array([4, 3]))
    """
    excess = np.maximum(a + b - budget, 0)
    from_a = np.minimum(np.maximum(a - b, 0), excess)
    from_b = np.minimum(np.maximum(b - a, 0), excess)
    rest = excess - from_a - from_b
    return a - from_a - rest // 2, b - from_b - (rest + 1) // 2


def _front(dropped: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """How many of the dropped tokens come off the front: each with an even chance.

    The ones among that many random bits; beyond 512 of them, half.
    """
    front = dropped // 2
    few = np.flatnonzero((dropped > 0) & (dropped <= 512))
    if len(few):
        words = key_of(keys[few, None], np.arange(8))  # (·, 8) of 64 bits each
        bits = np.clip(dropped[few, None] - 64 * np.arange(8), 0, 64)
        masks = np.where(bits == 64, ~np.uint64(0), (np.uint64(1) << (bits % 64).astype(np.uint64)) - np.uint64(1))
        front[few] = np.bitwise_count(words & masks).sum(1)
    return front
