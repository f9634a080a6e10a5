"""`bertsmith convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertsmith.cli.output import print_line

__all__ = ["convert"]


def convert(
    source: str,
    target: Path,
    *,
    to: Literal["hf"] = "hf",  # noqa: ARG001 more formats will stand beside it
    drop: Annotated[list[str] | None, Parameter(negative="")] = None,
) -> None:
    """Write a model as a Hugging Face folder.

    Parameters
    ----------
    source
        A Google TensorFlow 1 checkpoint folder, a folder with .bin or .safetensors, or a model's name.
    target
        The folder to write; it must not exist.
    to
        The layout to write.
    drop
        Leave out tensors whose names begin with this; may be repeated.
    """
    from bertsmith.jobs.convert import convert as job

    bundle = job(source, target, drop=drop or ())
    total = sum(parameter.numel() for parameter in bundle.model.parameters())
    print_line(f"{target}: {bundle.model.kind} model, {total:,} parameters")
