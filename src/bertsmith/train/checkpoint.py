"""Checkpoints: everything that a run needs to go on as if it had never stopped.

    checkpoints/step-000200/    model.safetensors, optimizer.safetensors, state.json
    checkpoints/best/           the same, of the best evaluation so far

A checkpoint is written aside and renamed, so a folder of that name is whole. Random numbers are not in it: dropout is
seeded anew at every step, from the run's seed and the step.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from bertsmith.errors import WeightsError
from bertsmith.folders import new_folder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Progress", "latest_checkpoint", "load_checkpoint", "prune_checkpoints", "save_checkpoint"]

_MODEL, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_NAME = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class Progress:
    """Where a run stands: steps done, the place in the data, and the best evaluation."""

    step: int = 0
    position: dict[str, int] = field(default_factory=dict)
    best_loss: float | None = None


def save_checkpoint(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    """Write one checkpoint; the folder appears when all of it is on the disk."""
    with new_folder(folder) as aside:
        save_file(_distinct(model.state_dict()), aside / _MODEL)
        tensors, settings = _split_state(model, optimizer)
        save_file(tensors, aside / _OPTIMIZER)
        (aside / _STATE).write_text(json.dumps({**asdict(progress), "optimizer": settings}), encoding="utf-8")


def load_checkpoint(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Put model and optimizer back to where they were."""
    try:
        weights, tensors = load_file(folder / _MODEL), load_file(folder / _OPTIMIZER)
        state = json.loads((folder / _STATE).read_bytes())
        _check_shapes(model, weights)
        model.load_state_dict(weights, strict=False)  # a tied weight is stored once
        _join_state(model, optimizer, tensors, state.pop("optimizer"))
        return Progress(**state)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(
            f"{folder}: is not a checkpoint of this run ({error}); remove it to go on from an earlier one"
        ) from error


def latest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint of the highest step, or None."""
    found = _numbered(folder)
    return found[-1] if found else None


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Remove all but the last few."""
    for path in _numbered(folder)[:-keep]:
        shutil.rmtree(path)


def _numbered(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    steps = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(steps)]


def _distinct(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Each piece of memory once: safetensors refuses names that share it."""
    seen: set[int] = set()
    distinct = {}
    for name, tensor in tensors.items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            distinct[name] = tensor.detach().contiguous()
    return distinct


def _check_shapes(model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> None:
    expected = {name: tensor.shape for name, tensor in _distinct(model.state_dict()).items()}
    if {name: tensor.shape for name, tensor in weights.items()} != expected:
        raise ValueError("its weights are those of another model")


def _split_state(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """The optimizer's tensors under the names of their parameters, and its settings."""
    names = {id(weight): name for name, weight in model.named_parameters()}
    tensors = {
        f"{names[id(weight)]}:{key}": torch.as_tensor(value).detach().contiguous()
        for weight, values in optimizer.state.items()
        for key, value in values.items()
    }
    settings = [
        {key: value for key, value in group.items() if key != "params"}
        | {"names": [names[id(w)] for w in group["params"]]}
        for group in optimizer.param_groups
    ]
    return tensors, settings


def _join_state(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: dict[str, torch.Tensor],
    settings: list[dict[str, Any]],
) -> None:
    weights = dict(model.named_parameters())
    names = {id(weight): name for name, weight in weights.items()}
    for group, stored in zip(optimizer.param_groups, settings, strict=True):
        if [names[id(weight)] for weight in group["params"]] != stored.pop("names"):
            raise ValueError("its optimizer has other parameters")
        group.update({key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()})
    optimizer.state.clear()
    for key, tensor in tensors.items():
        name, _, what = key.rpartition(":")
        optimizer.state[weights[name]][what] = tensor.to(weights[name].device) if tensor.dim() else tensor
