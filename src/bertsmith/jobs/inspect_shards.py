"""`inspect` on a data set: what is in it, how long its sentences are, how it begins; and whether it is whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bertsmith.data.index import INDEX_FILE, SPLITS, read_index
from bertsmith.data.shards import ShardSet
from bertsmith.errors import ShardError
from bertsmith.vocab.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bertsmith.data.index import Index, Split

__all__ = ["SplitFacts", "inspect_shards", "is_data_set"]

# Upper ends of the histogram's bars, in tokens a sentence; the last bar has none.
BAR_ENDS = (4, 8, 16, 32, 64, 128, 256, 512)
_NUM_EXAMPLES = 3
_EXAMPLE_TOKENS = 40


@dataclass(frozen=True)
class SplitFacts:
    """One split. `histogram` counts sentences up to each of `BAR_ENDS` tokens, and those that are longer."""

    documents: int
    sentences: int
    tokens: int
    shards: int
    unknown_share: float
    histogram: list[int]
    examples: list[str]


def is_data_set(folder: Path) -> bool:
    """Whether a folder is a data set, and not a model."""
    return (folder / INDEX_FILE).is_file()


def inspect_shards(
    folder: Path, *, verify: bool = False, progress: Callable[[int, int], object] | None = None
) -> dict[str, Any]:
    """The facts of a data set, for machines; with `verify` every file is first compared with its SHA-256."""
    index = read_index(folder)
    tokenizer = Tokenizer.from_folder(folder)
    if tokenizer.fingerprint != index.tokenizer:
        raise ShardError(f"{folder}: its tokenizer is not the one that made the tokens; build the data set again")
    if verify:
        for split in SPLITS:
            ShardSet(folder, split, index).verify(progress)
    return {
        "path": str(folder),
        "vocab_size": index.vocab_size,
        "options": index.options,
        "corpus": index.corpus,
        "verified": verify,
        "bar_ends": list(BAR_ENDS),
        "splits": {split: _facts(folder, split, index, tokenizer).__dict__ for split in SPLITS},
    }


def _facts(folder: Path, split: Split, index: Index, tokenizer: Tokenizer) -> SplitFacts:
    shards = ShardSet(folder, split, index)
    bars = np.zeros(len(BAR_ENDS) + 1, np.int64)
    for number in range(shards.num_shards):
        lengths = np.diff(shards.shard(number).sentences)
        bars += np.bincount(np.searchsorted(BAR_ENDS, lengths), minlength=len(bars))
    examples = []
    for number in range(min(_NUM_EXAMPLES, shards.num_documents)):
        tokens = np.concatenate(shards.document(number))[:_EXAMPLE_TOKENS]
        examples.append(" ".join(tokenizer.piece(token) for token in tokens.tolist()))
    return SplitFacts(
        documents=shards.num_documents,
        sentences=shards.num_sentences,
        tokens=shards.num_tokens,
        shards=shards.num_shards,
        unknown_share=index.count(split, "unknown") / max(shards.num_tokens, 1),
        histogram=bars.tolist(),
        examples=examples,
    )
