"""`bertsmith evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertsmith.cli.output import note_on_int8, percent, print_json, print_note, print_table, progress_bar, task_options

__all__ = ["evaluate"]


def evaluate(
    model: str,
    /,
    *,
    data: Annotated[str, Parameter(allow_leading_hyphen=True)],
    columns: Annotated[list[str] | None, Parameter(name="--column", negative="")] = None,
    changes: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    int8: Annotated[bool, Parameter(negative="")] = False,
    report: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Score a fine-tuned model on a file that tells what is right.

    Parameters
    ----------
    model
        A fine-tuned model or run folder, or a hub name.
    data
        The file, in the form that the model was trained on.
    columns
        FIELD=COLUMN, where the file's columns are others than in training; again for more.
    changes
        One option of the task, NAME=VALUE, as in --set max_length=256; again for more.
    int8
        Compute in eight bits, on a CPU; shows what that costs.
    report
        Write a page too: what is taken for what, scores by class, calibration, the worst mistakes with their text.
    as_json
        Print the scores as JSON, from 0 to 1.
    """
    from bertsmith.jobs.evaluate import evaluate as job

    options = task_options(columns, changes)
    if int8:
        note_on_int8()
    with progress_bar("evaluating") as progress:
        scores = job(
            model,
            data=data,
            options=options,
            int8=int8,
            report=report,
            progress=lambda done: progress(done, None),
            tell=print_note,
        )
    if report is not None:
        print_note(f"report: {report}")
    if as_json:
        print_json(scores)
    else:
        print_table(["score", ""], [[name, percent(score)] for name, score in scores.items()])
