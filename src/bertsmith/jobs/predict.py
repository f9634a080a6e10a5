"""`predict`: what a fine-tuned model says of every example of a file, in its order.

A file of any length streams through, some thousand examples at a time; so does standard input.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bertsmith.errors import DataError, InputError
from bertsmith.folders import refuse_same, refuse_unwritable, write_named
from bertsmith.infer.engine import Engine, load
from bertsmith.infer.pipeline import run_program
from bertsmith.infer.programs import TaskProgram
from bertsmith.tasks.task import say_cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from bertsmith.tasks.task import Item, Prediction

__all__ = ["Form", "check_output", "open_task", "predict", "predictions_of"]

Form = Literal["jsonl", "tsv"]


def predict(
    model: str,
    *,
    input: str,  # noqa: A002 the flag's name
    output: Path | None = None,
    form: Form = "jsonl",
    options: Mapping[str, Any] | None = None,
    int8: bool = False,
    progress: Callable[[int], object] | None = None,
    tell: Callable[[str], object] | None = None,
) -> int:
    """Predictions of a file (`-` is standard input) into another, or to standard output; gives their number.

    `progress` is told of each, and `tell` is given what a person should know besides, in sentences.
    """
    if output is not None:
        check_output(output, input)
    ready = open_task(model, options, int8=int8)
    count = 0

    def write(file: BinaryIO) -> None:
        nonlocal count
        for count, (_, prediction) in enumerate(predictions_of(ready, input, labelled=False, tell=tell), start=1):
            file.write(_line(prediction, form, first=count == 1))
            if progress is not None:
                progress(1)
        if not count:
            raise DataError(f"{input}: is empty; expected one example at least")

    if output is None:
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        write_named(output, write)
    return count


def check_output(output: Path, given: str) -> None:
    """Refuse a file that cannot be written, or would be written over the one that is read, before any work is done."""
    if not output.absolute().parent.is_dir():
        raise InputError(f"{output}: the folder {output.parent} does not exist")
    if output.is_dir():
        raise InputError(f"{output}: is a folder; name a file")
    if not output.exists() or output.is_file():  # a device is written to as it is
        refuse_unwritable(output, output.resolve().parent)
    refuse_same(given, output)


def open_task(name: str, options: Mapping[str, Any] | None = None, *, int8: bool = False) -> Engine:
    """A fine-tuned model, its task changed as told."""
    engine = load(name, options=options, int8=int8)
    engine.task  # noqa: B018 a model without one is refused here, not in the middle of a file
    return engine


def predictions_of(
    engine: Engine, name: str, *, labelled: bool, tell: Callable[[str], object] | None = None
) -> Iterator[tuple[Any, Prediction]]:
    """Each example of a file with its prediction; in the end `tell` hears how many were cut."""
    task, num_examples = engine.task, 0
    program = _Counting(task, engine.model, engine.tokenizer)
    for found in run_program(program, task.read(name, labelled=labelled), device=engine.device):
        num_examples += 1
        yield found
    if tell is not None:
        for remark in say_cut(task, sum(program.num_cut), f"{num_examples:,} texts", in_training=False):
            tell(remark)


@dataclass(frozen=True)
class _Counting(TaskProgram):
    """Counts the examples that it cuts."""

    num_cut: list[int] = field(default_factory=list)

    def encode(self, inputs: Sequence[Any]) -> list[Item]:
        """See `TaskProgram`."""
        items = super().encode(inputs)
        self.num_cut.append(self.task.count_cut(inputs, items, self.tokenizer))
        return items


def _line(prediction: Prediction, form: Form, *, first: bool) -> bytes:
    if form == "jsonl":
        return json.dumps(prediction, ensure_ascii=False).encode() + b"\n"
    lines = ["\t".join(prediction)] if first else []
    lines.append("\t".join(_cell(value) for value in prediction.values()))
    return ("\n".join(lines) + "\n").encode()


def _cell(value: Any) -> str:
    """A value in one cell: text on one line, and what is nested as JSON."""
    if isinstance(value, str):
        return " ".join(value.split("\t")).replace("\n", " ").replace("\r", " ")
    return json.dumps(value, ensure_ascii=False)
