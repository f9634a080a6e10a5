"""Entities: how well each class is found, and the sentences with most mistakes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bertsmith.report.classes import MAX_MISTAKES, count_wrong, show_class_scores
from bertsmith.report.dev import View
from bertsmith.report.facts import LABEL_LENGTH
from bertsmith.report.marks import Mark, mark_spans, show_legend, show_sides, window_around
from bertsmith.report.page import Html, excerpt, paragraph, section
from bertsmith.tasks.entity_scores import Span, score_entities, spans_of
from bertsmith.tasks.tag import Tag

if TYPE_CHECKING:
    from bertsmith.report.dev import Dev, Tagged
    from bertsmith.tasks.tagged import TaggedText

__all__ = ["show_entities"]


def show_entities(dev: Dev[TaggedText, Tagged]) -> View:
    """All of `tag`."""
    assert isinstance(dev.task, Tag)
    read = partial(spans_of, plain=dev.task.options.plain)
    golds, guesses = [example.tags or () for example in dev.examples], [found.tags for found in dev.predictions]
    scores = score_entities(golds, guesses, plain=dev.task.options.plain)
    found = [
        (example, set(read(example.tags or ())), set(read(prediction.tags))) for example, prediction in dev.pairs()
    ]
    wrong = sorted((each for each in found if each[1] != each[2]), key=lambda each: -len(each[1] ^ each[2]))
    summary = (
        f"Precision {scores.precision:.1%}, recall {scores.recall:.1%}, F1 {scores.f1:.1%}; "
        f"{scores.token_accuracy:.1%} of the words have the right tag."
    )
    count = f"{count_wrong(len(wrong), len(found), 'sentences have mistakes in them')} Lines are those of the file."
    listed = "".join(_sentence(*each) for each in wrong[:MAX_MISTAKES])
    return View(
        [
            section("Entities", paragraph(summary), show_class_scores(scores.per_class)),
            section(
                "Most mistaken sentences",
                paragraph(count),
                *([show_legend(), Html(f'<ol class="examples">{listed}</ol>')] if wrong else []),
            ),
        ]
    )


def _sentence(example: TaggedText, gold: set[Span], guess: set[Span]) -> str:
    """Both readings of a sentence, around its mistakes."""
    golds = [_mark(example, span, "" if span in guess else ", missed") for span in gold]
    guesses = [_mark(example, span, "" if span in gold else ", wrong") for span in guess]
    window = window_around(example.text, [_mark(example, span, "") for span in gold ^ guess])
    sides = show_sides(
        mark_spans(example.text, golds, "gold", window), mark_spans(example.text, guesses, "guess", window)
    )
    return f'<li><span class="faint">Line {example.place.line:,}</span>{sides}</li>'


def _mark(example: TaggedText, span: Span, remark: str) -> Mark:
    start, end = example.offsets[span.start][0], example.offsets[span.stop - 1][1]
    return Mark(start, end, excerpt(span.label, LABEL_LENGTH) + remark)
