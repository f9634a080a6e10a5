"""Read `.bin`, torch's own format, which is a pickle: weights only, and rehearsed beforehand.

`torch.load(weights_only=True)` runs no foreign code. What it does not do is distrust numbers: a pickle of a hundred
bytes may claim a tensor of a terabyte. So the pickle is first read by an unpickler that knows five harmless names and
makes no tensor, only notes of what would be made. What the file cannot back is refused before torch sees it.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from typing import TYPE_CHECKING, Any, NamedTuple

from bertsmith.bundle.weights import TensorInfo
from bertsmith.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import BinaryIO

    import torch

__all__ = ["TorchFile"]

_LEGACY_MAGIC = b"\x80\x02\x8a\n"
_LEGACY_PICKLES = 5  # magic number, protocol version, system facts, the tensors, the keys of their storages
_PICKLE_LIMIT = 64 * 2**20
_ITEM_BYTES = {
    "DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8,
    "IntStorage": 4, "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1,
}  # fmt: skip


class TorchFile:
    """One `.bin` file as a `WeightSource`, mapped into memory where its format allows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tensors = _load(path)
        self.tensors = {
            name: TensorInfo(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            for name, tensor in self._tensors.items()
        }

    def read(self, name: str) -> torch.Tensor:
        """Give one tensor."""
        return self._tensors[name]


def _load(path: Path) -> dict[str, torch.Tensor]:
    import torch

    try:
        zipped = _rehearse(path)
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except WeightsError:
        raise
    except Exception as error:  # a broken pickle can raise nearly anything
        reason = str(error).strip().split("\n")[0]
        raise WeightsError(f"{path}: not a whole file of weights ({reason:.200})") from error
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise WeightsError(f"{path}: holds something other than named tensors")
    if not all(isinstance(name, str) for name in content):
        raise WeightsError(f"{path}: holds a tensor without a name")
    return dict(content)


def _rehearse(path: Path) -> bool:
    """Go through the pickle inside without making anything; tells whether the file is of the zipped format."""
    size = path.stat().st_size
    with path.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        if magic == b"PK\x03\x04":
            pickles, zipped = [_zipped_pickle(path, file, size)], True
        elif magic == _LEGACY_MAGIC:
            pickles, zipped = [_one_pickle(file) for _ in range(_LEGACY_PICKLES)], False
        else:
            raise WeightsError(f"{path}: not a file of weights (it begins with {magic!r})")
    rehearsal = _Rehearsal(path, size)
    for data in pickles:
        _NoteReader(data, rehearsal).load()
    return zipped


def _zipped_pickle(path: Path, file: BinaryIO, size: int) -> bytes:
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        names = [entry.filename.lower() for entry in entries]  # torch looks names up without regard to case
        tables = [entry for entry in entries if entry.filename.lower().endswith("data.pkl")]
        if len(tables) != 1 or len(set(names)) != len(names) or len({name.split("/")[0] for name in names}) != 1:
            raise WeightsError(f"{path}: a zip file, but not one of weights")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise WeightsError(f"{path}: compressed, which files of weights never are")
        if tables[0].file_size > min(size, _PICKLE_LIMIT):
            raise WeightsError(f"{path}: its table of contents is too large")
        return archive.read(tables[0])


def _one_pickle(file: BinaryIO) -> bytes:
    """The bytes of the next pickle in a file of several: opcodes are read, not run."""
    start = file.tell()
    for _ in pickletools.genops(file):
        if file.tell() - start > _PICKLE_LIMIT:
            raise ValueError("the pickle is too large")
    length = file.tell() - start
    file.seek(start)
    return file.read(length)


class _Table(dict[Any, Any]):
    """Stands for an ordered dictionary, which may carry attributes (`_metadata` of a state dict)."""


class _Storage(NamedTuple):
    """A note of a storage that would be read."""

    key: str
    num_items: int
    item_bytes: int


class _Rehearsal:
    """Takes notes instead of making tensors, and refuses what the file cannot back."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self.storages: dict[str, _Storage] = {}
        self.storage_bytes = self.tensor_bytes = 0

    def find(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return _Table
        if module == "torch._utils" and name == "_rebuild_tensor_v2":
            return self._tensor
        if module == "torch._utils" and name == "_rebuild_parameter":
            return lambda tensor, *_: tensor
        if module == "torch" and name in _ITEM_BYTES:
            return _ITEM_BYTES[name]
        raise WeightsError(f"{self.path}: asks for {module}.{name}, which no file of weights needs")

    def storage(self, identity: Any) -> _Storage:
        kind, item_bytes, key, _, num_items = identity[:5]
        if kind != "storage" or not _are_sizes([item_bytes, num_items]) or not isinstance(key, str):
            raise WeightsError(f"{self.path}: describes a storage in a way that torch does not")
        storage = _Storage(key, num_items, item_bytes)
        if key not in self.storages:
            self.storages[key] = storage
            self.storage_bytes += num_items * item_bytes
        if self.storages[key] != storage or self.storage_bytes > self.size:
            claimed = f"{self.storage_bytes} bytes of tensors"
            raise WeightsError(f"{self.path}: claims {claimed}, more than the {self.size} of the whole file")
        return storage

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> None:
        fits = isinstance(storage, _Storage) and _are_sizes([offset, *shape, *strides]) and len(shape) == len(strides)
        if fits and math.prod(shape):
            last = offset + sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
            fits = last < storage.num_items
            self.tensor_bytes += math.prod(shape) * storage.item_bytes
        # A tied tensor may stand in the file once and be listed twice, not more.
        if not fits or self.tensor_bytes > 2 * self.size:
            raise WeightsError(f"{self.path}: claims a tensor of {tuple(shape)!s:.80}, more than the file holds")


class _NoteReader(pickle._Unpickler):
    """The unpickler that is written in Python: its memory does not follow numbers in the file."""

    def __init__(self, data: bytes, rehearsal: _Rehearsal) -> None:
        super().__init__(io.BytesIO(data))
        self._rehearsal = rehearsal

    def find_class(self, module: str, name: str) -> Any:
        return self._rehearsal.find(module, name)

    def persistent_load(self, pid: Any) -> Any:
        return self._rehearsal.storage(pid)


def _are_sizes(numbers: Sequence[Any]) -> bool:
    return all(type(number) is int and number >= 0 for number in numbers)
