"""What a model says of a file that tells what is right, as sections of a page, and as a page of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bertsmith.folders import write_named
from bertsmith.report.answers import show_answers
from bertsmith.report.classes import show_choices, show_classes
from bertsmith.report.dev import View
from bertsmith.report.entities import show_entities
from bertsmith.report.figures import name_score, show_score
from bertsmith.report.numbers import show_numbers
from bertsmith.report.page import page, section, table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bertsmith.report.dev import Dev

__all__ = ["show_predictions", "write_evaluation"]

_VIEWS: dict[str, Callable[[Dev[Any, Any]], View]] = {
    "classify": show_classes,
    "regress": show_numbers,
    "choose": show_choices,
    "tag": show_entities,
    "answer": show_answers,
}


def show_predictions(dev: Dev[Any, Any]) -> View:
    """What each kind of task shows of examples beside their predictions; nothing, where it has no view."""
    show = _VIEWS.get(dev.task.kind)
    return View([]) if show is None else show(dev)


def write_evaluation(path: Path, model: str, data: str, dev: Dev[Any, Any], scores: dict[str, float]) -> None:
    """The page of one evaluation: its scores, and what stands behind them."""
    rows = [[name_score(name), show_score(name, score)] for name, score in scores.items()]
    sections = [section("Scores", table(["score", ""], rows, "Scores")), *show_predictions(dev).sections]
    lead = f"{model}, {dev.task.kind}; {len(dev.examples):,} examples of {data}"
    write_named(path, lambda file: file.write(page("Evaluation", lead, sections)))
