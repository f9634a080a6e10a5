"""Vectors to a file as they come: `.npy`, `.parquet` or `.jsonl`, by its name."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bertsmith.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

__all__ = ["Writer", "check_output", "writer_for"]

Record = dict[str, Any]  # columns by name; arrays are NumPy's
_ROWS_AT_ONCE, _NUMBERS_AT_ONCE = 1024, 2**24


class Writer(Protocol):
    """Writes records into an open file, and gives their number."""

    def __call__(self, file: BinaryIO, records: Iterable[Record]) -> int:
        """All of them, in order."""


def check_output(path: Path, *, tokens: bool = False) -> None:
    """Refuse, before long work, what cannot be written."""
    if path.suffix not in _WRITERS:
        raise InputError(f"{path}: the output is a file whose name ends in {', '.join(_WRITERS)}")
    if tokens and path.suffix == ".npy":
        raise InputError(f"{path}: texts differ in their number of tokens, which .npy cannot hold; take .jsonl")
    folder = path.absolute().parent
    if not folder.is_dir() or path.is_dir():
        raise InputError(f"{path}: cannot be a file there; the folder {path.parent} does not exist, or it is one")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{path}: the folder {path.parent} cannot be written to")


def writer_for(path: Path) -> Writer:
    """By the ending of a name."""
    return _WRITERS[path.suffix]


def _write_npy(file: BinaryIO, records: Iterable[Record]) -> int:
    """One array; its header is written again when the number of rows is known: NumPy leaves room for that."""
    count, width = 0, 0
    for count, record in enumerate(records, start=1):
        vector = np.ascontiguousarray(record["vector"], np.float32)
        if count == 1:
            width = len(vector)
            _npy_header(file, 0, width)
        file.write(vector.tobytes())
    end = file.tell()
    file.seek(0)
    _npy_header(file, count, width)
    file.seek(max(end, file.tell()))
    return count


def _npy_header(file: BinaryIO, count: int, width: int) -> None:
    kind = np.lib.format.dtype_to_descr(np.dtype("<f4"))
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": (count, width)})


def _write_jsonl(file: BinaryIO, records: Iterable[Record]) -> int:
    count = 0
    for record in records:
        count += 1
        plain = {key: _short(value) if isinstance(value, np.ndarray) else value for key, value in record.items()}
        file.write(json.dumps(plain, ensure_ascii=False).encode() + b"\n")
    return count


def _short(array: np.ndarray) -> Any:
    """As lists of numbers with the nine digits that tell one float32 from the next, and no more."""
    if array.ndim > 1:
        return [_short(row) for row in array]
    return [float(f"{value:.9g}") for value in array.tolist()]


def _write_parquet(file: BinaryIO, records: Iterable[Record]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    count, writer = 0, None
    try:
        for some in _cut(records):
            columns = {key: _column([record[key] for record in some]) for key in some[0]}
            table = pa.table(columns)
            writer = writer or pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
            count += len(some)
    finally:
        if writer is not None:
            writer.close()
    return count


def _column(values: list[Any]) -> Any:
    """Arrays as lists of float32, however deep; other values as they are."""
    import pyarrow as pa

    if not isinstance(values[0], np.ndarray):
        return pa.array(values, pa.list_(pa.string()) if isinstance(values[0], list) else pa.string())
    flat: Any = pa.array(np.concatenate([value.ravel() for value in values]).astype(np.float32))
    for depth in reversed(range(values[0].ndim)):
        sizes = [value.shape[depth] for value in values for _ in range(int(np.prod(value.shape[:depth])))]
        flat = pa.ListArray.from_arrays(pa.array(np.cumsum([0, *sizes]), pa.int32()), flat)
    return flat


def _cut(records: Iterable[Record]) -> Iterator[list[Record]]:
    """So many rows at a time that their vectors take little memory, and Parquet's offsets have 32 bits."""
    some: list[Record] = []
    numbers = 0
    for record in records:
        some.append(record)
        numbers += sum(value.size for value in record.values() if isinstance(value, np.ndarray))
        if len(some) == _ROWS_AT_ONCE or numbers >= _NUMBERS_AT_ONCE:
            yield some
            some, numbers = [], 0
    if some:
        yield some


_WRITERS: dict[str, Writer] = {".npy": _write_npy, ".parquet": _write_parquet, ".jsonl": _write_jsonl}
