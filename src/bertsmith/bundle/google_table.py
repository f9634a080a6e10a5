"""The container of a Google checkpoint's index: the bytes of one file in, sorted (key, value) pairs out.

It is LevelDB's table format, without compression:

    table    data blocks in the order of their keys | metaindex block | index block | footer
    block    entries | restart offsets (4 bytes each) | number of restarts (4 bytes)
    trailer  after each block: compression (1 byte) | masked CRC-32C of the block and that byte (4 bytes)
    entry    shared key bytes, new key bytes, value bytes (varints) | the new key bytes | the value
    handle   a block's offset and its size without the trailer (varints)
    footer   handle of the metaindex | handle of the index | zeros up to 40 bytes | magic number (8 bytes)

The index block has a handle of each data block as its values. No checksum covers the footer, so it is
held to what a writer must write: shortest numbers, zero padding, and blocks that leave no byte between them.

By hand, because TensorFlow is the only library that reads these files, and it is larger than the models.
Errors here name no file; the caller knows which one it is, and adds it.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from bertsmith.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Cursor", "mask_crc32c", "read_table"]

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER_SIZE = 48
_TRAILER_SIZE = 5
_MAX_VARINT_BYTES = 10

# Shared prefixes let a small file spell many long keys: without limits, a few MB could fill the memory.
_MAX_KEY_BYTES = 1024
_MAX_KEYS = 2**16


def mask_crc32c(crc: int) -> int:
    """The form in which these files store a checksum: rotated and shifted by a constant.

    A checksum of bytes that hold their own checksum says little; the mask avoids that.

    >>> hex(mask_crc32c(0xE3069283))
    '0xc78ab0e5'
    """
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return (rotated + 0xA282EAD8) & 0xFFFFFFFF


class Cursor:
    """A place in some bytes that only moves forward, and never past their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._position

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if size > self.remaining:
            raise WeightsError(f"broken: {size} bytes are announced where {self.remaining} are left")
        start = self._position
        self._position += size
        return self._data[start : self._position]

    def fixed(self, size: int) -> int:
        """The next number of a fixed size."""
        return int.from_bytes(self.take(size), "little")

    def varint(self) -> int:
        """The next number of 7 bits a byte, the lowest first, where a high bit says that more follow.

        >>> Cursor(bytes([0xAC, 0x02])).varint()
        300
        """
        value = 0
        for count, byte in enumerate(self._data[self._position : self._position + _MAX_VARINT_BYTES]):
            value |= (byte & 0x7F) << (7 * count)
            if byte < 0x80:
                break
        else:
            raise WeightsError("broken: a number that does not end")
        self._position += count + 1
        if value >= 2**64 or (byte == 0 and count > 0):
            raise WeightsError("broken: a number that no writer would write so")
        return value


class _Handle(NamedTuple):
    offset: int
    size: int


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every key with its value, in order; a block's checksum is verified before its first pair comes out."""
    metaindex, index = _read_footer(data)
    handles = [_read_handle(Cursor(value)) for _, value in _check_order(_read_block(data, index))]
    _check_no_gap([*handles, metaindex, index], len(data) - _FOOTER_SIZE)
    if any(_read_block(data, metaindex)):
        raise WeightsError("a table with filters, which no checkpoint has")
    return _check_order(chain.from_iterable(_read_block(data, handle) for handle in handles))


def _read_footer(data: bytes) -> tuple[_Handle, _Handle]:
    """Where the metaindex and the index are."""
    footer = data[-_FOOTER_SIZE:]
    if len(footer) < _FOOTER_SIZE or not footer.endswith(_MAGIC):
        raise WeightsError("not the index of a checkpoint, or cut short: its end is missing")
    cursor = Cursor(footer[: -len(_MAGIC)])
    metaindex, index = _read_handle(cursor), _read_handle(cursor)
    if any(cursor.take(cursor.remaining)):
        raise WeightsError("broken: the padding at its end is not zero")
    return metaindex, index


def _read_handle(cursor: Cursor) -> _Handle:
    return _Handle(offset=cursor.varint(), size=cursor.varint())


def _check_no_gap(handles: list[_Handle], end: int) -> None:
    """The blocks stand one behind the other and fill the file, so every byte is under some checksum."""
    position = 0
    for handle in handles:
        if handle.offset != position:
            raise WeightsError(f"broken: a block starts at byte {handle.offset} instead of {position}")
        position += handle.size + _TRAILER_SIZE
    if position != end:
        raise WeightsError(f"broken: its blocks end at byte {position} instead of {end}")


def _read_block(data: bytes, handle: _Handle) -> Iterator[tuple[bytes, bytes]]:
    """Verify one block at once, and give its pairs one by one."""
    end = handle.offset + handle.size
    if end + _TRAILER_SIZE > len(data) - _FOOTER_SIZE:
        raise WeightsError(f"broken: a block would end at byte {end}, behind the end of the file")
    trailer = Cursor(data[end : end + _TRAILER_SIZE])
    compression, stored = trailer.fixed(1), trailer.fixed(4)
    if mask_crc32c(google_crc32c.value(data[handle.offset : end + 1])) != stored:
        raise WeightsError(f"damaged: the checksum of the block at byte {handle.offset} is wrong")
    if compression:
        name = "Snappy" if compression == 1 else f"method {compression}"
        raise WeightsError(f"compressed ({name}), which is not supported")
    return _read_entries(data[handle.offset : end])


def _read_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Undo the sharing of key prefixes. Restarts are only for binary search, so they are passed over."""
    num_restarts = Cursor(block[-4:]).fixed(4)
    end = len(block) - 4 * (num_restarts + 1)
    if end < 0:
        raise WeightsError(f"broken: {num_restarts} restart offsets do not fit into their block")
    cursor = Cursor(block[:end])
    key = b""
    while cursor.remaining:
        num_shared, num_new, value_size = cursor.varint(), cursor.varint(), cursor.varint()
        if num_shared > len(key):
            raise WeightsError("broken: a key shares more than there is with the key before it")
        if num_shared + num_new > _MAX_KEY_BYTES:
            raise WeightsError(f"a name is longer than {_MAX_KEY_BYTES} bytes")
        key = key[:num_shared] + cursor.take(num_new)
        yield key, cursor.take(value_size)


def _check_order(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Pass on what is sorted, without duplicates, and not endless."""
    previous: bytes | None = None
    for count, (key, value) in enumerate(pairs):
        if previous is not None and key <= previous:
            raise WeightsError("broken: its names are not in order")
        if count >= _MAX_KEYS:
            raise WeightsError(f"more than {_MAX_KEYS} names")
        yield key, value
        previous = key
