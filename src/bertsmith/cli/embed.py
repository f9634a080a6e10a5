"""`bertsmith embed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertsmith.cli.output import columns_of, layers_of, note_on_int8, print_json, print_line, progress_bar

__all__ = ["embed"]


def embed(
    model: str,
    *,
    input: Annotated[str, Parameter(name=["--input", "-i"], allow_leading_hyphen=True)],  # noqa: A002 the flag's name
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    pool: Literal["mean", "cls", "max", "last4", "first-last"] | None = None,
    layers: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    normalize: bool | None = None,
    whiten: bool | None = None,
    max_length: int | None = None,
    tokens: Annotated[bool, Parameter(negative="")] = False,
    columns: Annotated[list[str] | None, Parameter(name="--column", negative="")] = None,
    int8: Annotated[bool, Parameter(negative="")] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Turn texts, or pairs of texts, into vectors.

    Parameters
    ----------
    model
        A model folder, a name from `bertsmith models`, or a hub name.
    input
        UTF-8 with one text a line (- is standard input), or a table: .tsv, .csv, .jsonl or .parquet with a column text
        and, for pairs, a column pair (or text_a and text_b, sentence1 and sentence2, and the like).
    output
        The file to write, one vector a text: .npy (float32), .parquet or .jsonl.
    pool
        How a text's token vectors become one; mean if neither you nor the model's folder says. last4: the last four
        layers side by side; first-last: the average of the first layer and the last.
    layers
        Layers to average instead of the last one, as in --layers -2,-1; 0 is the embeddings.
    normalize
        Scale every vector to length 1, so that a dot product is the cosine.
    whiten
        Use the whitening that the model has (see bertsmith whiten); it is used where there is one.
    max_length
        Cut texts to this many tokens (default: what the model is meant for).
    tokens
        A vector for every token, in each of --layers; into .jsonl or .parquet.
    columns
        FIELD=COLUMN for tables, as in --column text=sentence1 --column pair=sentence2.
    int8
        Compute in eight bits, on a CPU: faster where it has AVX512-VNNI, a little less exact.
    as_json
        Print the file and its shape as JSON.
    """
    from bertsmith.jobs.embed import embed as job

    if int8:
        note_on_int8()
    with progress_bar("embedding") as progress:
        rows, width = job(
            model,
            input=input,
            output=output,
            pool=pool,
            layers=layers_of(layers),
            normalize=normalize,
            whiten=whiten,
            max_length=max_length,
            tokens=tokens,
            columns=columns_of(columns),
            int8=int8,
            progress=progress,
        )
    if as_json:
        print_json({"output": str(output), "rows": rows, "width": width})
    else:
        print_line(f"{output}: {rows} {'texts, vectors' if tokens else 'vectors'} of {width}")
