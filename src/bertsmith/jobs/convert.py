"""`convert`: any model that can be read, to a Hugging Face folder, to ONNX or to sentence-transformers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bertsmith.bundle.embedding import encoder_of, read_published_pooling
from bertsmith.bundle.folder import google_checkpoint, write_bundle
from bertsmith.bundle.onnx import require_onnx, write_onnx
from bertsmith.bundle.resolve import find_model, load_bundle
from bertsmith.bundle.sentence_transformers import ENCODERS, write_sentence_transformers
from bertsmith.errors import InputError
from bertsmith.finetuning.request import is_finetuning
from bertsmith.folders import refuse_existing
from bertsmith.pretraining.keeping import Observer
from bertsmith.pretraining.request import read_request
from bertsmith.pretraining.run import PretrainingRun
from bertsmith.train.checkpoint import is_checkpoint
from bertsmith.train.distributed import World
from bertsmith.train.request import CONFIG_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bertsmith.bundle.folder import Bundle

__all__ = ["Layout", "convert"]

Layout = Literal["hf", "onnx", "sentence-transformers"]


def convert(
    source: str,
    target: Path,
    *,
    to: Layout = "hf",
    int8: bool = False,
    drop: Sequence[str] = (),
    tell: Callable[[str], object] | None = None,
) -> Bundle:
    """Read a model by name or folder and write it anew; gives what was written.

    Tensors whose names begin with one of `drop` are left out: heads that no BERT has. `int8` is for ONNX. `tell` is
    given what the checks of an export found, in sentences.
    """
    refuse_existing(target)
    if int8 and to != "onnx":
        raise InputError("--int8 goes with --to onnx; other layouts keep float32")
    if to == "onnx":
        require_onnx()
    folder, bundle = _read(source, drop)
    origin = f"converted from `{source}`"
    if to == "onnx":
        bundle = _for_onnx(bundle, folder)
        for line in _export_onnx(target, bundle, origin, int8=int8):
            if tell is not None:
                tell(line)
        return bundle
    bundle = replace(bundle, pooling=read_published_pooling(folder))
    if to == "hf":
        write_bundle(target, bundle, source=origin)
        return bundle
    return write_sentence_transformers(target, bundle, source=origin)


def _read(source: str, drop: Sequence[str]) -> tuple[Path, Bundle]:
    """A model, or one in the making: a checkpoint of a pre-training run."""
    place = Path(source)
    if is_checkpoint(place) and (place.parent.parent / CONFIG_FILE).is_file():
        run = place.absolute().parent.parent
        if is_finetuning(run):
            raise InputError(f"{source}: is of a fine-tuning run that is not at its end; finish it: --resume -o {run}")
        return place, PretrainingRun(read_request(run), run, World(), Observer()).bundle_at(place)
    folder, _ = find_model(source)
    original = google_checkpoint(folder)
    if original is not None:
        for _ in original.verified():  # all of it, the parts that are left behind as well
            continue
    return folder, load_bundle(source, drop=tuple(drop) or None)


def _for_onnx(bundle: Bundle, folder: Path) -> Bundle:
    """A model that says how its vectors are made gives vectors, though it may have a pre-training head."""
    kind = bundle.model.kind
    if kind != "encoder" and bundle.pooling is None and bundle.whitening is None:
        return bundle
    if kind not in ENCODERS:
        if bundle.whitening is not None:
            raise InputError(f"a model of kind {kind!r} gives no vectors in ONNX, so its whitening would be lost")
        return bundle
    return replace(encoder_of(bundle), pooling=read_published_pooling(folder))


def _export_onnx(target: Path, bundle: Bundle, origin: str, *, int8: bool) -> list[str]:
    result = write_onnx(target, bundle, source=origin, int8=int8)
    lines = [
        f"float32 graph against the packed model: largest difference {result.difference:.1e}, "
        f"over {result.num_batches} batches from one token to the longest text"
    ]
    if result.cosines:
        mean = sum(result.cosines) / len(result.cosines)
        lines.append(
            f"int8 against float32: cosine of {result.output} {mean:.4f} in the mean and {min(result.cosines):.4f} at "
            f"least, over {len(result.cosines)} built-in texts; measure on your own task before you rely on it"
        )
    return lines
