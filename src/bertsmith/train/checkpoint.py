"""Checkpoints: everything that a run needs to go on as if it had never stopped.

    checkpoints/step-000200/    model.safetensors, optimizer.safetensors, state.json
    checkpoints/best-000150/    the same, of the best evaluation so far

A checkpoint is written aside and renamed, so a folder of that name is whole. Tensors are stored whole and under their
parameters' names, so that any number of processes can go on from it. Random numbers are not in it: dropout is seeded
anew at every step, from the run's seed and the step.
"""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from bertsmith.errors import WeightsError
from bertsmith.folders import new_folder
from bertsmith.train.distributed import World, gathered, in_pieces, placed_like

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import nn
    from torch.optim import Optimizer

__all__ = [
    "Checkpoints",
    "Progress",
    "best_checkpoint",
    "drop_later_bests",
    "is_checkpoint",
    "latest_checkpoint",
    "load_checkpoint",
    "load_weights",
    "save_checkpoint",
]

_MODEL, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"


@dataclass(frozen=True)
class Progress:
    """Where a run stands: what it has done, the place in the data, and the best evaluation."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    position: dict[str, int] = field(default_factory=dict)
    best_cost: float | None = None
    best_step: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint in memory, apart from what goes on training."""

    model: dict[str, torch.Tensor]
    optimizer: dict[str, torch.Tensor]
    state: dict[str, Any]

    @classmethod
    def of(cls, model: nn.Module, optimizers: Sequence[Optimizer], progress: Progress) -> Snapshot:
        """Copy everything; where the model is in pieces, all processes must call it."""
        names = {id(weight): name for name, weight in model.named_parameters()}
        tensors = {
            f"{names[id(weight)]}:{key}": _copy(torch.as_tensor(value))
            for optimizer in optimizers
            for weight, values in optimizer.state.items()
            for key, value in values.items()
        }
        settings = [
            [_describe(optimizer, group, names) for group in optimizer.param_groups] for optimizer in optimizers
        ]
        weights = {name: _copy(tensor) for name, tensor in _distinct(model).items()}
        return cls(weights, tensors, {**asdict(progress), "optimizer": settings})

    def write(self, folder: Path) -> None:
        """Put it on disk; the folder appears when all of it is there."""
        with new_folder(folder) as aside:
            save_file(self.model, aside / _MODEL)
            save_file(self.optimizer, aside / _OPTIMIZER)
            (aside / _STATE).write_text(json.dumps(self.state), encoding="utf-8")


class Checkpoints:
    """The checkpoints of one run: the last few and the best, written in the background while training goes on."""

    def __init__(self, folder: Path, world: World, *, keep: int) -> None:
        self.folder = folder
        self.keep = keep
        self._world = world
        self._pool = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def save(
        self, model: nn.Module, optimizers: Sequence[Optimizer], progress: Progress, *, best: bool = False
    ) -> None:
        """Take a copy now and write it soon; an earlier one is finished first."""
        self.finish()
        if not (self._world.is_main or in_pieces(model)):
            return
        snapshot = Snapshot.of(model, optimizers, progress)
        if self._world.is_main:
            self._writing = self._pool.submit(self._write, snapshot, progress.step, best=best)

    def finish(self) -> None:
        """Wait until everything is on the disk; an error there is an error here."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _write(self, snapshot: Snapshot, step: int, *, best: bool) -> None:
        name, keep = ("best", 1) if best else ("step", self.keep)
        target = self.folder / f"{name}-{step:06d}"
        if not target.exists():
            snapshot.write(target)
        for old in _numbered(self.folder, name)[:-keep]:
            shutil.rmtree(old)


def save_checkpoint(folder: Path, model: nn.Module, optimizers: Sequence[Optimizer], progress: Progress) -> None:
    """Write one checkpoint now."""
    Snapshot.of(model, optimizers, progress).write(folder)


def load_checkpoint(folder: Path, model: nn.Module, optimizers: Sequence[Optimizer]) -> Progress:
    """Put model and optimizers back to where they were."""
    try:
        load_weights(folder, model)
        tensors = load_file(folder / _OPTIMIZER)
        state = json.loads((folder / _STATE).read_bytes())
        _join_state(model, optimizers, tensors, state.pop("optimizer"))
        return Progress(**state)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unusable(folder, error) from error


@torch.no_grad()
def load_weights(folder: Path, model: nn.Module) -> None:
    """The weights alone."""
    try:
        stored = load_file(folder / _MODEL)
        weights = _distinct(model)
        if {name: tensor.shape for name, tensor in stored.items()} != {n: t.shape for n, t in weights.items()}:
            raise ValueError("its weights are those of another model")
        for name, weight in weights.items():
            weight.copy_(placed_like(stored[name], weight))
    except (OSError, SafetensorError, ValueError) as error:
        raise _unusable(folder, error) from error


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder is one that was written here."""
    return all((folder / name).is_file() for name in (_MODEL, _OPTIMIZER, _STATE))


