"""Read `.safetensors`: the library checks the header against the file before anything is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from bertsmith.bundle.weights import TensorInfo
from bertsmith.errors import WeightsError

if TYPE_CHECKING:
    from pathlib import Path

    import torch

__all__ = ["SafetensorsFile"]

_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}


class SafetensorsFile:
    """One `.safetensors` file as a `WeightSource`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = safe_open(str(path), framework="pt")
            slices = {name: self._file.get_slice(name) for name in self._file.keys()}  # noqa: SIM118 not a dict
            self.tensors = {
                name: TensorInfo(tuple(part.get_shape()), _TYPES.get(part.get_dtype(), part.get_dtype()))
                for name, part in slices.items()
            }
        except (SafetensorError, OSError, ValueError) as error:
            raise WeightsError(f"{path}: not a whole safetensors file ({error})") from error

    def read(self, name: str) -> torch.Tensor:
        """Bring one tensor into memory."""
        tensor: torch.Tensor = self._file.get_tensor(name)
        return tensor
