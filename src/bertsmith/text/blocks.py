"""The bytes of a source in blocks, decompressed on the way. Nothing is ever held whole.

What is wrong with a file as such (it cannot be opened, its compression is broken) is raised as
`BrokenSourceError`; what came before stays good.
"""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bertsmith.text.files import Source

__all__ = ["BLOCK_SIZE", "BrokenSourceError", "read_blocks", "read_lines"]

BLOCK_SIZE = 2**20
_MAGIC = {b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst"}


class BrokenSourceError(Exception):
    """A source that cannot be read on, in words for a person."""


def read_blocks(source: Source, progress: Callable[[int], object] | None = None) -> Iterator[bytes]:
    """The content of a source; `progress` is told how many bytes were taken from the disk."""
    try:
        with _open(source) as file:
            raw = _Counted(file, progress)
            compression = source.compression or _sniff(source, raw)
            decompress = {"gz": _gunzip, "zst": _unzstd, None: _plain}[compression]
            yield from decompress(raw)
    except gzip.BadGzipFile as error:
        raise BrokenSourceError(f"not a sound gzip file ({error})") from error
    except EOFError as error:
        raise BrokenSourceError("the gzip file ends too early") from error
    except zlib.error as error:
        raise BrokenSourceError(f"the gzip file is damaged ({error})") from error
    except OSError as error:
        raise BrokenSourceError(f"cannot be read ({error.strerror or error})") from error


def read_lines(blocks: Iterator[bytes], limit: int) -> Iterator[bytes | None]:
    """Lines without their ends; None stands for a line longer than `limit`, which is read past, not kept."""
    rest, size, too_long = [], 0, False
    for block in blocks:
        first, *lines = block.split(b"\n")
        rest.append(first)
        size += len(first)
        for line in lines:
            yield None if too_long or size > limit else b"".join(rest)
            rest, size, too_long = [line], len(line), False
        if size > limit:
            rest, too_long = [], True
    if too_long or size:
        yield None if too_long else b"".join(rest)


def _open(source: Source) -> BinaryIO:
    if source.path is None:
        if sys.stdin is None:  # as `<&-` leaves it
            raise BrokenSourceError("is closed")
        return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", _Unclosed(sys.stdin.buffer))))
    return source.path.open("rb")


class _Unclosed(io.RawIOBase):
    """Standard input, which is not ours to close."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Counted(io.RawIOBase):
    """A file that tells how much of it was read, with room to look at its first bytes."""

    def __init__(self, file: BinaryIO, progress: Callable[[int], object] | None) -> None:
        self._file = file
        self._progress = progress
        self._ahead = b""

    def readable(self) -> bool:
        return True

    def peek(self, size: int) -> bytes:
        self._ahead = self.read(size)
        return self._ahead

    def read(self, size: int = -1) -> bytes:
        data, self._ahead = self._ahead, b""
        if not data:
            data = self._file.read(size)
            if self._progress is not None and data:
                self._progress(len(data))
        return data

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _sniff(source: Source, raw: _Counted) -> str | None:
    """Standard input has no name that would tell its compression; a file whose name does not tell is an error."""
    start = raw.peek(4)
    found = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
    if found and source.path is not None:
        raise BrokenSourceError(f"is compressed, and its name does not say so; name it …{source.path.suffix}.{found}")
    return found


def _plain(raw: _Counted) -> Iterator[bytes]:
    while block := raw.read(BLOCK_SIZE):
        yield block


def _gunzip(raw: _Counted) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=io.BufferedReader(cast("io.RawIOBase", raw), BLOCK_SIZE)) as file:
        while block := file.read(BLOCK_SIZE):
            yield block


def _unzstd(raw: _Counted) -> Iterator[bytes]:
    """By Arrow's stream: it tells a file that was cut from one that has ended, and bounds what is unpacked at once."""
    import pyarrow

    try:
        with pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, mode="r"), "zstd") as file:
            while block := file.read(BLOCK_SIZE):
                yield block
    except OSError as error:
        raise BrokenSourceError(f"not a sound zstd file ({error})") from error
