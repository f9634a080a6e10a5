"""`bertsmith whiten`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertsmith.cli.output import columns_of, layers_of, print_line, progress_bar

__all__ = ["whiten"]


def whiten(
    model: str,
    *,
    input: Annotated[str, Parameter(name=["--input", "-i"], allow_leading_hyphen=True)],  # noqa: A002 the flag's name
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    pool: Literal["mean", "cls", "max", "last4", "first-last"] | None = None,
    layers: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    dimensions: int | None = None,
    normalize: Annotated[bool, Parameter(negative="")] = False,
    columns: Annotated[list[str] | None, Parameter(name="--column", negative="")] = None,
) -> None:
    """Fit a whitening of sentence vectors on texts, and write the model with it.

    Whitened vectors of a plain BERT compare better: over the texts they have mean 0 and the same spread in every
    direction. `bertsmith embed` on the new folder uses it.

    Parameters
    ----------
    model
        A model folder, a name from `bertsmith models`, or a hub name.
    input
        Texts like those that will be embedded, some thousand: one a line, or a table as for `bertsmith embed`.
    output
        The model folder to write; it must not exist.
    pool
        How a text's token vectors become one, as in `bertsmith embed`.
    layers
        Layers to average instead of the last one.
    dimensions
        How many to keep, those of the largest variance; all if nothing is said.
    normalize
        Vectors of the new model are scaled to length 1 at the end.
    columns
        FIELD=COLUMN for tables.
    """
    from bertsmith.jobs.embed import whiten as job

    with progress_bar("embedding") as progress:
        count, width = job(
            model,
            input=input,
            output=output,
            pool=pool,
            layers=layers_of(layers),
            dimensions=dimensions,
            normalize=normalize,
            columns=columns_of(columns),
            progress=progress,
        )
    print_line(f"{output}: whitened by {count:,} texts, vectors of {width}")
