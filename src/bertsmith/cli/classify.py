"""`bertsmith classify`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertsmith.cli.output import percent, print_json, print_table, read_text

__all__ = ["classify"]


def classify(
    model: str,
    text: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *,
    pair: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Say which class a text is of.

    A model that was trained for numbers gives its number. For files: bertsmith predict.

    Parameters
    ----------
    model
        A model fine-tuned with --task classify or regress.
    text
        The text; - reads it from standard input.
    pair
        The second text, where the task has pairs.
    as_json
        Print what `bertsmith predict` would.
    """
    from bertsmith.infer.engine import load

    words = read_text(text)
    (found,) = load(model).classify([words if pair is None else (words, pair)])
    if as_json:
        print_json(found)
    elif "value" in found:
        print_table(("value",), [(f"{found['value']:.4f}",)])
    else:
        best_first = sorted(found["scores"].items(), key=lambda item: -item[1])
        print_table(("class", "score"), [(label, percent(score)) for label, score in best_first])
