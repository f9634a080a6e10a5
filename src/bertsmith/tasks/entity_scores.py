"""The score of named entities: found whole, with the right label, or not found at all, as conlleval counts.

In: a tag for each word of each sentence, as IOB1, IOB2, BIOES, BMES or BILOU; or plain ones, such as parts of speech,
of which each is an entity of one word. Out: precision, recall and F1 of the entities.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bertsmith.errors import InputError
from bertsmith.tasks.scores import ClassScore, Labels, check_pairs, score_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["EntityScores", "Span", "score_entities", "spans_of"]


_SAME = {"M": "I", "L": "E", "U": "S"}  # in the middle, last, a unit: what others call them


@dataclass(frozen=True)
class Span:
    """An entity: the words from `start` up to, but not including, `stop`."""

    label: str
    start: int
    stop: int


@dataclass(frozen=True)
class EntityScores:
    """How well entities are found, over all labels and by label; `token_accuracy` is the share of equal tags."""

    precision: float
    recall: float
    f1: float
    token_accuracy: float
    per_class: dict[str, ClassScore]


def spans_of(tags: Labels, *, plain: bool = False) -> list[Span]:
    """The entities of a sentence. No tag is an error: one that cannot go on from the word before begins a new entity.

    >>> spans_of(["I-PER", "I-PER", "I-LOC", "O", "B-LOC", "B-LOC"])[:2]
    [Span(label='PER', start=0, stop=2), Span(label='LOC', start=2, stop=3)]
    """
    if plain:
        return [Span(tag, place, place + 1) for place, tag in enumerate(tags)]
    spans = []
    before, label, start = "O", "", 0
    for place, tag in enumerate((*tags, "O")):
        prefix, new_label = _split(tag)
        if prefix in "OBS" or before in "OES" or new_label != label:
            if before != "O":
                spans.append(Span(label, start, place))
            start = place
        before, label = prefix, new_label
    return spans


def score_entities(golds: Sequence[Labels], guesses: Sequence[Labels], *, plain: bool = False) -> EntityScores:
    """The scores of tagged sentences: an entity is right if label, start and stop are."""
    check_pairs(golds, guesses)
    support, found, correct = Counter[str](), Counter[str](), Counter[str]()
    num_tags = num_equal = 0
    for number, (gold, guess) in enumerate(zip(golds, guesses, strict=True), 1):
        if len(gold) != len(guess):
            raise InputError(f"sentence {number} has {len(gold)} gold tags but {len(guess)} guesses")
        gold_spans, guess_spans = set(spans_of(gold, plain=plain)), set(spans_of(guess, plain=plain))
        support.update(span.label for span in gold_spans)
        found.update(span.label for span in guess_spans)
        correct.update(span.label for span in gold_spans & guess_spans)
        num_tags += len(gold)
        num_equal += sum(map(str.__eq__, gold, guess))
    if not num_tags:
        raise InputError("there is nothing to score: no sentence has words")
    whole = score_counts(correct.total(), found.total(), support.total())
    labels = sorted(support | found)
    return EntityScores(
        precision=whole.precision,
        recall=whole.recall,
        f1=whole.f1,
        token_accuracy=num_equal / num_tags,
        per_class={label: score_counts(correct[label], found[label], support[label]) for label in labels},
    )


def _split(tag: str) -> tuple[str, str]:
    """B, I, O, E or S, and the label."""
    prefix, _, label = tag.partition("-")
    prefix = _SAME.get(prefix, prefix)
    if prefix not in ("B", "I", "O", "E", "S"):
        raise InputError(f"the tag {tag!r} must be O, or begin with B-, I-, M-, E-, L-, S- or U-")
    return prefix, label
