"""Scores of labels and numbers: gold and guess for each example in, a number out.

Shares run from 0 to 1, correlations from -1 to 1. A share of nothing is 0, as scikit-learn has it. Written by hand
because each is a line of arithmetic over counts, and importing scikit-learn takes a second; the tests compare both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertsmith.errors import InputError

__all__ = [
    "Bootstrap",
    "Calibration",
    "CalibrationBin",
    "ClassScore",
    "Labels",
    "accuracy",
    "binary_f1",
    "calibration",
    "check_pairs",
    "confusion",
    "macro_f1",
    "matthews",
    "micro_f1",
    "multilabel_f1",
    "paired_bootstrap",
    "pearson",
    "per_class",
    "score_counts",
    "spearman",
]

Labels = Sequence[str]

_DRAWS_AT_ONCE = 2**20  # what a bootstrap holds in memory


@dataclass(frozen=True)
class ClassScore:
    """How well one class is found; `support` is how often it is the gold label."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class CalibrationBin:
    """The examples with a confidence above `low` and up to `high`; the means are 0 where there are none."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """Confidence beside accuracy, and the mean gap between them (expected calibration error)."""

    bins: list[CalibrationBin]
    error: float


@dataclass(frozen=True)
class Bootstrap:
    """How much better the first of two systems is, with the 95% interval and the two-sided p-value."""

    difference: float
    low: float
    high: float
    p_value: float


def accuracy(golds: Labels, guesses: Labels) -> float:
    """The share of examples that are guessed right."""
    check_pairs(golds, guesses)
    return _num_equal(golds, guesses) / len(golds)


def binary_f1(golds: Labels, guesses: Labels, positive: str) -> float:
    """F1 of one class."""
    return per_class(golds, guesses, [positive])[positive].f1


def macro_f1(golds: Labels, guesses: Labels) -> float:
    """The mean F1 of the classes that occur in gold or guesses, each class counting the same."""
    scores = per_class(golds, guesses, sorted({*golds, *guesses}))
    return sum(score.f1 for score in scores.values()) / len(scores)


def micro_f1(golds: Labels, guesses: Labels) -> float:
    """F1 over all decisions: with one label for each example that is the accuracy."""
    return accuracy(golds, guesses)


def multilabel_f1(
    golds: Sequence[Collection[str]],
    guesses: Sequence[Collection[str]],
    average: Literal["micro", "macro"] = "micro",
) -> float:
    """F1 where an example has any number of labels: over all of them, or the mean over the classes that occur."""
    check_pairs(golds, guesses)
    support = Counter(label for labels in golds for label in set(labels))
    found = Counter(label for labels in guesses for label in set(labels))
    correct = Counter(label for gold, guess in zip(golds, guesses, strict=True) for label in set(gold) & set(guess))
    if average == "micro":
        return score_counts(correct.total(), found.total(), support.total()).f1
    classes = sorted(support | found)
    return _share(sum(score_counts(correct[name], found[name], support[name]).f1 for name in classes), len(classes))


def per_class(golds: Labels, guesses: Labels, labels: Labels) -> dict[str, ClassScore]:
    """Precision, recall and F1 of each of `labels`, in that order."""
    check_pairs(golds, guesses)
    support, found = Counter(golds), Counter(guesses)
    correct = Counter(gold for gold, guess in zip(golds, guesses, strict=True) if gold == guess)
    return {label: score_counts(correct[label], found[label], support[label]) for label in labels}


def score_counts(num_correct: int, num_found: int, num_gold: int) -> ClassScore:
    """The score of something that occurs `num_gold` times and was guessed `num_found` times, `num_correct` rightly."""
    precision, recall = _share(num_correct, num_found), _share(num_correct, num_gold)
    return ClassScore(precision, recall, _share(2 * num_correct, num_found + num_gold), num_gold)


def confusion(golds: Labels, guesses: Labels, labels: Labels) -> list[list[int]]:
    """How often each gold label (row) was guessed as each label (column).

    >>> confusion(["a", "a", "b"], ["a", "b", "b"], ["a", "b"])
    [[1, 1], [0, 1]]
    """
    check_pairs(golds, guesses)
    if strange := sorted({*golds, *guesses}.difference(labels)):
        raise InputError(f"the label {strange[0]!r} is not among those of the table: {', '.join(labels)}")
    counts = Counter(zip(golds, guesses, strict=True))
    return [[counts[gold, guess] for guess in labels] for gold in labels]


def matthews(golds: Labels, guesses: Labels) -> float:
    """Matthews' correlation for any number of classes (Gorodkin's R_K); 0 where all golds or all guesses are equal."""
    check_pairs(golds, guesses)
    support, found, total = Counter(golds), Counter(guesses), len(golds)
    together = _num_equal(golds, guesses) * total - sum(support[label] * found[label] for label in support)
    gold_spread = total**2 - sum(count**2 for count in support.values())
    guess_spread = total**2 - sum(count**2 for count in found.values())
    return _share(together, math.sqrt(gold_spread * guess_spread))


def pearson(golds: Sequence[float], guesses: Sequence[float]) -> float:
    """The linear correlation; 0, not NaN, where one side is constant."""
    check_pairs(golds, guesses)
    return _correlation(_numbers(golds), _numbers(guesses))


def spearman(golds: Sequence[float], guesses: Sequence[float]) -> float:
    """The correlation of the ranks, equal values sharing their mean rank; 0, not NaN, where one side is constant."""
    check_pairs(golds, guesses)
    return _correlation(_ranks(_numbers(golds)), _ranks(_numbers(guesses)))


def calibration(confidences: Sequence[float], correct: Sequence[bool], bins: int = 10) -> Calibration:
    """Whether a confidence of 0.8 is right eight times in ten, in bins of equal width (Guo et al. 2017, section 2)."""
    check_pairs(confidences, correct)
    if bins < 1:
        raise InputError(f"a calibration needs at least 1 bin, not {bins}")
    values, hits = _numbers(confidences), np.asarray(correct, bool)
    if values.min() < 0 or values.max() > 1:
        raise InputError(f"a confidence must be from 0 to 1, not {values[(values < 0) | (values > 1)][0]}")
    place = np.maximum(np.searchsorted(np.arange(bins + 1) / bins, values) - 1, 0)  # 0 itself is in the first bin
    count = np.bincount(place, minlength=bins)
    confidence = np.bincount(place, values, minlength=bins)
    right = np.bincount(place, hits, minlength=bins)
    rows = enumerate(zip(count.tolist(), confidence.tolist(), right.tolist(), strict=True))
    return Calibration(
        [
            CalibrationBin(n / bins, (n + 1) / bins, size, _share(sure, size), _share(hit, size))
            for n, (size, sure, hit) in rows
        ],
        float(np.abs(right - confidence).sum() / len(values)),
    )


def paired_bootstrap(
    first: Sequence[float], second: Sequence[float], *, rounds: int = 10_000, seed: int = 0
) -> Bootstrap:
    """Whether one system beats another on the same examples, from the score of each example under both.

    Each round draws as many examples as there are, with replacement. The interval is that of the drawn differences;
    p is how often they stray from the observed one by as much as that is from 0, and never quite 0 itself.
    """
    check_pairs(first, second)
    if rounds < 1:
        raise InputError(f"a bootstrap needs at least 1 round, not {rounds}")
    gaps = _numbers(first) - _numbers(second)
    random, size = np.random.default_rng(seed), len(gaps)
    step = max(1, _DRAWS_AT_ONCE // size)
    sums = np.concatenate(
        [gaps[random.integers(size, size=(min(step, rounds - done), size))].sum(1) for done in range(0, rounds, step)]
    )
    observed = gaps.sum()
    low, high = np.quantile(sums, (0.025, 0.975)) / size
    as_far = abs(observed) - 1e-9 * np.abs(gaps).sum()  # sums of thirds are not exact, and what is as far counts
    num_far = int(np.count_nonzero(np.abs(sums - observed) >= as_far))
    return Bootstrap(float(observed / size), float(low), float(high), (1 + num_far) / (1 + rounds))


def check_pairs(golds: Sequence[object], guesses: Sequence[object]) -> None:
    """Two lists that can be scored against each other: as long as each other, and not empty."""
    if len(golds) != len(guesses):
        raise InputError(f"two lists that are scored must be equally long, not {len(golds)} and {len(guesses)}")
    if not len(golds):
        raise InputError("there is nothing to score: the lists are empty")


def _num_equal(golds: Labels, guesses: Labels) -> int:
    return sum(gold == guess for gold, guess in zip(golds, guesses, strict=True))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _numbers(values: Sequence[float]) -> np.ndarray:
    numbers = np.asarray(values, float)
    if not np.isfinite(numbers).all():
        raise InputError("a score needs finite numbers, and one of these is not")
    return numbers


def _ranks(values: np.ndarray) -> np.ndarray:
    """(N,) the place of each value in ascending order.

    >>> _ranks(np.array([3, 1, 3, 9])).tolist()
    [2.5, 1.0, 2.5, 4.0]
    """
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]


def _correlation(xs: np.ndarray, ys: np.ndarray) -> float:
    if np.ptp(xs) == 0 or np.ptp(ys) == 0:
        return 0.0
    xs, ys = xs - xs.mean(), ys - ys.mean()
    xs, ys = xs / np.abs(xs).max(), ys / np.abs(ys).max()  # so that squares of tiny numbers are not lost
    return float(np.clip(xs @ ys / math.sqrt((xs @ xs) * (ys @ ys)), -1, 1))
