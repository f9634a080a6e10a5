"""`bertsmith answer`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter, validators

from bertsmith.cli.output import percent, print_json, print_line, print_table, read_text

__all__ = ["answer"]


def answer(
    model: str,
    *,
    question: Annotated[str, Parameter(allow_leading_hyphen=True)],
    context: Annotated[str, Parameter(allow_leading_hyphen=True)],
    top: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 3,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Find the answer to a question in a text.

    The text may be of any length. For files: bertsmith predict.

    Parameters
    ----------
    model
        A model fine-tuned with --task answer.
    question
        What is asked.
    context
        The text that may have the answer; - reads it from standard input.
    top
        How many answers to show.
    as_json
        Print what `bertsmith predict` would, with the first --top candidates.
    """
    from bertsmith.infer.engine import load

    found = load(model).answer(question, read_text(context))
    if as_json:
        print_json({**found, "candidates": found["candidates"][:top]})
        return
    if not found["answer"]:
        print_line("the text has no answer; the likeliest places:")
    rows = [
        (each["text"], f"{each['start']}–{each['end']}", percent(each["score"])) for each in found["candidates"][:top]
    ]
    print_table(("answer", "characters", "score"), rows)
