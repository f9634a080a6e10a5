"""The index of a data set: what is in it and how it was made. It is written last; its presence means complete.

A data set is a folder:

    index.json                      this index
    tokenizer.json, vocab.txt, …    the tokenizer that made the tokens
    train-00000.bin, …              the text to learn from, one file a shard
    holdout-00000.bin, …            the documents set aside for evaluation

A shard is four flat little-endian arrays, one after the other, each padded to 8 bytes:

    tokens     num_tokens × uint16, or uint32 where the vocabulary is larger than 65,536
    units      num_tokens × uint8: WORD_START, PHRASE_START, IN_PHRASE
    sentences  (num_sentences + 1) × uint32: where each sentence begins among the tokens, and the end
    documents  (num_documents + 1) × uint32: where each document begins among the sentences, and the end
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bertsmith.errors import ShardError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "INDEX_FILE",
    "IN_PHRASE",
    "PHRASE_START",
    "SPLITS",
    "WORD_START",
    "Index",
    "Section",
    "ShardInfo",
    "Split",
    "layout",
    "read_index",
]

INDEX_FILE = "index.json"
Split = Literal["train", "holdout"]
SPLITS: tuple[Split, ...] = ("train", "holdout")
# What a byte of `units` may say of its token.
WORD_START, PHRASE_START, IN_PHRASE = 1, 2, 4
_ALIGNMENT = 8

Count = Annotated[int, Field(ge=0, le=2**32 - 1)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]+$", max_length=64)]


class ShardInfo(BaseModel):
    """One shard of one split."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: Annotated[int, Field(ge=0, le=99_999_999)]
    documents: Count
    sentences: Count
    tokens: Count
    unknown: Count
    sha256: Digest

    def file_name(self, split: Split) -> str:
        """Made from the number, never read from a file: nothing can point outside the folder."""
        return shard_name(split, self.unit)


class Index(BaseModel):
    """All of `index.json`. Nothing in it depends on when, where or by how many processes it was made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["bertsmith-shards"] = "bertsmith-shards"
    version: Literal[1] = 1
    tokenizer: Digest
    vocab_size: Annotated[int, Field(ge=5, le=2**31)]
    unknown_id: Annotated[int, Field(ge=0)]
    options: dict[str, Any]
    corpus: dict[str, Any]
    units: list[Digest]
    train: list[ShardInfo]
    holdout: list[ShardInfo]

    def shards(self, split: Split) -> list[ShardInfo]:
        """The shards of a split, in order."""
        return self.train if split == "train" else self.holdout

    def count(self, split: Split, what: Literal["documents", "sentences", "tokens", "unknown"]) -> int:
        """A sum over a split."""
        return sum(getattr(shard, what) for shard in self.shards(split))


class Section:
    """Where an array stands in a shard's file."""

    def __init__(self, start: int, count: int, kind: str) -> None:
        self.start, self.count, self.dtype = start, count, np.dtype(kind)

    @property
    def stop(self) -> int:
        """The byte after it, padding included."""
        return self.start + padded(self.count * self.dtype.itemsize)


def layout(vocab_size: int, tokens: int, sentences: int, documents: int) -> dict[str, Section]:
    """The four arrays of a shard; the last one's `stop` is the size of the file."""
    sections: dict[str, Section] = {}
    start = 0
    kinds = {
        "tokens": (tokens, token_type(vocab_size)),
        "units": (tokens, "u1"),
        "sentences": (sentences + 1, "<u4"),
        "documents": (documents + 1, "<u4"),
    }
    for name, (count, kind) in kinds.items():
        sections[name] = Section(start, count, kind)
        start = sections[name].stop
    return sections


def token_type(vocab_size: int) -> str:
    """The width of a token.

    >>> token_type(30522), token_type(120_000)
    ('<u2', '<u4')
    """
    return "<u2" if vocab_size <= 2**16 else "<u4"


def padded(size: int) -> int:
    """Bytes up to the next multiple of eight."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def shard_name(split: Split, unit: int) -> str:
    """The file of a shard."""
    return f"{split}-{unit:05d}.bin"


def read_index(folder: Path) -> Index:
    """Read and check `index.json`; its absence means that a build was not finished."""
    path = folder / INDEX_FILE
    if not folder.is_dir():
        raise ShardError(f"{folder}: no such folder")
    if not path.is_file():
        raise ShardError(f"{folder}: has no {INDEX_FILE}; it is no data set, or its build was not finished")
    try:
        return Index.model_validate(json.loads(path.read_bytes()))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ShardError(f"{path}: {place}: {first['msg']}; remove the data set and build it again") from error
    except (ValueError, RecursionError) as error:
        raise ShardError(f"{path}: is not valid JSON ({error}); remove the data set and build it again") from error
