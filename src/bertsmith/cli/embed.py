"""`bertsmith embed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertsmith.cli.output import print_json, print_line, progress_bar

__all__ = ["embed"]


def embed(
    model: str,
    *,
    input: Annotated[str, Parameter(name=["--input", "-i"], allow_leading_hyphen=True)],  # noqa: A002 the flag's name
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    pool: Literal["mean", "cls", "max"] = "mean",
    normalize: Annotated[bool, Parameter(negative="")] = False,
    max_length: int | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Turn texts, one a line, into vectors.

    Parameters
    ----------
    model
        A model folder, a name from `bertsmith models`, or a hub name.
    input
        A UTF-8 file with one text per line; - is standard input.
    output
        The NumPy file to write: float32, one row a line.
    pool
        How a text's token vectors become one.
    normalize
        Scale every vector to length 1, so that a dot product is the cosine.
    max_length
        Cut texts to this many tokens (default: what the model is meant for).
    as_json
        Print the file and its shape as JSON.
    """
    from bertsmith.jobs.embed import embed as job

    with progress_bar("embedding") as progress:
        rows, width = job(
            model,
            input=input,
            output=output,
            pool=pool,
            normalize=normalize,
            max_length=max_length,
            progress=progress,
        )
    if as_json:
        print_json({"output": str(output), "rows": rows, "width": width})
    else:
        print_line(f"{output}: {rows} vectors of {width}")
