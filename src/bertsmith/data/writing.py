"""One work unit: some documents in, a shard of each split out.

A unit is the same whoever works on it, so a data set is the same with any number of workers. Its shards are written
aside and renamed; a record of them, written last, says that the unit is done.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from bertsmith.data.index import (
    IN_PHRASE,
    PHRASE_START,
    SPLITS,
    WORD_START,
    ShardInfo,
    Split,
    layout,
    padded,
    shard_name,
)
from bertsmith.errors import ShardError
from bertsmith.folders import naming_full_disks, write_whole
from bertsmith.text.sentences import SentenceSplitter
from bertsmith.text.words import ChineseWords
from bertsmith.vocab.corpus_encoder import CorpusEncoder, Encoded
from bertsmith.vocab.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from bertsmith.text.documents import Document
    from bertsmith.text.sentences import SentenceMode

__all__ = ["Recipe", "Unit", "UnitRecord", "read_record", "write_unit"]

# Sentences are encoded together up to this many characters.
_BATCH = 2**18
_IN_MEMORY = 8 * 2**20
_BLOCK = 2**20


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what becomes of a document."""

    folder: Path  # the data set, with its tokenizer
    records: Path
    language: str = "auto"
    sentences: SentenceMode = "split"
    words: str = "pieces"
    holdout: float = 0.01
    dictionary: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    tokenizer: str = ""  # its fingerprint: a folder may be removed and built again with another


@dataclass(frozen=True)
class Unit:
    """Documents that become one shard of each split."""

    number: int
    documents: list[Document]
    recipe: Recipe

    @property
    def digest(self) -> str:
        """Names the documents and their order."""
        numbers = np.array([document.digest for document in self.documents], "<u8")
        return hashlib.blake2b(numbers.tobytes(), digest_size=16).hexdigest()

    def discard(self) -> None:
        """Remove what its documents have on disk."""
        for document in self.documents:
            document.discard()


@dataclass(frozen=True)
class UnitRecord:
    """What came of a unit."""

    number: int
    digest: str
    shards: dict[Split, ShardInfo]
    num_without_tokens: int


def write_unit(unit: Unit) -> UnitRecord:
    """Build the shards of a unit, then its record."""
    recipe = unit.recipe
    with naming_full_disks(recipe.folder):
        splitter, encoder, tokenizer = _tools(recipe)
        writers = {split: _ShardWriter(recipe.folder, tokenizer) for split in SPLITS}
        try:
            num_without = 0
            for split, documents in _runs(unit.documents, recipe.holdout):
                num_without += writers[split].add(documents, splitter, encoder)
            shards = {
                split: ShardInfo(unit=unit.number, **writer.finish(shard_name(split, unit.number)))
                for split, writer in writers.items()
                if writer.num_documents
            }
            record = UnitRecord(unit.number, unit.digest, shards, num_without)
            _write_record(recipe.records, record)
        finally:
            for writer in writers.values():
                writer.close()
    unit.discard()
    return record


