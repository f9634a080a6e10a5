"""The report of a fine-tuning run: from its folder, at any time, also while it is still going on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.config import read_json
from bertsmith.errors import BertsmithError
from bertsmith.finetuning.request import read_request
from bertsmith.report.dev import PREDICTIONS_FILE, View, load_dev
from bertsmith.report.evaluation import show_predictions
from bertsmith.report.facts import Facts, count_examples, show_data
from bertsmith.report.figures import best_of, find_evaluations, name_score, read_scores, score_names, show_score
from bertsmith.report.page import Html, paragraph, section, table
from bertsmith.report.plots import BLUE, GREEN, ORANGE, PURPLE, RED, Curve
from bertsmith.report.runs import (
    TRAINING_PLOTS,
    read_entries,
    show_curves,
    show_remarks,
    show_settings,
    training_done,
    write_page,
    write_plots,
)
from bertsmith.tasks.kinds import make_task
from bertsmith.train.request import CONFIG_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bertsmith.finetuning.request import Request
    from bertsmith.report.figures import Evaluation
    from bertsmith.report.runs import Plot
    from bertsmith.tasks.task import Task

__all__ = ["write_report"]

_LOSS: Plot = ("Loss", "loss", [Curve("train", "loss", "train", BLUE), Curve("eval", "loss", "dev", ORANGE, "s")])
_STYLES = [(GREEN, "o"), (RED, "s"), (BLUE, "^"), (ORANGE, "D"), (PURPLE, "v")]


def write_report(run: Path) -> Path:
    """Write `report.html`, and its pictures as PNG into `plots/`; gives the page's path."""
    entries, request = read_entries(run), read_request(run)
    task = make_task(request.kind, request.options)
    evaluations, kept = find_evaluations(entries), read_scores(run)
    files, view = _count(task, request), _show_dev(run, request)
    write_plots(run, view.plots)
    sections = [
        *show_remarks(entries),
        show_curves(run, {"loss": _LOSS, "scores": _score_plot(task, evaluations), **TRAINING_PLOTS}, entries),
        section("Scores on the dev file", _scores(evaluations, task.options.metric, kept)),
        *view.sections,
        show_data(files),
        show_settings(read_json(run / CONFIG_FILE)),
    ]
    steps, tokens, minutes = training_done(entries)
    known = files["train"]
    examples = f"{known.num_examples:,} examples, " if known.error is None else ""
    lead = [
        _name(request),
        f"{steps:,} steps, {examples}{tokens:,} tokens in {minutes:.1f} minutes of training",
        *_best(task.options.metric, evaluations),
        *(["not finished"] if kept is None else []),
    ]
    return write_page(run, f"Fine-tuning: {run.resolve().name}", "; ".join(lead), sections)


def _name(request: Request) -> str:
    """The model and the task."""
    model = Path(request.model).name if Path(request.model).is_absolute() else request.model
    return f"{model}, {request.kind}" if request.preset is None else f"{model}, {request.preset} ({request.kind})"


def _best(metric: str, evaluations: Sequence[Evaluation]) -> list[str]:
    best = best_of(metric, evaluations)
    return [] if best is None else [f"best {name_score(metric)} {show_score(metric, best[0])} at step {best[1]:,}"]


def _count(task: Task[Any], request: Request) -> dict[str, Facts]:
    files = {"train": count_examples(task, request.train, request.rows)}
    return files if request.dev is None else {**files, "dev": count_examples(task, request.dev)}


def _score_plot(task: Task[Any], evaluations: Sequence[Evaluation]) -> Plot:
    """The task's own scores; those that are the same at every step are one curve."""
    together: dict[tuple[Any, ...], list[str]] = {}
    for name in task.metrics:
        values = tuple(evaluation.scores.get(name) for evaluation in evaluations)
        if any(value is not None for value in values):
            together.setdefault(values, []).append(name)
    curves = [
        Curve("eval", names[0], ", ".join(map(name_score, names)), color, marker)
        for names, (color, marker) in zip(together.values(), _STYLES, strict=False)
    ]
    return "Scores on the dev file", "score", curves


def _scores(evaluations: Sequence[Evaluation], metric: str, kept: Mapping[str, float] | None) -> Html:
    if not evaluations:
        return paragraph("None yet, or the run has no dev file.")
    header = ["score", "first", "best", "at step", "last", *(["kept model"] if kept else [])]
    decides = paragraph(f"What decides which model is kept: {name_score(metric)}.")
    return Html(decides + table(header, list(_score_rows(evaluations, metric, kept)), "Scores on the dev file"))


def _score_rows(
    evaluations: Sequence[Evaluation], metric: str, kept: Mapping[str, float] | None
) -> Iterator[list[str]]:
    for name in score_names(evaluations, metric):
        values = [evaluation.scores[name] for evaluation in evaluations if name in evaluation.scores]
        best, step = best_of(name, evaluations) or (math.nan, 0)
        row = [name_score(name), show_score(name, values[0]), show_score(name, best), f"{step:,}"]
        row.append(show_score(name, values[-1]))
        if kept:
            row.append(show_score(name, kept[name]) if name in kept else "")
        yield row


def _show_dev(run: Path, request: Request) -> View:
    """What the kept model says of the dev file, or why that cannot be shown."""
    heading = "Predictions on the dev file"
    if request.dev is None:
        return View([section(heading, paragraph("The run has no dev file."))])
    if not (run / PREDICTIONS_FILE).is_file():
        return View([section(heading, paragraph("None yet: they are made at the end of the run."))])
    try:
        return show_predictions(load_dev(run, request))
    except BertsmithError as error:
        return View([section(heading, paragraph(str(error)))])
