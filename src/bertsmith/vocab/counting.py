"""How often each word occurs in a corpus: exactly, on many workers, in bounded memory.

A job counts one block of documents and writes its counts to disk, parted by a hash of the word. Then each part is
summed on its own. What comes out is ordered by count and bytes, so it does not depend on the order of files, blocks
or workers.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import normalizers, pre_tokenizers

from bertsmith.vocab.corpus_encoder import HAN_CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from bertsmith.text.documents import Document

__all__ = ["CountJob", "WordCount", "WordRules", "count_block", "merge_counts", "piece_uses"]

WordCount = tuple[str, int]
NUM_PARTS = 32
# BERT reads a longer word as [UNK], whatever the vocabulary.
MAX_WORD_LENGTH = 100
# As many as are learned from; the rest are the rarest there are.
MAX_WORDS = 1_000_000
_MAX_CHUNKS = 200_000


@dataclass(frozen=True)
class WordRules:
    """What makes a word: BERT's cleaning and splitting, cased or not."""

    lowercase: bool = True

    def count(self, texts: Iterable[str]) -> Counter[str]:
        """Words of many texts.

        Rules do not reach across white space, so it is enough to apply them once to each distinct run of other
        characters; those that occur equally often go through the engine together.

        >>> sorted(WordRules().count(["Don't, don't!"]).items())
        [('!', 1), ("'", 2), (',', 1), ('don', 2), ('t', 2)]
        """
        words: Counter[str] = Counter()
        chunks: Counter[str] = Counter()
        for text in texts:
            chunks.update(HAN_CHUNK.findall(text))
            if len(chunks) > _MAX_CHUNKS:
                self._add(chunks, words)
                chunks.clear()
        self._add(chunks, words)
        return words

    def split(self, text: str) -> list[str]:
        """The words of a text, as the tokenizer would see them before it cuts them into pieces."""
        normalizer = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=self.lowercase
        )
        found = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(text))
        return [word for word, _ in found]

    def _add(self, chunks: Counter[str], words: Counter[str]) -> None:
        by_count: defaultdict[int, list[str]] = defaultdict(list)
        for chunk, count in chunks.items():
            by_count[count].append(chunk)
        for count, alike in by_count.items():
            for word, times in Counter(self.split(" ".join(alike))).items():
                words[word] += count * times


@dataclass(frozen=True)
class CountJob:
    """Some documents to count, and where to write."""

    number: int
    documents: list[Document]
    rules: WordRules
    holdout: float
    folder: Path


def count_block(job: CountJob) -> int:
    """Count one block: words to learn from, and apart from them those of documents that are set aside."""
    for name, chosen in (("learn", False), ("holdout", True)):
        documents = [document for document in job.documents if document.held_out(job.holdout) == chosen]
        counts = job.rules.count(chain.from_iterable(document.parts() for document in documents))
        _write_parts(counts, job.folder / f"{name}-{job.number:06d}")
    for document in job.documents:
        document.discard()
    return job.number


def merge_counts(folder: Path, name: str, *, limit: int = MAX_WORDS) -> list[WordCount]:
    """The sums over all blocks, most frequent first, equals by their bytes; at most `limit` of them."""
    blocks = sorted(folder.glob(f"{name}-*"))
    parts = [_merged_part(blocks, part, folder) for part in range(NUM_PARTS)]
    return list(islice(heapq.merge(*parts, key=_rank), limit))


def piece_uses(rows: Sequence[Sequence[int]], words: Sequence[WordCount], num_pieces: int) -> np.ndarray:
    """(num_pieces,) how often each piece is used, where `rows` are the pieces of each word."""
    weights = np.repeat([count for _, count in words], [len(row) for row in rows])
    return np.bincount(np.fromiter(chain.from_iterable(rows), np.int64), weights, minlength=num_pieces)


def _rank(entry: WordCount) -> tuple[int, bytes]:
    return -entry[1], entry[0].encode()


def _merged_part(blocks: Sequence[Path], part: int, folder: Path) -> Iterator[WordCount]:
    """One part summed, sorted, and read again from disk: only one is in memory at a time."""
    sums: Counter[str] = Counter()
    for block in blocks:
        for word, count in _entries(block / str(part)):
            sums[word] += count
    path = folder / f"sum-{part}"
    path.write_bytes("".join(f"{word}\t{count}\n" for word, count in sorted(sums.items(), key=_rank)).encode())
    del sums
    yield from _entries(path)
    path.unlink()


def _entries(path: Path) -> Iterator[WordCount]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            word, count = line.split("\t")
            yield word, int(count)


def _write_parts(counts: Counter[str], folder: Path) -> None:
    parts: list[list[str]] = [[] for _ in range(NUM_PARTS)]
    for word, count in counts.items():
        if len(word) <= MAX_WORD_LENGTH:
            parts[zlib.crc32(word.encode()) % NUM_PARTS].append(f"{word}\t{count}\n")
    folder.mkdir()
    for number, lines in enumerate(parts):
        (folder / str(number)).write_bytes("".join(lines).encode())
