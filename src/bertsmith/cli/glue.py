"""`bertsmith glue`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertsmith.cli.output import given_once, percent, print_json, print_line, print_table

__all__ = ["glue"]


def glue(
    model: str,
    /,
    *,
    data: Path,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("bertsmith-glue"),
    epochs: float | None = None,
    rate: float | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    changes: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Fine-tune a model on every task of GLUE that is there, and print GLUE's table.

    Parameters
    ----------
    model
        A model folder, a name from `bertsmith models`, or a hub name.
    data
        The folder with CoLA/, SST-2/, MRPC/, … as GLUE distributes them; tasks without files are left out.
    output
        A folder for the runs, one a task.
    epochs
        Times through each training file; 3 if not given.
    rate
        The peak learning rate; 5e-5 if not given.
    batch_size
        Examples a step; 32 if not given.
    seed
        Of the new heads, the order and dropout.
    changes
        One setting for all tasks, NAME=VALUE; again for more.
    resume
        Go on with what is in the folder.
    as_json
        Print the table as JSON, from 0 to 1.
    """
    from bertsmith.cli.display import FinetuneDisplay, leave_if_stopped
    from bertsmith.jobs.glue import glue as job

    others = {"epochs": epochs, "optimizer.rate": rate, "batch.size": batch_size, "seed": seed}
    given = {name: value for name, value in others.items() if value is not None}
    with FinetuneDisplay() as display:
        result = job(
            model,
            data=data,
            output=output,
            changes=given_once(given, changes),
            resume=resume,
            observer=display,
        )
    leave_if_stopped(result, "glue")
    if as_json:
        rows = {row.task: row.scores for row in result.rows}
        print_json({"tasks": rows, "average": result.average, "averaged": result.averaged, "missing": result.missing,
                    "failed": result.failed})  # fmt: skip
        return
    table = [[row.task, " / ".join(row.scores), " / ".join(percent(score) for score in row.scores.values())]
             for row in result.rows]  # fmt: skip
    print_table(["task", "score", ""], table)
    if result.average is not None:
        print_line(f"average of {', '.join(result.averaged)}: {percent(result.average)}")
    if result.missing:
        print_line(f"without a train or a dev file: {', '.join(result.missing)}")
    if result.failed:
        print_line(f"the loss was not finite: {', '.join(result.failed)}")
