"""`evaluate`: the scores of a fine-tuned model on a file that tells what is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bertsmith.errors import DataError
from bertsmith.jobs.predict import check_output, open_task, predictions_of
from bertsmith.report.dev import judge
from bertsmith.tasks.task import say_left_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["evaluate"]


def evaluate(
    model: str,
    *,
    data: str,
    options: Mapping[str, Any] | None = None,
    int8: bool = False,
    report: Path | None = None,
    progress: Callable[[int], object] | None = None,
    tell: Callable[[str], object] | None = None,
) -> dict[str, float]:
    """Scores by name; `options` change those of the model's task, and `progress` is told of each example.

    `report` is a page to be written: what is taken for what, how sure the model is, its worst mistakes. `tell` is given
    what a person should know besides, in sentences.
    """
    if report is not None:
        check_output(report, data)
    ready = open_task(model, options, int8=int8)
    if tell is not None and data != "-":
        for remark in say_left_out(ready.task, data):
            tell(remark)
    examples, predictions = [], []
    for example, prediction in predictions_of(ready, data, labelled=True, tell=tell):
        examples.append(example)
        predictions.append(prediction)
        if progress is not None:
            progress(1)
    if not examples:
        raise DataError(f"{data}, line 1: holds no example")
    scores = ready.task.score(examples, predictions)
    if report is not None:
        from bertsmith.report.evaluation import write_evaluation  # matplotlib takes a second to load

        write_evaluation(report, model, data, judge(ready.task, examples, predictions), scores)
    return scores
