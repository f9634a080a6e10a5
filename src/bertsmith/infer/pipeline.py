"""Inputs of any number through a program: encoded ahead, packed by tokens, run on all cores, given back in order.

While some thousand inputs are in the model the next are being tokenised. They are packed longest first, so that
neighbours in a batch are of like length; no more than two such chunks are in memory, and of long inputs a chunk has
fewer.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from bertsmith.tasks.running import run_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np

    from bertsmith.infer.programs import Program
    from bertsmith.tasks.task import Item, TaskBatch

__all__ = ["run_program"]

Input = TypeVar("Input")
Output = TypeVar("Output")

_INPUTS_AT_ONCE = 4096


def run_program(
    program: Program[Input, Output],
    inputs: Iterable[Input],
    *,
    device: torch.device | str = "cpu",
    progress: Callable[[int], object] | None = None,
) -> Iterator[tuple[Input, Output]]:
    """Each input with its result, in order. `progress` is told how many items each batch finished."""
    chunks = _chunks(program, inputs)
    begun = list(islice(chunks, 2))
    if len(begun) < 2:  # all there is: nothing to be ahead of
        for some in begun:
            yield from _run(program, some, program.encode(some), device, progress)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="tokenise") as ahead:
        todo = _let_go(begun, chunks)
        waiting = ahead.submit(_encode_next, program, todo)
        while (ready := waiting.result()) is not None:
            waiting = ahead.submit(_encode_next, program, todo)
            yield from _run(program, *ready, device, progress)


def _run(
    program: Program[Input, Output],
    inputs: Sequence[Input],
    items: Sequence[Item],
    device: torch.device | str,
    progress: Callable[[int], object] | None,
) -> Iterator[tuple[Input, Output]]:
    def forward(batch: TaskBatch) -> list[np.ndarray]:
        with torch.inference_mode():
            return program.forward(batch)

    outputs = run_batches(forward, items, device=device, progress=progress)
    return zip(inputs, program.decode(inputs, items, outputs), strict=True)


def _let_go(begun: list[list[Input]], rest: Iterator[list[Input]]) -> Iterator[list[Input]]:
    """All chunks; those that were read already are kept no longer than others."""
    while begun:
        yield begun.pop(0)
    yield from rest


def _encode_next(program: Program[Input, Any], chunks: Iterator[list[Input]]) -> tuple[list[Input], list[Item]] | None:
    some = next(chunks, None)
    return None if some is None else (some, program.encode(some))


def _chunks(program: Program[Input, Any], inputs: Iterable[Input]) -> Iterator[list[Input]]:
    """Some thousand inputs at a time, fewer of long ones; those that are read together never apart."""
    some: list[Input] = []
    size = 0
    for one in inputs:
        full = len(some) >= _INPUTS_AT_ONCE or size >= program.characters_at_once
        if some and full and not program.reads_together(some[-1], one):
            yield some
            some, size = [], 0
        some.append(one)
        size += _characters(one)
    if some:
        yield some


def _characters(value: Any) -> int:
    """How much text there is in a text, a pair, pieces or an example.

    >>> _characters(("some", "text"))
    8
    """
    if isinstance(value, str):
        return len(value)
    if isinstance(value, tuple | list):
        return sum(map(_characters, value))
    return sum(_characters(getattr(value, field.name)) for field in fields(value)) if is_dataclass(value) else 1
