"""A small writer of Google's checkpoint format: numpy arrays in, `PREFIX.index` and its data files out.

It shares no code with the reader. Small blocks and frequent restarts are possible, so that a tiny checkpoint
has all that a large one has; and each piece can be encoded alone, so that tests can write what is wrong.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "Stored",
    "encode_entry",
    "encode_header",
    "message_field",
    "number_field",
    "plain_bert",
    "varint",
    "write_checkpoint",
    "write_stored",
    "write_table",
]

# The tiny BERT that the tests write.
VOCABULARY, POSITIONS, WIDTH, INNER, LAYERS = 7, 5, 4, 6, 2

Pairs = list[tuple[bytes, bytes]]

MAGIC = bytes.fromhex("57fb808b247547db")
TYPE_NUMBERS = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "int64": 9,
    "bool": 10,
    "float16": 19,
}


@dataclass(frozen=True)
class Stored:
    """One tensor as it will be written."""

    type_number: int
    shape: tuple[int, ...]
    content: bytes


def masked_crc(data: bytes) -> int:
    """TensorFlow's form of CRC-32C."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32


def varint(value: int) -> bytes:
    """A number of 7 bits a byte; a negative one as its two's complement of 64 bits."""
    value %= 2**64
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value % 128 + 128)
        value //= 128
    return bytes([*encoded, value])


def number_field(field: int, value: int) -> bytes:
    """A field of a message; protocol buffers leave a zero out."""
    return varint(field * 8) + varint(value) if value else b""


def message_field(field: int, message: bytes) -> bytes:
    """A message inside a message."""
    return varint(field * 8 + 2) + varint(len(message)) + message


def encode_header(num_shards: int, *, endianness: int = 0, min_consumer: int = 0) -> bytes:
    """What stands under the empty key."""
    version = number_field(1, 1) + number_field(2, min_consumer)
    return number_field(1, num_shards) + number_field(2, endianness) + message_field(3, version)


def encode_entry(
    type_number: int, shape: Iterable[int], *, shard: int = 0, offset: int = 0, size: int = 0, crc: int = 0
) -> bytes:
    """What stands under a tensor's name."""
    dimensions = b"".join(message_field(2, number_field(1, length)) for length in shape)
    place = number_field(3, shard) + number_field(4, offset) + number_field(5, size)
    checksum = varint(6 * 8 + 5) + struct.pack("<I", crc)
    return number_field(1, type_number) + message_field(2, dimensions) + place + checksum


def encode_block(pairs: Pairs, restart_interval: int, compression: int = 0) -> bytes:
    """Entries with shared prefixes, and restart offsets, and the compression's number."""
    content, previous = b"", b""
    restarts: list[int] = []
    for number, (key, value) in enumerate(pairs):
        num_shared = 0
        if number % restart_interval == 0:
            restarts.append(len(content))
        else:
            while num_shared < min(len(key), len(previous)) and key[num_shared] == previous[num_shared]:
                num_shared += 1
        new = key[num_shared:]
        content += varint(num_shared) + varint(len(new)) + varint(len(value)) + new + value
        previous = key
    restarts = restarts or [0]
    return content + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts)) + bytes([compression])


def split_blocks(pairs: Pairs, block_size: int) -> list[Pairs]:
    """Pairs in groups that reach `block_size`."""
    groups: list[Pairs] = [[]]
    for key, value in pairs:
        if sum(len(key) + len(value) for key, value in groups[-1]) >= block_size:
            groups.append([])
        groups[-1].append((key, value))
    return groups


def write_table(
    path: Path,
    pairs: Pairs,
    *,
    block_size: int = 4096,
    restart_interval: int = 16,
    compression: int = 0,
    tamper: Callable[[bytes], bytes] = bytes,
) -> None:
    """Pairs as they are, in this order; `tamper` may change a block before its checksum is taken."""
    content = b""

    def add_block(pairs: Pairs, interval: int) -> bytes:
        """Write a block with its checksum, and give its handle."""
        nonlocal content
        block = tamper(encode_block(pairs, interval, compression))
        handle = varint(len(content)) + varint(len(block) - 1)
        content += block + struct.pack("<I", masked_crc(block))
        return handle

    groups = split_blocks(pairs, block_size)
    handles = [(group[-1][0] if group else b"", add_block(group, restart_interval)) for group in groups]
    footer = add_block([], 1) + add_block(handles, 1)
    path.write_bytes(content + footer.ljust(40, b"\0") + MAGIC)


def write_stored(
    prefix: Path,
    tensors: Mapping[str, Stored],
    *,
    num_shards: int = 1,
    alignment: int = 1,
    **table_options: Any,
) -> None:
    """Tensors dealt out to the shards in turn, in the order given; `table_options` are `write_table`'s."""
    shards = [b""] * num_shards
    entries = {b"": encode_header(num_shards)}
    for number, (name, tensor) in enumerate(tensors.items()):
        shard = number % num_shards
        shards[shard] += bytes(-len(shards[shard]) % alignment)
        entries[name.encode()] = encode_entry(
            tensor.type_number,
            tensor.shape,
            shard=shard,
            offset=len(shards[shard]),
            size=len(tensor.content),
            crc=masked_crc(tensor.content),
        )
        shards[shard] += tensor.content
    for shard, content in enumerate(shards):
        Path(f"{prefix}.data-{shard:05d}-of-{num_shards:05d}").write_bytes(content)
    write_table(Path(f"{prefix}.index"), sorted(entries.items()), **table_options)


def write_checkpoint(prefix: Path, arrays: Mapping[str, np.ndarray[Any, Any]], **options: Any) -> None:
    """A checkpoint of numpy arrays; the options are those of `write_stored` and `write_table`."""
    stored = {
        name: Stored(TYPE_NUMBERS[array.dtype.name], array.shape, array.tobytes()) for name, array in arrays.items()
    }
    write_stored(prefix, stored, **options)


def plain_bert() -> dict[str, np.ndarray[Any, Any]]:
    """A tiny BERT for pre-training under Google's names, written out by hand as the original writes it."""
    dense = {"bert/pooler/dense": (WIDTH, WIDTH), "cls/predictions/transform/dense": (WIDTH, WIDTH)}
    norms = ["bert/embeddings", "cls/predictions/transform"]
    for number in range(LAYERS):
        layer = f"bert/encoder/layer_{number}"
        for part in ("self/query", "self/key", "self/value", "output/dense"):
            dense[f"{layer}/attention/{part}"] = (WIDTH, WIDTH)
        dense |= {f"{layer}/intermediate/dense": (WIDTH, INNER), f"{layer}/output/dense": (INNER, WIDTH)}
        norms += [f"{layer}/attention/output", f"{layer}/output"]
    shapes: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (VOCABULARY, WIDTH),
        "bert/embeddings/position_embeddings": (POSITIONS, WIDTH),
        "bert/embeddings/token_type_embeddings": (2, WIDTH),
        "cls/predictions/output_bias": (VOCABULARY,),
        "cls/seq_relationship/output_weights": (2, WIDTH),
        "cls/seq_relationship/output_bias": (2,),
    }
    shapes |= {f"{name}/kernel": shape for name, shape in dense.items()}
    shapes |= {f"{name}/bias": shape[1:] for name, shape in dense.items()}
    shapes |= {f"{name}/LayerNorm/{part}": (WIDTH,) for name in norms for part in ("gamma", "beta")}
    numbers = np.random.default_rng(0)
    return {name: numbers.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
