"""Masked words: which tokens are chosen, and what stands in their place. One engine for all kinds of masking.

A unit is what is chosen whole or not at all: a piece, a word or a phrase. Units come in a random order; each is taken
if it still fits into the example's budget, and passed over otherwise (as the original does). N-grams and spans are
runs of words: runs come in a random order, and the last one is cut where the budget ends (as SpanBERT does). Of the
chosen pieces 80% become [MASK], 10% a random piece, 10% stay: drawn piece by piece.

Everything follows from a key for each example: nothing depends on the batch that the example is in.

Shapes: T tokens in all, B examples, U units, M chosen tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bertsmith.data.index import IN_PHRASE, PHRASE_START, WORD_START
from bertsmith.data.randomness import integers, key_of, uniforms
from bertsmith.errors import ConfigError

__all__ = ["MaskKind", "Masked", "Masking", "mask_examples"]

MaskKind = Literal["piece", "word", "ngram", "span", "entity"]

# What a random number is for, so that no two uses share one.
_ORDER, _ROUNDING, _RUN, _FATE, _REPLACEMENT = range(5)


@dataclass(frozen=True)
class Masking:
    """How tokens are chosen.

    `faithful` counts as the original does, from all tokens of an example and rounded; otherwise the budget is the
    rate times the tokens that can be masked, rounded at random so that the rate holds on average. Run lengths: n-grams
    of 1 to `longest_ngram` words, n with weight 1/n; spans geometric with `span_p`, cut at `longest_span` (SpanBERT,
    section 3.1).
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # where it is a part of settings, unknown keys are errors

    kind: MaskKind = "word"
    rate: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    faithful: bool = False
    max_predictions: int | None = None
    longest_ngram: int = 3
    longest_span: int = 10
    span_p: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ConfigError(f"masking.rate must be between 0 and 1, not {self.rate}")
        if not (self.mask_share >= 0 and self.random_share >= 0 and self.mask_share + self.random_share <= 1):
            raise ConfigError("masking.mask_share and masking.random_share must be shares that add up to 1 at most")
        if not 0 < self.span_p < 1:
            raise ConfigError(f"masking.span_p must be between 0 and 1, not {self.span_p}")
        for name in ("max_predictions", "longest_ngram", "longest_span"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"masking.{name} must be at least 1, not {value}")

    def run_weights(self) -> np.ndarray | None:
        """The weights of runs of 1, 2, … words; None where a unit is no run."""
        if self.kind == "ngram":
            return 1 / np.arange(1, self.longest_ngram + 1)
        if self.kind == "span":
            return (1 - self.span_p) ** np.arange(self.longest_span)
        return None


@dataclass(frozen=True)
class Masked:
    """A batch after masking: what the model reads, where it must answer, and the answers."""

    input_ids: np.ndarray  # (T,) int64
    positions: np.ndarray  # (M,) ascending
    labels: np.ndarray  # (M,)


def mask_examples(
    tokens: np.ndarray,
    units: np.ndarray,
    segments: np.ndarray,
    lengths: np.ndarray,
    keys: np.ndarray,
    masking: Masking,
    *,
    vocab_size: int,
    mask_id: int,
    rate: float | None = None,
) -> Masked:
    """Mask a batch of examples laid end to end.

    `tokens`, `units` and `segments` are (T,); a segment below 0 marks a special token, which is never chosen, and no
    unit reaches from one segment into another. `lengths` and `keys` are (B,). `rate` stands in for that of `masking`.
    """
    example = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    token_keys = key_of(keys[example], place)
    can = segments >= 0
    budgets = _budgets(np.bincount(example[can], minlength=len(lengths)), lengths, keys, masking, rate or masking.rate)
    first = np.flatnonzero(can & _starts(units, segments, example, masking))  # (U,) the first token of each unit
    size = np.diff(np.append(np.cumsum(can)[first] - 1, can.sum()))
    order = key_of(token_keys[first], _ORDER)
    weights = masking.run_weights()
    if weights is None or not len(first):
        taken = _take(example[first], size, order, budgets)
    else:
        new = _run_starts(segments[first] + 2 * example[first], key_of(token_keys[first], _RUN), weights)
        taken = _take_runs(example[first], size, order, new, budgets)
    positions = _spread(first[taken], size[taken])
    return _replace(tokens, positions, token_keys[positions], masking, vocab_size, mask_id)


def _budgets(maskable: np.ndarray, lengths: np.ndarray, keys: np.ndarray, masking: Masking, rate: float) -> np.ndarray:
    """(B,) how many tokens of each example may be chosen."""
    if masking.faithful:
        budgets = np.maximum(1, np.rint(rate * lengths))
    else:
        budgets = np.floor(rate * maskable + uniforms(key_of(keys, _ROUNDING)))
    if masking.max_predictions is not None:
        budgets = np.minimum(budgets, masking.max_predictions)
    return np.minimum(budgets, maskable).astype(np.int64)


