"""Read `.bin`, torch's own format, which is a pickle: weights only, and looked through beforehand.

`torch.load(weights_only=True)` runs no foreign code. What it does not do is distrust numbers: a pickle of
a hundred bytes may claim a tensor of a terabyte. So the pickle's opcodes are read first (not run), and
any number in it that is larger than the file itself is refused.
"""

from __future__ import annotations

import pickle
import pickletools
import zipfile
from typing import TYPE_CHECKING, BinaryIO

from bertsmith.bundle.weights import TensorInfo
from bertsmith.errors import WeightsError

if TYPE_CHECKING:
    from pathlib import Path

    import torch

__all__ = ["TorchFile"]

_LEGACY_MAGIC = b"\x80\x02\x8a\n"
_LEGACY_HEADER_PICKLES = 3  # magic number, protocol version, system facts
_PICKLE_LIMIT = 64 * 2**20


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

    size = path.stat().st_size
    try:
        zipped = _look_through(path, size)
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except WeightsError:
        raise
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, TypeError, AttributeError, IndexError,
            MemoryError, RecursionError, pickle.UnpicklingError, zipfile.BadZipFile) as error:  # fmt: skip
        reason = str(error).strip().split("\n")[0]
        raise WeightsError(f"{path}: not a whole file of weights ({reason:.200})") from error
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise WeightsError(f"{path}: holds something other than named tensors")
    for name, tensor in content.items():
        if not isinstance(name, str) or tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise WeightsError(f"{path}: {name!r:.80} is not a plain tensor")
        if tensor.numel() * tensor.element_size() > size:
            raise WeightsError(f"{path}: {name} claims {tuple(tensor.shape)}, more than the file holds")
    return dict(content)


def _look_through(path: Path, size: int) -> bool:
    """Check the pickle inside; tells whether the file is of the zipped format."""
    with path.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        if magic == b"PK\x03\x04":
            with zipfile.ZipFile(file) as archive:
                _look_through_zip(path, archive, size)
            return True
        if magic != _LEGACY_MAGIC:
            raise WeightsError(f"{path}: not a file of weights (it begins with {magic!r})")
        for _ in range(_LEGACY_HEADER_PICKLES):
            _check_numbers(path, file, limit=None)
        _check_numbers(path, file, limit=size)
    return False


def _look_through_zip(path: Path, archive: zipfile.ZipFile, size: int) -> None:
    pickles = [entry for entry in archive.infolist() if entry.filename.endswith("data.pkl")]
    if len(pickles) != 1:
        raise WeightsError(f"{path}: a zip file, but not one of weights")
    for entry in archive.infolist():
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > size:
            raise WeightsError(f"{path}: {entry.filename} inside is compressed or larger than the file")
    if pickles[0].file_size > _PICKLE_LIMIT:
        raise WeightsError(f"{path}: its table of contents is larger than {_PICKLE_LIMIT} bytes")
    with archive.open(pickles[0]) as file:
        _check_numbers(path, file, limit=size)  # type: ignore[arg-type]


def _check_numbers(path: Path, file: BinaryIO, limit: int | None) -> None:
    """Read one pickle's opcodes and refuse a whole number above the limit."""
    for _, argument, _ in pickletools.genops(file):
        if limit is not None and isinstance(argument, int) and abs(argument) > limit:
            raise WeightsError(f"{path}: claims {argument} where the whole file has {limit} bytes")
