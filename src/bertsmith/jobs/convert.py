"""`convert`: any model that can be read, to a Hugging Face folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertsmith.bundle.folder import google_checkpoint, write_bundle
from bertsmith.bundle.resolve import find_model, load_bundle
from bertsmith.folders import refuse_existing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bertsmith.bundle.folder import Bundle

__all__ = ["convert"]


def convert(source: str, target: Path, *, drop: Sequence[str] = ()) -> Bundle:
    """Read a model by name or folder and write it anew; gives what was written.

    Tensors whose names begin with one of `drop` are left out: heads that no BERT has.
    """
    refuse_existing(target)
    folder, _ = find_model(source)
    checkpoint = google_checkpoint(folder)
    if checkpoint is not None:
        for _ in checkpoint.verified():  # all of it, the parts that are left behind as well
            continue
    bundle = load_bundle(source, drop=tuple(drop) or None)
    write_bundle(target, bundle, source=f"converted from `{source}`")
    return bundle