def _starts(units: np.ndarray, segments: np.ndarray, example: np.ndarray, masking: Masking) -> np.ndarray:
    """(T,) where a piece, word or phrase begins; the first token of a segment always begins one."""
    if masking.kind == "piece":
        return np.ones(len(units), bool)
    starts = (units & WORD_START) > 0
    if masking.kind == "entity":
        starts = (starts & ((units & IN_PHRASE) == 0)) | ((units & PHRASE_START) > 0)
    starts[:1] = True
    starts[1:] |= (segments[1:] != segments[:-1]) | (example[1:] != example[:-1])
    return starts


def _run_starts(segment: np.ndarray, keys: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(U,) where a run of units begins. Lengths are drawn one after the other until a segment is full.

    A segment of five units, with lengths 2, 1, 3 drawn: runs begin at its units 0, 2 and 3.
    """
    lengths = 1 + np.searchsorted(np.cumsum(weights) / weights.sum(), uniforms(keys), side="right")
    lengths = np.minimum(lengths, len(weights))
    new = np.ones(len(segment), bool)
    new[1:] = segment[1:] != segment[:-1]
    begin = np.flatnonzero(new)[np.cumsum(new) - 1]  # (U,) the first unit of each one's segment
    end = np.append(np.flatnonzero(new)[1:], len(new))[np.cumsum(new) - 1]  # and the one after its last
    ends = np.cumsum(lengths)
    ends = begin + ends - (ends - lengths)[begin]  # where the run ends that has this unit's number
    starts = new.copy()
    starts[ends[ends < end]] = True
    return starts


def _take_runs(
    example: np.ndarray, size: np.ndarray, keys: np.ndarray, new: np.ndarray, budgets: np.ndarray
) -> np.ndarray:
    """(·,) the units that are chosen, by number: whole runs, a last one as far as it fits, single ones for the rest."""
    run = np.cumsum(new) - 1
    order = np.lexsort((run, keys[np.flatnonzero(new)][run], example))  # a run's units stay in their order
    taken = order[_running_totals(example[order], size[order]) <= budgets[example[order]]]
    left = budgets - np.bincount(example[taken], size[taken], minlength=len(budgets)).astype(np.int64)
    rest = np.setdiff1d(order, taken)
    return np.concatenate((taken, rest[_take(example[rest], size[rest], keys[rest], left)]))


def _take(example: np.ndarray, size: np.ndarray, keys: np.ndarray, budgets: np.ndarray) -> np.ndarray:
    """(·,) the units that are chosen, by number.

    The order of each example is that of its units' keys. A round takes all units up to the first that does not fit;
    whatever is larger than what is left could not be taken later either. So few rounds are needed, and the result is
    that of going through the units one by one.
    """
    order = np.lexsort((keys, example))
    left = budgets.copy()
    taken = []
    while True:
        order = order[size[order] <= left[example[order]]]
        if not len(order):
            break
        owner = example[order]
        fits = _running_totals(owner, size[order]) <= left[owner]
        taken.append(order[fits])
        left -= np.bincount(owner[fits], size[order[fits]], minlength=len(left)).astype(np.int64)
        order = order[~fits]
    return np.concatenate(taken) if taken else np.zeros(0, np.int64)


def _running_totals(owner: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Sums of sizes up to each one, for each owner anew.

    >>> _running_totals(np.array([0, 0, 4]), np.array([2, 3, 1]))
    array([2, 5, 1])
    """
    total = np.cumsum(size)
    new = np.ones(len(owner), bool)
    new[1:] = owner[1:] != owner[:-1]
    return total - (total - size)[np.flatnonzero(new)][np.cumsum(new) - 1]


def _spread(first: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The tokens of units, ascending."""
    ends = np.cumsum(size)
    tokens = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - size), size)
    return np.sort(tokens)


def _replace(
    tokens: np.ndarray, positions: np.ndarray, keys: np.ndarray, masking: Masking, vocab_size: int, mask_id: int
) -> Masked:
    """[MASK], a random piece of the whole vocabulary, or the piece itself."""
    fates = uniforms(key_of(keys, _FATE))
    labels = tokens[positions].astype(np.int64)
    replaced = np.where(
        fates < masking.mask_share,
        mask_id,
        np.where(
            fates < masking.mask_share + masking.random_share,
            integers(key_of(keys, _REPLACEMENT), 0, vocab_size - 1),
            labels,
        ),
    )
    input_ids = tokens.astype(np.int64)
    input_ids[positions] = replaced
    return Masked(input_ids, positions, labels)
