"""A corpus: documents from any number of sources, cleaned and counted, in a stable order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bertsmith.errors import CorpusError, InputError
from bertsmith.text.builtin import python_docs
from bertsmith.text.documents import Document, Reading
from bertsmith.text.faults import OnError, Tally
from bertsmith.text.files import Format, find_sources
from bertsmith.text.readers import read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bertsmith.text.files import Source

__all__ = ["Corpus", "CorpusOptions", "Document", "Tally"]


@dataclass(frozen=True)
class CorpusOptions:
    """How files are read.

    Parameters
    ----------
    format
        What the files are, where their names do not tell.
    field
        The field of a JSON line, or the column of a Parquet file, that holds the text.
    document
        What divides the documents of a text file: blank lines, or nothing (one file, one document).
    on_error
        At bad input stop; or skip the document; or replace what cannot be read by U+FFFD. What was skipped is counted.
    dedup
        Drop documents that are exactly like an earlier one (about 60 bytes of memory a document).
    min_chars
        Drop documents of fewer characters.
    """

    format: Format = "auto"
    field: str = "text"
    document: Literal["blank", "file"] = "blank"
    on_error: OnError = "stop"
    dedup: bool = False
    min_chars: int = 10

    def __post_init__(self) -> None:
        if self.min_chars < 1:
            raise InputError(f"--min-chars must be at least 1, not {self.min_chars}")


class Corpus:
    """The documents behind some names. It is read once.

    `scratch` is a folder for documents that are too long for memory; whoever takes a document discards it.
    """

    def __init__(
        self,
        names: Sequence[str],
        options: CorpusOptions,
        scratch: Path,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        self.options = options
        self.tally = Tally(options.on_error)
        self._scratch = scratch
        self._sources: list[Source] = find_sources(names, options.format, self.tally)
        self._progress = progress

    @property
    def size(self) -> int:
        """Bytes on disk, as far as they are known before reading."""
        total = 0
        for source in self._sources:
            try:
                total += source.size
            except OSError:  # reported when it is read
                continue
        return total

    def __iter__(self) -> Iterator[Document]:
        tally = self.tally
        seen: set[int] = set()
        size = self.size
        progress = self._progress
        advance = None if progress is None else lambda done: progress(done, size)
        for source in self._sources:
            tally.files += 1
            num_before = tally.documents + tally.near_empty + tally.duplicates + tally.skipped.total()
            for document in self._documents(source, advance):
                if document.num_characters < self.options.min_chars:
                    tally.near_empty += 1
                elif self.options.dedup and document.digest in seen:
                    tally.duplicates += 1
                else:
                    if self.options.dedup:
                        seen.add(document.digest)
                    tally.documents += 1
                    tally.characters += document.num_characters
                    yield document
                    continue
                document.discard()
            if num_before == tally.documents + tally.near_empty + tally.duplicates + tally.skipped.total():
                tally.empty_files += 1
        if not tally.documents:
            left_out = "; ".join(tally.describe()[1:])
            raise CorpusError(
                f"{', '.join(source.name for source in self._sources[:3])}: the corpus is empty: no document has "
                f"{self.options.min_chars} characters or more" + (f" ({left_out})" if left_out else "")
            )

    def groups(self, size: int) -> Iterator[list[Document]]:
        """The documents in their order, in groups of `size` characters or a little more: the units of all work."""
        documents: list[Document] = []
        total = 0
        for document in self:
            documents.append(document)
            total += document.num_characters
            if total >= size:
                yield documents
                documents, total = [], 0
        if documents:
            yield documents

    def _documents(self, source: Source, advance: Callable[[int], object] | None) -> Iterator[Document]:
        if source.kind == "builtin":
            return (Document.of(text) for _, text in python_docs())
        return read_source(Reading(source, self.options, self.tally, self._scratch, advance))
