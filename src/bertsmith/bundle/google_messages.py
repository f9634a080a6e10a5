"""What a Google checkpoint's index says: the values of its table in, `Entry` and the number of shards out.

The values are protocol buffers: a header under the empty key, and one entry for each tensor. Two small
messages are read by hand, because the protobuf library wants classes generated from TensorFlow's sources.
Errors here name neither the file nor the tensor; the caller knows them, and adds them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bertsmith.bundle.google_table import Cursor
from bertsmith.bundle.weights import TensorInfo
from bertsmith.errors import WeightsError

__all__ = ["Entry", "read_entry", "read_num_shards"]

# TensorFlow's numbers of types: torch's name and the bytes of one value.
_TYPES = {
    1: ("float32", 4),
    2: ("float64", 8),
    3: ("int32", 4),
    4: ("uint8", 1),
    5: ("int16", 2),
    6: ("int8", 1),
    9: ("int64", 8),
    10: ("bool", 1),
    14: ("bfloat16", 2),
    19: ("float16", 2),
}
_UNSUPPORTED_TYPES = {7: "string", 8: "complex64", 18: "complex128", 20: "resource", 21: "variant"}

# No checkpoint is near these; they keep a hostile file from asking for the impossible.
_MAX_SHARDS = 1024
_MAX_DIMENSIONS = 32

_FORMAT_VERSION = 1


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies: the shard's number, its bytes there, and their masked CRC-32C."""

    info: TensorInfo
    shard: int
    offset: int
    size: int
    checksum: int


@dataclass(frozen=True)
class _Fields:
    """A message by field number; what is absent is zero or empty, as protocol buffers have it."""

    numbers: dict[int, int]
    parts: dict[int, list[bytes]]

    def number(self, field: int) -> int:
        return self.numbers.get(field, 0)

    def message(self, field: int) -> _Fields:
        return _read_fields(b"".join(self.parts.get(field, [])))


def _read_fields(message: bytes) -> _Fields:
    """Split a message; of a number that is written twice the last one counts."""
    fields = _Fields({}, {})
    cursor = Cursor(message)
    while cursor.remaining:
        tag = cursor.varint()
        field, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            fields.numbers[field] = cursor.varint()
        elif wire_type == 1:
            fields.numbers[field] = cursor.fixed(8)
        elif wire_type == 2:
            fields.parts.setdefault(field, []).append(cursor.take(cursor.varint()))
        elif wire_type == 5:
            fields.numbers[field] = cursor.fixed(4)
        else:
            raise WeightsError(f"broken: field {field} is of the unknown kind {wire_type}")
    return fields


def read_num_shards(message: bytes) -> int:
    """Check the header, and say how many data files there are."""
    header = _read_fields(message)
    if header.number(2) != 0:
        raise WeightsError("written by a big-endian machine, which is not supported")
    if header.message(3).number(2) > _FORMAT_VERSION:
        raise WeightsError("written in a newer version of the format, which is not supported")
    num_shards = header.number(1)
    if not 1 <= num_shards <= _MAX_SHARDS:
        raise WeightsError(f"says that it has {_signed(num_shards)} data files, not 1 to {_MAX_SHARDS}")
    return num_shards


def read_entry(message: bytes) -> Entry:
    """Check all that can be known of one tensor without its data file."""
    fields = _read_fields(message)
    if 7 in fields.parts:
        raise WeightsError("saved in slices, which is not supported")
    dtype, item_size = _read_type(fields.number(1))
    shape = _read_shape(fields.message(2))
    size = fields.number(5)
    if math.prod(shape) * item_size != size:
        raise WeightsError(f"{size} bytes, but {dtype} of shape {shape} has {math.prod(shape) * item_size}")
    return Entry(TensorInfo(shape, dtype), fields.number(3), fields.number(4), size, fields.number(6))


def _read_type(number: int) -> tuple[str, int]:
    if number not in _TYPES:
        name = _UNSUPPORTED_TYPES.get(number, f"number {number}")
        raise WeightsError(f"of the type {name}, which is not supported")
    return _TYPES[number]


def _read_shape(fields: _Fields) -> tuple[int, ...]:
    if fields.number(3):
        raise WeightsError("of unknown shape")
    dimensions = fields.parts.get(2, [])
    if len(dimensions) > _MAX_DIMENSIONS:
        raise WeightsError(f"of {len(dimensions)} dimensions, more than {_MAX_DIMENSIONS}")
    shape = tuple(_signed(_read_fields(dimension).number(1)) for dimension in dimensions)
    if any(size < 1 for size in shape):
        raise WeightsError(f"of the impossible shape {shape}")
    return shape


def _signed(number: int) -> int:
    """Negative numbers are stored as their 64-bit two's complement."""
    return number - 2**64 if number >= 2**63 else number