def latest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint of the highest step, or None. What a killed process left unfinished is removed."""
    if folder.is_dir():
        for unfinished in folder.glob(".*"):
            shutil.rmtree(unfinished, ignore_errors=True)
    found = _numbered(folder, "step")
    return found[-1] if found else None


def best_checkpoint(folder: Path) -> Path | None:
    """The checkpoint of the best evaluation, or None."""
    found = _numbered(folder, "best")
    return found[-1] if found else None


def drop_later_bests(folder: Path, step: int) -> bool:
    """Remove bests of a path that a run has left, going on from an earlier step; whether one is still there."""
    for best in _numbered(folder, "best"):
        if int(best.name.rpartition("-")[2]) > step or not is_checkpoint(best):
            shutil.rmtree(best)
    return best_checkpoint(folder) is not None


def _numbered(folder: Path, name: str) -> list[Path]:
    if not folder.is_dir():
        return []
    pattern = re.compile(rf"{name}-(\d+)")
    steps = [(int(match[1]), path) for path in folder.iterdir() if (match := pattern.fullmatch(path.name))]
    return [path for _, path in sorted(steps)]


def _unusable(folder: Path, error: Exception) -> WeightsError:
    return WeightsError(f"{folder}: is not a checkpoint of this run ({error}); remove it to go on from an earlier one")


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    whole = gathered(tensor)
    return whole.clone() if whole.data_ptr() == tensor.data_ptr() else whole


def _distinct(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers; safetensors wants each tensor's memory once, and `state_dict` repeats tied ones."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _describe(optimizer: Optimizer, group: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    settings = {key: value for key, value in group.items() if key != "params"}
    kind = type(optimizer).__name__
    return {**settings, "kind": kind, "names": [names[id(weight)] for weight in group["params"]]}


def _join_state(
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    tensors: dict[str, torch.Tensor],
    settings: list[list[dict[str, Any]]],
) -> None:
    weights = dict(model.named_parameters())
    names = {id(weight): name for name, weight in weights.items()}
    owner = {}
    for optimizer, stored in zip(optimizers, settings, strict=True):
        for group, values in zip(optimizer.param_groups, stored, strict=True):
            expected = _describe(optimizer, group, names)
            if any(values.pop(key) != expected[key] for key in ("kind", "names")):
                raise ValueError("its optimizer is another, or has other parameters")
            owner.update({names[id(weight)]: optimizer for weight in group["params"]})
            group.update({key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
        optimizer.state.clear()
    for key, tensor in tensors.items():
        name, _, what = key.rpartition(":")
        weight = weights[name]
        if tensor.dim() and tensor.shape != weight.shape:
            raise ValueError(f"{key} has shape {tuple(tensor.shape)}, not {tuple(weight.shape)}")
        value = placed_like(tensor, weight) if tensor.dim() else tensor.to(weight.device)
        owner[name].state[weight][what] = value
