"""Find and open the weights of a model folder: one file or several, `.safetensors` or `.bin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertsmith.bundle.safetensors_file import SafetensorsFile
from bertsmith.bundle.torch_file import TorchFile
from bertsmith.bundle.weights import list_some
from bertsmith.config import read_json
from bertsmith.errors import WeightsError

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from bertsmith.bundle.weights import TensorInfo, WeightSource

__all__ = ["WEIGHT_FILES", "ShardedWeights", "open_weights"]

WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


class ShardedWeights:
    """Several weight files as one, by an index that names the file of each tensor."""

    def __init__(self, index: Path) -> None:
        self.path = index
        places = read_json(index).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise WeightsError(f"{index}: has no weight_map")
        files = {name: _inside(index, file) for name, file in places.items()}
        self._sources = {file: _open_file(file) for file in sorted(set(files.values()))}
        self._places = {name: self._sources[file] for name, file in files.items()}
        self.tensors: dict[str, TensorInfo] = {}
        for file, source in self._sources.items():
            listed = {name for name, place in files.items() if place == file}
            wrong = sorted(listed ^ set(source.tensors))
            if wrong:
                raise WeightsError(f"{index}: index and {file.name} do not agree on {list_some(wrong)}")
            self.tensors.update(source.tensors)

    def read(self, name: str) -> torch.Tensor:
        """Bring one tensor into memory."""
        return self._places[name].read(name)


def open_weights(folder: Path) -> WeightSource:
    """Open a folder's weights, the safest format first."""
    for name in WEIGHT_FILES:
        path = folder / name
        if path.is_file():
            return ShardedWeights(path) if name.endswith(".json") else _open_file(path)
    raise WeightsError(f"{folder}: holds none of {', '.join(WEIGHT_FILES)}")


def _open_file(path: Path) -> WeightSource:
    if not path.is_file():
        raise WeightsError(f"{path}: is missing")
    return SafetensorsFile(path) if path.suffix == ".safetensors" else TorchFile(path)


def _inside(index: Path, name: object) -> Path:
    """A shard's path, which must be a plain file name beside the index."""
    if (
        not isinstance(name, str)
        or not name.endswith((".safetensors", ".bin"))
        or "/" in name
        or "\\" in name
        or "\0" in name
    ):
        raise WeightsError(f"{index}: points to {name!r:.120}, which is not a weight file in the same folder")
    return index.parent / name
