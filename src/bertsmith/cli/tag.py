"""`bertsmith tag`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertsmith.cli.output import percent, print_json, print_table, read_text

__all__ = ["tag"]


def tag(
    model: str,
    text: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Find the entities of a text.

    For files: bertsmith predict.

    Parameters
    ----------
    model
        A model fine-tuned with --task tag.
    text
        The text; - reads it from standard input.
    as_json
        Print what `bertsmith predict` would: the tags of all words too.
    """
    from bertsmith.infer.engine import load

    (found,) = load(model).tag([read_text(text)])
    if as_json:
        print_json(found)
        return
    rows = [
        (entity["text"], entity["label"], f"{entity['start']}–{entity['end']}", percent(entity["score"]))
        for entity in found["entities"]
    ]
    print_table(("entity", "label", "characters", "score"), rows)
