"""`embed`: a file of texts, one a line, to a file of vectors."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bertsmith.errors import InputError
from bertsmith.folders import write_whole
from bertsmith.infer.engine import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from bertsmith.infer.embed import Pool

__all__ = ["embed"]


def embed(
    model: str,
    *,
    input: str,  # noqa: A002 the flag's name
    output: Path,
    pool: Pool = "mean",
    normalize: bool = False,
    max_length: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[int, int]:
    """Embed the lines of a file (`-` is standard input) into an `.npy` file; gives its shape.

    `progress` is told the number of texts just finished and the number in all.
    """
    if output.suffix != ".npy":
        raise InputError(f"{output}: the output is a NumPy file, so its name must end in .npy")
    if not output.absolute().parent.is_dir() or output.is_dir():
        raise InputError(f"{output}: cannot be a file there; the folder {output.parent} does not exist, or it is one")
    if not os.access(output.absolute().parent, os.W_OK):
        raise InputError(f"{output}: the folder {output.parent} cannot be written to")
    texts = _read_lines(input)
    engine = load(model)
    vectors = engine.embed(
        texts,
        pool=pool,
        normalize=normalize,
        max_length=max_length,
        progress=None if progress is None else lambda done: progress(done, len(texts)),
    )
    write_whole(output, lambda file: np.save(file, vectors))
    return vectors.shape[0], vectors.shape[1]


def _read_lines(name: str) -> list[str]:
    """The lines of a file; an empty line is an empty text, so that line n is always row n."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror})") from error
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{name}: line {line} is not UTF-8 (byte {error.start}); convert the file first") from error
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise InputError(f"{name}: is empty; expected one text per line")
    return [line.removesuffix("\r") for line in lines]
