"""`predict`: what a fine-tuned model says of every example of a file, in its order, as they come."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch

from bertsmith.errors import InputError
from bertsmith.folders import write_whole
from bertsmith.model.memory import keep_freed_memory
from bertsmith.tasks.loading import TaskModel, load_task
from bertsmith.tasks.running import predict_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from bertsmith.tasks.task import Prediction

__all__ = ["Form", "open_task", "predict", "predictions_of"]

Form = Literal["jsonl", "tsv"]


def predict(
    model: str,
    *,
    input: str,  # noqa: A002 the flag's name
    output: Path | None = None,
    form: Form = "jsonl",
    options: Mapping[str, Any] | None = None,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Predictions of a file (`-` is standard input) into another, or to standard output; gives their number."""
    if output is not None and not output.absolute().parent.is_dir():
        raise InputError(f"{output}: the folder {output.parent} does not exist")
    ready = open_task(model, options)
    count = 0

    def write(file: BinaryIO) -> None:
        nonlocal count
        for count, (_, prediction) in enumerate(predictions_of(ready, input, labelled=False), start=1):
            file.write(_line(prediction, form, first=count == 1))
            if progress is not None:
                progress(1)

    if output is None:
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        write_whole(output, write)
    return count


def open_task(name: str, options: Mapping[str, Any] | None = None) -> TaskModel:
    """A fine-tuned model on the device that there is, its task changed as told."""
    keep_freed_memory()
    ready = load_task(name)
    task = ready.task.changed(**(options or {}))
    trained = set(ready.model.state_dict())
    task.attach(ready.model)
    if not trained >= set(ready.model.state_dict()):
        raise InputError(f"{name}: attention over segments must be trained, and was not; set long.pool to max or mean")
    positions = ready.model.config.max_position_embeddings
    if task.options.max_length > positions:
        raise InputError(f"max_length: {task.options.max_length} is beyond the model's {positions} positions")
    return replace(ready, task=task, model=ready.model.to(_device()))


def predictions_of(ready: TaskModel, name: str, *, labelled: bool) -> Iterator[tuple[Any, Prediction]]:
    """Each example of a file with its prediction."""
    examples = ready.task.read(name, labelled=labelled)
    return predict_stream(ready.task, ready.model, examples, ready.tokenizer, device=_device())


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


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
