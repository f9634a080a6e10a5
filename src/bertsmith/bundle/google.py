"""Google's checkpoints, as TensorFlow 1 wrote them: a path prefix in, tensors under their own names out.

    PREFIX.index                   which tensors there are, and where (google_table, google_messages)
    PREFIX.data-00000-of-00001     their bytes, one file for each shard

Every byte of these files is checked. Opening verifies the checksums of the index, and that the tensors
fill the data files: none overlap, and bytes between them are a little alignment and zero. Reading a
tensor verifies its own checksum; `verified` does that for all, with no tensor in memory.

Beside them lie `bert_config.json` and `vocab.txt`: the format has no checksum for those.
"""

from __future__ import annotations

import stat
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import google_crc32c
import torch

from bertsmith.bundle.google_messages import Entry, read_entry, read_num_shards
from bertsmith.bundle.google_table import mask_crc32c, read_table
from bertsmith.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bertsmith.bundle.weights import TensorInfo

__all__ = ["GoogleCheckpoint"]

# Far above any BERT; it bounds the time that a hostile index can take.
_MAX_INDEX_BYTES = 4 * 2**20
_MAX_ALIGNMENT = 4096
_CHUNK_BYTES = 2**20


class GoogleCheckpoint:
    """The tensors of one checkpoint: `GoogleCheckpoint(Path("…/bert_model.ckpt"))`."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        num_shards, self._entries = _read_index(self.path)
        self.shard_paths = tuple(
            Path(f"{prefix}.data-{number:05d}-of-{num_shards:05d}") for number in range(num_shards)
        )
        self._tensors = {name: entry.info for name, entry in self._entries.items()}
        _check_shards(self.shard_paths, list(self._entries.values()))

    @property
    def path(self) -> Path:
        """The index, which speaks for all files of the checkpoint."""
        return Path(f"{self.prefix}.index")

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor there is, by Google's name."""
        return self._tensors

    def read(self, name: str) -> torch.Tensor:
        """Bring one tensor into memory, and verify its checksum."""
        if name not in self._entries:
            raise WeightsError(f"{self.path}: has no tensor {name}")
        entry = self._entries[name]
        content = self._allocate(name, entry.size)
        view = content.numpy()
        position = 0
        for chunk in self._verified_chunks(name):
            view.data[position : position + len(chunk)] = chunk
            position += len(chunk)
        dtype: torch.dtype = getattr(torch, entry.info.dtype)
        return content.view(dtype).reshape(entry.info.shape)

    def verified(self) -> Iterator[tuple[str, TensorInfo, int]]:
        """Name, shape and type, and stored checksum of each tensor, after its bytes were found to match."""
        for name, entry in self._entries.items():
            for _ in self._verified_chunks(name):
                pass
            yield name, entry.info, entry.checksum

    def _allocate(self, name: str, size: int) -> torch.Tensor:
        try:
            return torch.empty(size, dtype=torch.uint8)
        except (RuntimeError, MemoryError) as error:
            raise WeightsError(f"{self.path}: {name}: no memory for its {size} bytes") from error

    def _verified_chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of a tensor, piece by piece; a wrong checksum shows after the last of them."""
        entry = self._entries[name]
        path = self.shard_paths[entry.shard]
        crc = 0
        for chunk in _read_range(path, entry.offset, entry.size):
            crc = google_crc32c.extend(crc, chunk)
            yield chunk
        if mask_crc32c(crc) != entry.checksum:
            raise WeightsError(f"{path}: damaged: the checksum of {name} is wrong")


def _read_index(path: Path) -> tuple[int, dict[str, Entry]]:
    """The number of shards, and what the index says of each tensor."""
    size = _file_size(path)
    if size > _MAX_INDEX_BYTES:
        raise WeightsError(f"{path}: larger than {_MAX_INDEX_BYTES} bytes, so not the index of a checkpoint")
    data = b"".join(_read_range(path, 0, size))
    try:
        pairs = read_table(data)
        key, header = next(pairs, (b"", b""))
        if key:
            raise WeightsError("broken: it has no header")
        num_shards = read_num_shards(header)
        return num_shards, dict(_read_named_entry(key, value, num_shards) for key, value in pairs)
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error


def _read_named_entry(key: bytes, value: bytes, num_shards: int) -> tuple[str, Entry]:
    if key.startswith(b"\0"):  # TensorFlow's names for the slices of a partitioned tensor start so
        raise WeightsError("holds tensors saved in slices, which is not supported")
    name = _read_name(key)
    try:
        entry = read_entry(value)
    except WeightsError as error:
        raise WeightsError(f"{name}: {error}") from error
    if entry.shard >= num_shards:
        raise WeightsError(f"{name}: in data file {entry.shard}, of {num_shards} counted from 0")
    return name, entry


def _read_name(key: bytes) -> str:
    try:
        name = key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WeightsError(f"broken: the name {key!r} is not UTF-8") from error
    if not name.isprintable():  # it will stand in messages
        raise WeightsError(f"broken: the name {name!r} has control characters")
    return name


def _check_shards(paths: tuple[Path, ...], entries: list[Entry]) -> None:
    """Each data file is there, and full of tensors without a byte left over."""
    entries = sorted(entries, key=lambda entry: (entry.shard, entry.offset))
    by_shard = {shard: list(group) for shard, group in groupby(entries, key=lambda entry: entry.shard)}
    for shard, path in enumerate(paths):
        _check_shard(path, by_shard.get(shard, []))


def _check_shard(path: Path, entries: list[Entry]) -> None:
    """No gap and no overlap, from the first byte to the last; `entries` are in the order of their offsets."""
    size, position = _file_size(path), 0
    for entry in entries:
        end = entry.offset + entry.size
        if entry.offset < position:
            raise WeightsError(f"{path}: broken: two tensors overlap at byte {entry.offset}")
        if end > size:
            raise WeightsError(f"{path}: cut short: it has {size} bytes, and a tensor ends at byte {end}")
        _check_alignment(path, position, entry.offset - position)
        position = end
    if position != size:
        raise WeightsError(f"{path}: {size - position} bytes at its end belong to no tensor")


def _check_alignment(path: Path, offset: int, size: int) -> None:
    """Bytes between two tensors: some writers align what they write, with zeros."""
    if size >= _MAX_ALIGNMENT or any(any(chunk) for chunk in _read_range(path, offset, size)):
        raise WeightsError(f"{path}: damaged: bytes {offset} to {offset + size} belong to no tensor")


def _file_size(path: Path) -> int:
    """How many bytes an ordinary file has; anything else, such as a pipe, could hang who reads it."""
    try:
        status = path.stat()
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror})") from error
    if not stat.S_ISREG(status.st_mode):
        raise WeightsError(f"{path}: not a file")
    return status.st_size


def _read_range(path: Path, offset: int, size: int) -> Iterator[bytes]:
    """Exactly these bytes, in pieces; the caller has held offset and size against the file's size."""
    if size == 0:
        return
    try:
        with path.open("rb") as file:
            file.seek(offset)
            while size > 0:
                chunk = file.read(min(size, _CHUNK_BYTES))
                if not chunk:
                    raise WeightsError(f"{path}: cut short while it was read")
                size -= len(chunk)
                yield chunk
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror})") from error