def read_record(folder: Path, number: int, data: Path) -> UnitRecord | None:
    """The record of a finished unit; None where there is none, or where its shards are not as it says."""
    try:
        found = json.loads(_record_path(folder, number).read_bytes())
        shards = {split: ShardInfo.model_validate(info) for split, info in found["shards"].items()}
        record = UnitRecord(number, found["digest"], shards, found["num_without_tokens"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    exist = all((data / shard_name(split, number)).is_file() for split in shards)
    return record if exist else None


def _write_record(folder: Path, record: UnitRecord) -> None:
    content: dict[str, Any] = asdict(record)
    content["shards"] = {split: info.model_dump() for split, info in record.shards.items()}
    data = json.dumps(content).encode()
    write_whole(_record_path(folder, record.number), lambda file: file.write(data))


def _record_path(folder: Path, number: int) -> Path:
    return folder / f"unit-{number:05d}.json"


def _runs(documents: Iterable[Document], holdout: float) -> Iterator[tuple[Split, list[Document]]]:
    """Neighbours of one split together, in batches; a document that lies on disk is alone."""
    run: list[Document] = []
    size = 0
    split: Split = "train"
    for document in documents:
        theirs: Split = "holdout" if document.held_out(holdout) else "train"
        if run and (theirs != split or size > _BATCH or document.spool or run[-1].spool):
            yield split, run
            run, size = [], 0
        run.append(document)
        split = theirs
        size += document.num_characters
    if run:
        yield split, run


@lru_cache(maxsize=1)
def _tools(recipe: Recipe) -> tuple[SentenceSplitter, CorpusEncoder, Tokenizer]:
    """Made once in each process."""
    tokenizer = Tokenizer.from_folder(recipe.folder)
    segmenter = ChineseWords(recipe.dictionary) if recipe.words == "chinese" else None
    encoder = CorpusEncoder(tokenizer, segmenter=segmenter, phrases=recipe.phrases)
    return SentenceSplitter(recipe.language, recipe.sentences), encoder, tokenizer


class _ShardWriter:
    """The four arrays of a shard, each on its way to disk once it is large."""

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        self._folder = folder
        self._unknown_id = tokenizer.unk_id
        self._types = {name: part.dtype for name, part in layout(tokenizer.vocab_size, 0, 0, 0).items()}
        self._parts = {
            name: tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(folder), prefix=".part-")  # noqa: SIM115 see close
            for name in self._types
        }
        self.num_documents = self._num_sentences = self._num_tokens = self._num_unknown = 0

    def add(self, documents: list[Document], splitter: SentenceSplitter, encoder: CorpusEncoder) -> int:
        """Append documents; gives how many had no tokens at all and were left out."""
        if documents[0].spool is not None:
            (document,) = documents
            return self._add_long(document, splitter, encoder)
        split = [splitter.split(document.text or "") for document in documents]
        encoded = encoder.encode(list(chain.from_iterable(split)))
        document_of = np.repeat(np.arange(len(split)), [len(sentences) for sentences in split])
        counts = np.bincount(document_of[encoded.lengths > 0], minlength=len(split))
        first = self._num_sentences
        self._put_sentences(encoded)
        starts = first + np.cumsum(counts) - counts
        self._put("documents", starts[counts > 0])
        self.num_documents += int((counts > 0).sum())
        return int((counts == 0).sum())

    def _add_long(self, document: Document, splitter: SentenceSplitter, encoder: CorpusEncoder) -> int:
        """A document that comes in parts."""
        first = self._num_sentences
        for part in document.parts():
            self._put_sentences(encoder.encode(splitter.split(part)))
        if self._num_sentences == first:
            return 1
        self._put("documents", np.array([first]))
        self.num_documents += 1
        return 0

    def _put_sentences(self, encoded: Encoded) -> None:
        """Append sentences; those without tokens vanish."""
        units = WORD_START * encoded.starts + np.array([0, PHRASE_START, IN_PHRASE])[encoded.phrases]
        lengths = encoded.lengths[encoded.lengths > 0]
        self._put("tokens", encoded.tokens)
        self._put("units", units)
        self._put("sentences", self._num_tokens + np.cumsum(lengths) - lengths)
        self._num_tokens += len(encoded.tokens)
        self._num_sentences += len(lengths)
        self._num_unknown += int((encoded.tokens == self._unknown_id).sum())

    def _put(self, section: str, values: np.ndarray) -> None:
        self._parts[section].write(values.astype(self._types[section]).tobytes())

    def finish(self, name: str) -> dict[str, Any]:
        """Join the arrays into a file of the given name; gives the facts about it."""
        if max(self._num_tokens, self._num_sentences) >= 2**32:
            raise ShardError(f"{name}: a shard cannot hold {self._num_tokens:,} tokens; choose a smaller --shard-mb")
        self._put("sentences", np.array([self._num_tokens]))
        self._put("documents", np.array([self._num_sentences]))
        digest = hashlib.sha256()

        def write(out: BinaryIO) -> None:
            for part in self._parts.values():
                size = part.tell()
                part.write(bytes(padded(size) - size))
                part.seek(0)
                while block := part.read(_BLOCK):
                    digest.update(block)
                    out.write(block)

        write_whole(self._folder / name, write)
        return {
            "documents": self.num_documents,
            "sentences": self._num_sentences,
            "tokens": self._num_tokens,
            "unknown": self._num_unknown,
            "sha256": digest.hexdigest(),
        }

    def close(self) -> None:
        for part in self._parts.values():
            part.close()
