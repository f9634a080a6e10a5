"""`bertsmith demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertsmith.cli.output import percent, print_line

__all__ = ["demo"]


def demo(
    *,
    minutes: float = 3.0,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("bertsmith-demo"),
) -> None:
    """Go the whole way: the built-in text, a vocabulary, shards, and a tiny BERT in three minutes.

    Parameters
    ----------
    minutes
        How long to pre-train.
    output
        The folder for everything; a second demo there uses the vocabulary and the shards of the first.
    """
    from bertsmith.cli.display import RunDisplay, describe_accuracy, leave_if_stopped
    from bertsmith.jobs.demo import demo as job

    with RunDisplay() as display:
        made = job(output, minutes=minutes, observer=display)
    result = made.result
    leave_if_stopped(result, "pretrain")
    print_line(f"{made.num_documents:,} documents, {made.num_tokens:,} tokens; {result.plan.parameters:,} parameters")
    done = result.progress
    print_line(f"{done.step:,} steps, {done.tokens:,} tokens in {done.seconds / 60:.1f} minutes")
    print_line("\nGaps in held-out text, before and after:")
    (_, before), (_, after) = result.fills[0], result.fills[-1]
    for first, last in zip(before, after, strict=True):
        print_line(f"  {last.gap.text}")
        for label, fill in (("before", first), ("after", last)):
            shown = ", ".join(f"{piece} {percent(score)}" for piece, score in fill.candidates)
            print_line(f"      {label:7}{shown}")
        print_line(f"      (stood there: {last.gap.answer})")
    print_line("\nOn held-out text:")
    for line in describe_accuracy(result):
        print_line(f"  {line}")
    print_line(f"\nmodel: {result.model}\nreport: {result.folder / 'report.html'}")
    print_line(f'try: bertsmith fill {result.folder} "return a new [MASK] object ."')
