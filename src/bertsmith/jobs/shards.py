"""`shards`: raw text to token shards, ready for pre-training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bertsmith.data.building import Built, ShardOptions, build_shards
from bertsmith.errors import TokenizerError
from bertsmith.vocab.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bertsmith.data.pool import Engine
    from bertsmith.text.corpus import CorpusOptions

__all__ = ["open_tokenizer", "shards"]


def shards(
    corpus: Sequence[str],
    *,
    tokenizer: str,
    output: Path,
    reading: CorpusOptions | None = None,
    options: ShardOptions | None = None,
    workers: int | None = None,
    engine: Engine = "local",
    ray_address: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Built:
    """Build a data set in `output`; `tokenizer` is a folder that has one, or the name of a model.

    `progress` is told how many bytes of the corpus were read, and how many there are.
    """
    return build_shards(
        corpus,
        open_tokenizer(tokenizer),
        output,
        corpus=reading,
        options=options,
        workers=workers,
        engine=engine,
        ray_address=ray_address,
        progress=progress,
    )


def open_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a folder (a vocabulary or a model), or of a model by its name."""
    folder = Path(name)
    if any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt")):
        return Tokenizer.from_folder(folder)
    from bertsmith.bundle.resolve import find_model  # loads torch, which building data does not need

    folder, packaged = find_model(name)
    found = packaged.tokenizer(folder) if packaged else Tokenizer.from_folder(folder)
    if found is None:
        raise TokenizerError(f"{name}: has no tokenizer")
    return found
