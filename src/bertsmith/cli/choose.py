"""`bertsmith choose`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertsmith.cli.output import percent, print_json, print_table, read_text

__all__ = ["choose"]


def choose(
    model: str,
    text: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *choices: Annotated[str, Parameter(allow_leading_hyphen=True)],
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Say which of several texts goes with a text.

    For files: bertsmith predict.

    Parameters
    ----------
    model
        A model fine-tuned with --task choose.
    text
        The text; - reads it from standard input.
    choices
        Two or more to choose from.
    as_json
        Print what `bertsmith predict` would.
    """
    from bertsmith.infer.engine import load

    found = load(model).choose(read_text(text), choices)
    if as_json:
        print_json(found)
        return
    best_first = sorted(zip(choices, found["scores"], strict=True), key=lambda pair: -pair[1])
    print_table(("choice", "score"), [(choice, percent(score)) for choice, score in best_first])
