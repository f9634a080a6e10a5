"""`embed`: a file of texts, or of pairs of texts, to a file of vectors; and `whiten`: a model with whitened vectors."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bertsmith.bundle.folder import write_bundle
from bertsmith.bundle.resolve import load_bundle
from bertsmith.errors import DataError, InputError
from bertsmith.folders import refuse_existing, refuse_same, write_named
from bertsmith.infer.engine import Engine, load
from bertsmith.infer.pipeline import run_program
from bertsmith.infer.vector_files import check_output, writer_for
from bertsmith.model.pooling import Whitening
from bertsmith.tasks.tables import numbered_lines
from bertsmith.tasks.texts import read_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from bertsmith.infer.programs import TextLike
    from bertsmith.model.pooling import Pool
    from bertsmith.tasks.tables import Column

__all__ = ["embed", "whiten"]

_AT_ONCE = 1024  # vectors
_TABLES = (".tsv", ".csv", ".json", ".jsonl", ".parquet")


def embed(
    model: str,
    *,
    input: str,  # noqa: A002 the flag's name
    output: Path,
    pool: Pool | None = None,
    layers: Sequence[int] | None = None,
    normalize: bool | None = None,
    whiten: bool | None = None,
    max_length: int | None = None,
    tokens: bool = False,
    columns: Mapping[str, Column] | None = None,
    int8: bool = False,
    progress: Callable[[int, int | None], object] | None = None,
) -> tuple[int, int]:
    """Embed the texts of a file (`-` is standard input); gives the number of vectors, or of texts, and their width.

    Plain lines are a text each; tables (TSV, CSV, JSON lines, Parquet) have columns `text` and, perhaps, `pair`. With
    `tokens` every token has a vector for each of `layers`. `progress` is told the number of texts just finished, and
    the number in all where it is known.
    """
    check_output(output, tokens=tokens)
    refuse_same(input, output)
    if tokens and (pool, normalize, whiten) != (None, None, None):
        raise InputError("tokens are given as they are: pool, normalize and whiten are for vectors of whole texts")
    total = _count_lines(input)
    engine = load(model, int8=int8)
    program: Any = (
        engine.tokener(layers or (-1,), max_length=max_length)
        if tokens
        else engine.embedder(pool=pool, layers=layers, normalize=normalize, whiten=whiten, max_length=max_length)
    )
    told = None if progress is None else lambda done: progress(done, total)
    found = run_program(program, read_inputs(input, columns or {}), device=engine.device, progress=told)
    count = 0

    def write(file: BinaryIO) -> None:
        nonlocal count
        count = writer_for(output)(file, (_record(text, result, tokens=tokens) for text, result in found))
        if not count:
            raise DataError(f"{input}: is empty; expected one text per line")

    write_named(output, write)
    return count, program.width


def _record(text: TextLike, result: Any, *, tokens: bool) -> dict[str, Any]:
    """What a line of the output holds."""
    columns = {"text": text} if isinstance(text, str) else dict(zip(("text", "pair"), text, strict=True))
    return {**columns, "tokens": result[0], "vectors": result[1]} if tokens else {**columns, "vector": result}


def whiten(
    model: str,
    *,
    input: str,  # noqa: A002 the flag's name
    output: Path,
    pool: Pool | None = None,
    layers: Sequence[int] | None = None,
    normalize: bool = False,
    dimensions: int | None = None,
    columns: Mapping[str, Column] | None = None,
    progress: Callable[[int, int | None], object] | None = None,
) -> tuple[int, int]:
    """A copy of a model whose sentence vectors are whitened by the texts of a file; gives their number, and the width.

    `normalize` says whether vectors of the new model are scaled to length 1 after that.
    """
    refuse_existing(output)
    total = _count_lines(input)
    bundle = load_bundle(model)
    engine = Engine(replace(load_bundle(model), whitening=None), name=model)
    width = engine.embedder(pool=pool, layers=layers).width
    if dimensions is not None and not 1 <= dimensions <= width:
        raise InputError(f"dimensions must be from 1 to {width}, not {dimensions}")
    found = run_program(
        engine.embedder(pool=pool, layers=layers, normalize=False),
        read_inputs(input, columns or {}),
        device=engine.device,
        progress=None if progress is None else lambda done: progress(done, total),
    )
    count = 0

    def parts() -> Iterator[torch.Tensor]:
        nonlocal count
        vectors = (vector for _, vector in found)
        while some := list(islice(vectors, _AT_ONCE)):
            count += len(some)
            yield torch.from_numpy(np.stack(some))
        if not count:
            raise DataError(f"{input}: is empty; expected one text per line")

    whitening = Whitening.fit(parts(), dimensions)
    pooling = engine.embedder(pool=pool, layers=layers, normalize=normalize).pooling
    write_bundle(output, replace(bundle, pooling=pooling, whitening=whitening), source=f"{model}, whitened")
    return count, int(whitening.kernel.shape[1])


def read_inputs(name: str, columns: Mapping[str, Column]) -> Iterator[TextLike]:
    """The texts or pairs of a file. Of plain lines an empty one is an empty text, so that line n is always row n.

    Where columns are named, there are pairs only if a column for them is among these.
    """
    if Path(name).suffix.lower() in _TABLES or columns:
        paired = "pair" in columns or not columns
        for example in read_texts(name, dict(columns), labelled=False, pairs=None if paired else False):
            yield example.text if example.pair is None else (example.text, example.pair)
    else:
        for _, line in numbered_lines(name):
            yield line.removesuffix("\n").removesuffix("\r")


def _count_lines(name: str) -> int | None:
    """How many texts there will be, where that is quickly known; also whether there is such a file."""
    path = Path(name)
    if name == "-" or path.is_fifo() or path.is_char_device():  # what is read once cannot be counted first
        return None
    try:
        with path.open("rb") as file:
            if path.suffix.lower() in _TABLES:
                return None
            last, count = b"\n", 0
            while block := file.read(2**20):
                last, count = block[-1:], count + block.count(b"\n")
            return count + (last != b"\n")
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror})") from error
