"""The official scores of answers to questions: SQuAD 1.1 and 2.0, and CMRC 2018 for Chinese.

In: by question, the gold answers and the guess, as text. A question without gold answers cannot be answered, and the
guess that says so is "". Out: exact match and F1 from 0 to 1, each the best over a question's gold answers.

Both versions of SQuAD are scored by the script of 2.0. That of 1.1 differs where a gold answer or a guess is nothing
but articles and punctuation: there F1 is 0, and such a gold answer counts.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from bertsmith.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "AnswerScores",
    "Threshold",
    "best_threshold",
    "chinese_exact_match",
    "chinese_f1",
    "exact_match",
    "f1",
    "normalise",
    "score_answers",
    "score_chinese",
    "without_marks",
]

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)

# What CMRC's script drops. It means to drop "……" too, but looks at one character at a time, so an ellipsis stays.
_WITHOUT_CHINESE_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_LETTERS = r"""[^\s\u4e00-\u9fa5.,'"?!;@#$%&()<>{}[\]«»‘„–—]+"""  # of words that are not Chinese
_SEGMENT = re.compile(rf"(?:\.(?=\d))?{_LETTERS}(?:(?:[.']|,(?=\d)){_LETTERS})*|\S")  # a word, or one character or sign


@dataclass(frozen=True)
class AnswerScores:
    """The scores of a data set, and of its questions with and without an answer; None where there are no such."""

    exact_match: float
    f1: float
    has_answer_exact: float | None
    has_answer_f1: float | None
    no_answer_accuracy: float | None
    num_has_answer: int
    num_no_answer: int


@dataclass(frozen=True)
class Threshold:
    """Where to say that a question has no answer, and the scores that this gives."""

    threshold: float
    exact_match: float
    f1: float


def normalise(text: str) -> str:
    """In small letters, then without punctuation, then without articles, and with single spaces.

    >>> normalise("The  U.S.'s a-bomb, an atom bomb")
    'uss abomb atom bomb'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_match(guess: str, golds: Sequence[str]) -> float:
    """1 where the guess is one of the gold answers after `normalise`, else 0."""
    return float(normalise(guess) in _normalised(golds))


def f1(guess: str, golds: Sequence[str]) -> float:
    """How many words the guess shares with a gold answer, in any order.

    >>> f1("the old red house", ["a red house", "the barn"])
    0.8
    """
    words = normalise(guess).split()
    return max(_words_f1(words, gold.split()) for gold in _normalised(golds))


def score_answers(golds: Mapping[str, Sequence[str]], guesses: Mapping[str, str]) -> AnswerScores:
    """SQuAD's scores of a data set; a guess that is missing counts as ""."""
    return _score_questions(golds, guesses, exact_match, f1)


def best_threshold(
    golds: Mapping[str, Sequence[str]],
    guesses: Mapping[str, str],
    null_scores: Mapping[str, float],
    measure: Literal["exact", "f1"] = "f1",
    *,
    chinese: bool = False,
) -> Threshold:
    """The threshold with the best score, and the lowest of several: a greater null score makes the answer "".

    `guesses` are the best answers that are not empty, `null_scores` how much better the empty one is. As SQuAD 2.0's
    script does, all null scores are tried in ascending order. Unlike there, questions with the same one go together,
    so that the scores are those that the threshold really gives; and it lies half-way to the next null score, so that
    the last bit of a null score does not decide.
    """
    _check_questions(golds)
    for question in golds:
        if not null_scores.get(question, math.nan) > -math.inf:
            raise InputError(f"the question {question!r} needs a null score that is a number")
    order = sorted(golds, key=lambda question: null_scores[question])
    answers = [(guesses.get(question, ""), golds[question]) for question in order]
    totals = {
        "exact": _sweep(answers, chinese_exact_match if chinese else exact_match),
        "f1": _sweep(answers, chinese_f1 if chinese else f1),
    }
    nulls = [null_scores[question] for question in order]
    whole = [0, *(place for place in range(1, len(order)) if nulls[place - 1] < nulls[place]), len(order)]
    best = max(whole, key=lambda place: totals[measure][place])  # so many are answered
    threshold = _between(nulls[best - 1], (*nulls, math.inf)[best]) if best else min(0.0, nulls[0] - 1)
    return Threshold(threshold, totals["exact"][best] / len(order), totals["f1"][best] / len(order))


def _between(low: float, high: float) -> float:
    """Half-way, or a little above what is the highest; never as high as `high`."""
    middle = low + (high - low) / 2 if high < math.inf else low + 1
    return middle if middle < high else low


def chinese_exact_match(guess: str, golds: Sequence[str]) -> float:
    """1 where the guess is one of the gold answers but for capitals and punctuation, else 0."""
    return float(without_marks(guess) in map(without_marks, golds or [""]))


def chinese_f1(guess: str, golds: Sequence[str]) -> float:
    """How long the longest run is that the guess shares with a gold answer, in characters or foreign words.

    >>> chinese_f1("在北京大学", ["北京的大学"])
    0.4
    """
    if not any(golds):
        return chinese_exact_match(guess, golds)
    segments = _SEGMENT.findall(without_marks(guess))
    return max(_run_f1(segments, _SEGMENT.findall(without_marks(gold))) for gold in golds)


def score_chinese(golds: Mapping[str, Sequence[str]], guesses: Mapping[str, str]) -> AnswerScores:
    """CMRC 2018's scores of a data set; a guess that is missing counts as "".

    The official script cuts what is not Chinese into words with NLTK, which a regular expression does here. It differs
    where English does: "don't" and "it's" stay whole, the last stop of "U.S. Navy" stands alone, and straight quotation
    marks are the same at both ends of a word.
    """
    return _score_questions(golds, guesses, chinese_exact_match, chinese_f1)


def _score_questions(
    golds: Mapping[str, Sequence[str]],
    guesses: Mapping[str, str],
    score_exact: Callable[[str, Sequence[str]], float],
    score_f1: Callable[[str, Sequence[str]], float],
) -> AnswerScores:
    _check_questions(golds)
    exact = {question: score_exact(guesses.get(question, ""), texts) for question, texts in golds.items()}
    overlap = {question: score_f1(guesses.get(question, ""), texts) for question, texts in golds.items()}
    answered = [question for question, texts in golds.items() if any(texts)]
    unanswered = [question for question, texts in golds.items() if not any(texts)]
    return AnswerScores(
        exact_match=sum(exact.values()) / len(golds),
        f1=sum(overlap.values()) / len(golds),
        has_answer_exact=_mean(exact[question] for question in answered),
        has_answer_f1=_mean(overlap[question] for question in answered),
        no_answer_accuracy=_mean(exact[question] for question in unanswered),
        num_has_answer=len(answered),
        num_no_answer=len(unanswered),
    )


def _check_questions(golds: Mapping[str, Sequence[str]]) -> None:
    if not golds:
        raise InputError("there is nothing to score: no questions are given")


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


def _normalised(golds: Sequence[str]) -> list[str]:
    """The gold answers that are more than articles and punctuation; one empty answer where there are none."""
    return [text for text in map(normalise, golds) if text] or [""]


def _words_f1(words: list[str], gold: list[str]) -> float:
    if not words or not gold:
        return float(words == gold)
    return 2 * (Counter(words) & Counter(gold)).total() / (len(words) + len(gold))


def _sweep(answers: list[tuple[str, Sequence[str]]], score: Callable[[str, Sequence[str]], float]) -> list[float]:
    """The sum of the scores when none, the first, the first two, … are answered and all others are left empty."""
    empty = [score("", golds) for _, golds in answers]
    gains = (score(guess, golds) - before for (guess, golds), before in zip(answers, empty, strict=True))
    return list(accumulate(gains, initial=sum(empty)))


def without_marks(text: str) -> str:
    """In small letters, without what CMRC takes for punctuation."""
    return text.lower().strip().translate(_WITHOUT_CHINESE_PUNCTUATION)


def _run_f1(segments: list[str], gold: list[str]) -> float:
    run = SequenceMatcher(None, segments, gold, autojunk=False).find_longest_match().size
    return 2 * run / (len(segments) + len(gold)) if run else 0.0
