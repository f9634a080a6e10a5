"""Weight files as a table of contents and a way to read one tensor.

A `WeightSource` knows every tensor's name, shape and type before any of them is in memory, so that
a file can be judged against a configuration first and read second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import torch

__all__ = ["FLOATS", "TensorInfo", "WeightSource", "list_some"]

FLOATS = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class TensorInfo:
    """What a file says of one tensor: its shape, and its type by torch's name (`float32`, `bfloat16`, …)."""

    shape: tuple[int, ...]
    dtype: str


class WeightSource(Protocol):
    """Anything that weights can be read from."""

    @property
    def path(self) -> Path:
        """The file or folder to name in an error."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor there is, by the file's own name."""

    def read(self, name: str) -> torch.Tensor:
        """Bring one tensor into memory."""


def list_some(names: Sequence[str]) -> str:
    """The first few of many names, for an error; quoted where needed, because a hostile file names its tensors."""
    shown = ", ".join(name if name.isprintable() else repr(name) for name in names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")
