"""Reading a data set: documents and sentences by number, straight from memory-mapped files.

    shards = ShardSet(Path("data"), "train")
    shards.num_documents, shards.num_tokens
    shards.document(7)      # its sentences, as arrays of tokens
    shards.shard(0).tokens  # a whole shard, for code that works on many documents at once

A shard is checked when it is first opened: its size, that its bounds ascend and end where they must, that every
token is in the vocabulary. So a file that was cut or changed is an error here, and never a crash further on. Whether
every byte is as it was built only `verify` tells.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bertsmith.data.index import Index, Section, ShardInfo, Split, layout, read_index
from bertsmith.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Shard", "ShardSet"]

# Open files at a time; a system allows about a thousand.
_MAX_OPEN = 256
_HASH_BLOCK = 2**20
_COUNTED = 16  # shards, at least, that pieces are counted in: some ten million tokens
_REMEDY = "remove the data set and build it again"


@dataclass(frozen=True)
class Shard:
    """The four arrays of one shard. `sentences` and `documents` have one entry more than there are of them."""

    tokens: np.ndarray  # (num_tokens,)
    units: np.ndarray  # (num_tokens,) WORD_START, PHRASE_START, IN_PHRASE
    sentences: np.ndarray  # (num_sentences + 1,) into tokens
    documents: np.ndarray  # (num_documents + 1,) into sentences


class ShardSet:
    """One split of a data set, as if it were one list of documents and one of sentences."""

    def __init__(self, folder: Path, split: Split = "train", index: Index | None = None) -> None:
        self.folder = folder
        self.split = split
        self.index = index or read_index(folder)
        self._infos = self.index.shards(split)
        self._documents = _bounds([info.documents for info in self._infos])
        self._sentences = _bounds([info.sentences for info in self._infos])
        self.num_tokens = sum(info.tokens for info in self._infos)
        self._sound: set[int] = set()  # those whose content has been looked at
        self.shard: Callable[[int], Shard] = lru_cache(maxsize=_MAX_OPEN)(self._open)

    @property
    def num_shards(self) -> int:
        """How many files the split has."""
        return len(self._infos)

    @property
    def num_documents(self) -> int:
        """Documents in all shards."""
        return int(self._documents[-1])

    @property
    def num_sentences(self) -> int:
        """Sentences in all shards."""
        return int(self._sentences[-1])

    def document(self, number: int) -> list[np.ndarray]:
        """The sentences of a document."""
        shard, place = self._locate(number, self._documents, "document")
        first, last = shard.documents[place : place + 2].tolist()
        bounds = shard.sentences[first : last + 1].tolist()
        return [shard.tokens[start:stop] for start, stop in pairwise(bounds)]

    def sentence(self, number: int) -> np.ndarray:
        """The tokens of a sentence."""
        shard, place = self._locate(number, self._sentences, "sentence")
        start, stop = shard.sentences[place : place + 2].tolist()
        return shard.tokens[start:stop]

    def count_pieces(self) -> np.ndarray:
        """How often each piece of the vocabulary occurs; of many shards, in some that lie evenly among them."""
        counts = np.zeros(self.index.vocab_size, dtype=np.int64)
        for number in range(0, self.num_shards, max(1, self.num_shards // _COUNTED)):
            counts += np.bincount(self.shard(number).tokens, minlength=len(counts))
        return counts

    def verify(self, progress: Callable[[int, int], object] | None = None) -> None:
        """Compare every file with the SHA-256 that the index has of it, and check what is inside."""
        sizes = [self._layout(info)["documents"].stop for info in self._infos]
        for number, info in enumerate(self._infos):
            path = self._path(info)
            digest = hashlib.sha256()
            try:
                with path.open("rb") as file:
                    while block := file.read(_HASH_BLOCK):
                        digest.update(block)
            except OSError as error:
                raise ShardError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from error
            if digest.hexdigest() != info.sha256:
                raise ShardError(f"{path}: is not the file that was built (its SHA-256 differs); {_REMEDY}")
            self._sound.discard(number)
            self._open(number)
            if progress is not None:
                progress(sizes[number], sum(sizes))

    def _locate(self, number: int, bounds: np.ndarray, what: str) -> tuple[Shard, int]:
        if not 0 <= number < bounds[-1]:
            raise IndexError(f"{what} {number} of {bounds[-1]}")
        shard = int(np.searchsorted(bounds, number, side="right")) - 1
        return self.shard(shard), number - int(bounds[shard])

    def _path(self, info: ShardInfo) -> Path:
        return self.folder / info.file_name(self.split)

    def _layout(self, info: ShardInfo) -> dict[str, Section]:
        return layout(self.index.vocab_size, info.tokens, info.sentences, info.documents)

    def _open(self, number: int) -> Shard:
        info = self._infos[number]
        path = self._path(info)
        sections = self._layout(info)
        size = sections["documents"].stop
        try:
            if path.stat().st_size != size:
                raise ShardError(f"{path}: has {path.stat().st_size} bytes where the index says {size}; {_REMEDY}")
            data = np.memmap(path, dtype=np.uint8, mode="r")
        except OSError as error:
            raise ShardError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from error
        arrays = {
            name: np.asarray(data[section.start : section.start + section.count * section.dtype.itemsize]).view(
                section.dtype
            )
            for name, section in sections.items()
        }
        shard = Shard(**arrays)
        if number not in self._sound:
            sound = (
                _ascends(shard.documents, info.sentences)
                and _ascends(shard.sentences, info.tokens)
                and int(shard.tokens.max(initial=0)) < self.index.vocab_size
            )
            if not sound:
                raise ShardError(f"{path}: its content is damaged; {_REMEDY}")
            self._sound.add(number)
        return shard


def _bounds(counts: list[int]) -> np.ndarray:
    return np.cumsum([0, *counts], dtype=np.int64)


def _ascends(bounds: np.ndarray, end: int) -> bool:
    """Every document has a sentence and every sentence a token."""
    return int(bounds[0]) == 0 and int(bounds[-1]) == end and bool((bounds[1:] > bounds[:-1]).all())
