"""Whether a run begins or goes on: what pre-training and fine-tuning ask of their folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertsmith.errors import InputError
from bertsmith.finetuning.many import SEVERAL_FILE
from bertsmith.folders import refuse_file
from bertsmith.train.request import CONFIG_FILE, AnyRequest, take_up

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["settle"]


def settle(
    asked: AnyRequest | None,
    output: Path,
    *,
    resume: bool,
    read: Callable[[Path], AnyRequest],
    missing: str,
    note: Callable[[str], object],
) -> AnyRequest:
    """A new run, or one that goes on with its own configuration; `missing` is what a new one cannot do without."""
    refuse_file(output)
    if resume and (output / CONFIG_FILE).is_file():
        stored = read(output)
        return stored if asked is None else take_up(asked, stored)
    if output.exists() and not (resume and _is_empty(output)):
        remedy = "go on with --resume, or name a new folder"
        if resume and (output / SEVERAL_FILE).is_file():
            remedy = "it holds several runs; they go on with the whole command that began them, and --resume"
        elif resume:
            remedy = "it holds no run to go on with; name a new folder"
        raise InputError(f"{output}: exists already; {remedy}")
    if asked is None:
        raise InputError(f"{output}: there is nothing to resume, and no {missing} to begin with")
    if resume:
        note(f"{output}: nothing to resume, so a new run begins")
    return asked


def _is_empty(output: Path) -> bool:
    """Whether nothing of a run, or of anything else, is in a folder yet, but what a kill left half written."""
    return output.is_dir() and all(path.name.startswith(f".{CONFIG_FILE}.") for path in output.iterdir())
