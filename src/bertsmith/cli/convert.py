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
    to: Literal["hf", "onnx", "sentence-transformers"] = "hf",
    int8: Annotated[bool, Parameter(negative="")] = False,
    drop: Annotated[list[str] | None, Parameter(negative="")] = None,
) -> None:
    """Write a model as a folder for Hugging Face, ONNX or sentence-transformers.

    Parameters
    ----------
    source
        A Google TensorFlow 1 checkpoint folder, a folder with .bin or .safetensors, a model's name, or a checkpoint of
        a pre-training run (RUN/checkpoints/best-000150).
    target
        The folder to write; it must not exist.
    to
        The layout to write: a Hugging Face folder, an ONNX graph, or a folder for sentence-transformers.
    int8
        With --to onnx: int8 weights, a quarter of the size; says how far the result is from float32.
    drop
        Leave out tensors whose names begin with this; may be repeated.
    """
    from bertsmith.jobs.convert import convert as job

    findings: list[str] = []
    bundle = job(source, target, to=to, int8=int8, drop=drop or (), tell=findings.append)
    total = sum(parameter.numel() for parameter in bundle.model.parameters())
    print_line(f"{target}: {bundle.model.kind} model, {total:,} parameters")
    for line in findings:
        print_line(line)
