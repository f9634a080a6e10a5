"""Answers: whether one is given where there is one, and the wrong ones that the model was surest of."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from bertsmith.report.classes import MAX_MISTAKES, count_wrong
from bertsmith.report.dev import View
from bertsmith.report.marks import Mark, mark_spans, show_legend, show_sides, window_around
from bertsmith.report.page import Html, excerpt, heat_table, paragraph, section
from bertsmith.tasks.answer import AnswerTask
from bertsmith.tasks.answer_scores import chinese_exact_match, chinese_f1, exact_match, f1
from bertsmith.tasks.scores import confusion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bertsmith.report.dev import Answered, Dev
    from bertsmith.report.marks import Side
    from bertsmith.tasks.squad import Question

    Score = Callable[[str, Sequence[str]], float]

__all__ = ["show_answers"]

_MAX_ANSWER, _MAX_QUESTION, _MAX_GOLDS = 120, 300, 4


def show_answers(dev: Dev[Question, Answered]) -> View:
    """All of `answer`."""
    assert isinstance(dev.task, AnswerTask)
    chinese = dev.task.options.language == "zh"
    match, overlap = (chinese_exact_match, chinese_f1) if chinese else (exact_match, f1)
    wrong = []
    for question, found in dev.pairs():
        guess = dev.task.answer_of(found.model_dump())
        if not match(guess, _golds(question)):
            wrong.append((_confidence(found, guess), question, found, guess))
    wrong.sort(key=lambda each: -each[0])
    count = count_wrong(len(wrong), len(dev.examples), "answers are not exactly right")
    margin = "The null margin is how much better the model finds it to give no answer."
    listed = "".join(_question(*each, overlap) for each in wrong[:MAX_MISTAKES])
    mistakes = [paragraph(margin), show_legend(), Html(f'<ol class="examples">{listed}</ol>')] if wrong else []
    return View(
        [
            *_answered_or_not(dev, dev.task),
            section("Most confident mistakes", paragraph(count), *mistakes),
        ]
    )


def _answered_or_not(dev: Dev[Question, Answered], task: AnswerTask) -> list[Html]:
    """Where a question may have no answer: how often that is seen."""
    if not task.options.unanswerable:
        return []
    names = ["an answer", "none"]
    golds = ["an answer" if question.answers else "none" for question in dev.examples]
    guesses = ["an answer" if task.answer_of(found.model_dump()) else "none" for found in dev.predictions]
    above = f"above {task.threshold:.3f}"
    threshold = f"A question is left without an answer where its null margin is {above}."
    counts = heat_table("gold \\ guess", names, names, confusion(golds, guesses, names))
    return [section("Answered or not", paragraph(threshold), counts)]


def _confidence(found: Answered, guess: str) -> float:
    """The probability of the answer that was given: of none, what the candidates leave."""
    if guess and found.candidates:
        return found.candidates[0].score
    return max(0.0, 1 - sum(candidate.score for candidate in found.candidates))


def _golds(question: Question) -> list[str]:
    return [answer.text for answer in question.answers or ()]


def _question(confidence: float, question: Question, found: Answered, guess: str, overlap: Score) -> str:
    """A question, what is known of its answer, and both answers in their context."""
    golds = list(dict.fromkeys(_golds(question)))
    margin = f"{found.null_margin:.2f}" if found.candidates else "unknown, as nothing can be an answer"
    facts = (
        f"Probability {confidence:.1%}; F1 {overlap(guess, golds):.1%}; null margin {margin}; "
        f"gold: {' | '.join(excerpt(gold, _MAX_ANSWER) for gold in golds[:_MAX_GOLDS]) or 'no answer'}; "
        f"guess: {excerpt(guess, _MAX_ANSWER) or 'no answer'}"
    )
    answer = max(question.answers or (), key=lambda each: overlap(guess, [each.text]), default=None)
    right = None if answer is None else Mark(answer.start, answer.start + len(answer.text))
    said = Mark(found.candidates[0].start, found.candidates[0].end) if guess else None
    asked = escape(excerpt(question.question, _MAX_QUESTION))
    name = f'<span class="faint">{escape(excerpt(question.id, 60))}</span>'
    sides = _in_context(question.context, right, said)
    return f'<li>{name}<p dir="auto"><strong>{asked}</strong></p><p>{escape(facts)}</p>{sides}</li>'


def _in_context(context: str, right: Mark | None, said: Mark | None) -> Html:
    """Both answers in the same part of the context, or each in its own where they are far apart."""
    marks = [mark for mark in (right, said) if mark is not None]
    joint = window_around(context, marks)
    is_near = all(mark.end <= joint[1] for mark in marks)

    def show(mark: Mark | None, side: Side) -> Html:
        if mark is None:
            return Html("<em>no answer</em>")
        return mark_spans(context, [mark], side, joint if is_near else window_around(context, [mark]))

    return show_sides(show(right, "gold"), show(said, "guess"))
