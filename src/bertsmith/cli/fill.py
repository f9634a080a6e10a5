"""`bertsmith fill`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertsmith.cli.output import percent, print_json, print_table, read_text

__all__ = ["fill"]


def fill(
    model: str,
    text: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *,
    top: int = 5,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Say what stands at each [MASK] of a text.

    Parameters
    ----------
    model
        A model folder, a name from `bertsmith models`, or a hub name; it needs a masked-word head.
    text
        The text with one or more [MASK]; - reads it from standard input.
    top
        How many candidates for each [MASK].
    as_json
        Print a list with, for each [MASK] in order, its `candidates` of `token` and `score`.
    """
    from bertsmith.jobs.fill import fill as job

    gaps = job(model, read_text(text), top=top)
    if as_json:
        print_json([{"candidates": [candidate._asdict() for candidate in gap]} for gap in gaps])
        return
    rows = [
        (str(number), candidate.token, percent(candidate.score))
        for number, gap in enumerate(gaps, start=1)
        for candidate in gap
    ]
    print_table(("mask", "token", "score"), rows)
