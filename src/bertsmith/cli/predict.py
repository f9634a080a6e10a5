"""`bertsmith predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertsmith.cli.output import note_on_int8, print_line, print_note, progress_bar, task_options

__all__ = ["predict"]


def predict(
    model: str,
    /,
    *,
    input: Annotated[str, Parameter(name=["--input", "-i"], allow_leading_hyphen=True)],  # noqa: A002 the flag's name
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    form: Annotated[Literal["jsonl", "tsv"], Parameter(name="--format")] = "jsonl",
    columns: Annotated[list[str] | None, Parameter(name="--column", negative="")] = None,
    changes: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    int8: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Say what a fine-tuned model makes of every example of a file, in its order.

    Parameters
    ----------
    model
        A fine-tuned model or run folder, or a hub name.
    input
        The file, in the form that the model was trained on but without labels; .txt is one text a line (for tags, one
        word a line), - standard input.
    output
        Where to write; standard output if nothing is named.
    form
        jsonl: one object a line. tsv: a header and one line each.
    columns
        FIELD=COLUMN, where the file's columns are others than in training; again for more.
    changes
        One option of the task, NAME=VALUE, as in --set threshold=0.3; again for more.
    int8
        Compute in eight bits, on a CPU: faster where it has AVX512-VNNI, a little less exact.
    """
    from bertsmith.jobs.predict import predict as job

    options = task_options(columns, changes)
    if int8:
        note_on_int8()
    with progress_bar("predicting") as progress:
        count = job(
            model,
            input=input,
            output=output,
            form=form,
            options=options,
            int8=int8,
            progress=lambda done: progress(done, None),
            tell=print_note,
        )
    if output is not None:
        print_line(f"{output}: {count} predictions")
