"""Corpus text to tokens and word bounds, faster than by encoding each sentence.

Nothing in BERT's rules crosses white space or punctuation, and every Chinese character stands alone. So a sentence is
the sum of its chunks, and most chunks were seen before: each is encoded once by the engine, and remembered. What is
left to do for a sentence is one look-up a chunk and one gather for the whole batch. The result is what the engine
gives for the sentence, and tests compare the two; for a tokenizer with other rules the sentence itself is the chunk.

A special token's name in corpus text is plain text.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from bertsmith.errors import TokenizerError
from bertsmith.text.words import ChineseWords, has_han
from bertsmith.vocab.phrases import PhraseFinder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["CHUNK", "HAN_CHUNK", "CorpusEncoder", "Encoded"]

# Only what the engine takes for white space, and isolates, whatever its version: ASCII punctuation and common Han.
_PUNCTUATION = "!-/:-@\\[-`{-~"
_HAN = "\u4e00-\u9fff"
CHUNK = re.compile(f"[{_PUNCTUATION}]|[^ \t\n\r{_PUNCTUATION}]+")
HAN_CHUNK = re.compile(f"[{_PUNCTUATION}{_HAN}]|[^ \t\n\r{_PUNCTUATION}{_HAN}]+")
# Characters at which a text may be cut without changing its tokens: white space, Han, and old, common punctuation.
_CUT_HERE = re.compile(
    f"[ \t\n\r\u00a0\u3000{_HAN}{_PUNCTUATION}\u00a1\u00ab\u00b7\u00bb\u00bf\u2010-\u2027\u2030-\u203e"
    "\u3001-\u3003\u3008-\u3011\u3014-\u301f\uff01-\uff03\uff05-\uff0a\uff0c-\uff0f\uff1a\uff1b\uff1f\uff20"
    "\uff3b-\uff3d\uff3f\uff5b\uff5d]"
)
_MAX_CHUNKS = 300_000
_MAX_CHARACTERS = 16 * 2**20


@dataclass(frozen=True)
class Encoded:
    """Sentences laid end to end. A unit is a word: what whole-word masking takes or leaves as one."""

    tokens: np.ndarray  # (T,) int64
    starts: np.ndarray  # (T,) bool: begins a unit
    phrases: np.ndarray  # (T,) uint8: 0 outside phrases, 1 begins one, 2 goes on
    lengths: np.ndarray  # (N,) tokens of each sentence


class CorpusEncoder:
    """Encodes batches of sentences. With `segmenter`, units are Chinese words where there is Chinese.

    >>> from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
    >>> encoder = CorpusEncoder(Tokenizer.from_pieces([*SPECIAL_TOKENS, "un", "##do", "it", "!"]))
    >>> encoded = encoder.encode(["Undo it!", "It"])
    >>> encoded.tokens.tolist(), encoded.starts.astype(int).tolist(), encoded.lengths.tolist()
    ([5, 6, 7, 8, 7], [1, 0, 1, 1, 1], [4, 1])
    """

    def __init__(
        self, tokenizer: Tokenizer, *, segmenter: ChineseWords | None = None, phrases: Sequence[str] = ()
    ) -> None:
        if segmenter is not None and not (tokenizer.splits_at_spaces and tokenizer.isolates_han):
            raise TokenizerError("--words chinese needs a tokenizer with BERT's rules, every Chinese character a word")
        pieces = tokenizer.pieces
        self._continues = np.array([piece.startswith("##") for piece in pieces])
        self._words = _ChunkTable(tokenizer, self._continues)
        self._segmented = _ChunkTable(tokenizer, self._continues, one_unit=True)
        self._segmenter = segmenter
        self._divide = _divider(tokenizer)
        # A phrase with [UNK] in it would be found wherever any other unknown word stands.
        known = [ids for ids in tokenizer.encode_plain(list(phrases)) if tokenizer.unk_id not in ids]
        self._phrases = PhraseFinder(known, self._continues) if known else None

    def encode(self, sentences: Sequence[str]) -> Encoded:
        """Tokens and unit starts of many sentences at once."""
        if self._segmenter is None:
            tokens, starts, lengths = self._words.encode(map(self._divide, sentences), len(sentences))
        else:
            tokens, starts, lengths = self._encode_segmented(sentences)
        phrases = np.zeros(len(tokens), np.uint8)
        if self._phrases is not None:
            phrases = self._phrases.mark(tokens, lengths)
        return Encoded(tokens, starts, phrases, lengths)

    def _encode_segmented(self, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Runs of sentences with Chinese and runs without, each through its own table."""
        assert self._segmenter is not None
        parts = []
        segmented = [has_han(sentence) for sentence in sentences]
        begin = 0
        while begin < len(sentences):
            end = begin
            while end < len(sentences) and segmented[end] == segmented[begin]:
                end += 1
            run = sentences[begin:end]
            if segmented[begin]:
                words = (_join_inseparable(self._segmenter.cut(sentence)) for sentence in run)
                parts.append(self._segmented.encode(words, len(run)))
            else:
                parts.append(self._words.encode(map(self._divide, run), len(run)))
            begin = end
        if not parts:
            return self._words.encode((), 0)
        tokens, starts, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return tokens, starts, lengths


class _ChunkTable(dict[str, int]):
    """chunk → number, with the tokens of each chunk end to end; a chunk that is missing is numbered, encoded later."""

    def __init__(self, tokenizer: Tokenizer, continues: np.ndarray, *, one_unit: bool = False) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._continues = continues
        self._one_unit = one_unit
        self._new: list[str] = []
        self._tokens, self._bounds, self._num_characters = array("q"), array("q", [0]), 0

    def __missing__(self, chunk: str) -> int:
        number = self[chunk] = len(self)
        self._new.append(chunk)
        return number

    def encode(self, sentences: Iterable[list[str]], count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if len(self) > _MAX_CHUNKS or self._num_characters > _MAX_CHARACTERS:
            self._reset()
        chunks = list(sentences)
        assert len(chunks) == count
        num_chunks = np.fromiter(map(len, chunks), np.int64, count)
        numbers = np.fromiter(map(self.__getitem__, chain.from_iterable(chunks)), np.int64, int(num_chunks.sum()))
        self._learn()
        bounds = np.frombuffer(self._bounds, np.int64)
        lengths = (bounds[1:] - bounds[:-1])[numbers]
        ends = np.concatenate(([0], np.cumsum(lengths)))
        places = np.arange(ends[-1]) + np.repeat(bounds[:-1][numbers] - ends[:-1], lengths)
        tokens = np.frombuffer(self._tokens, np.int64)[places]
        if self._one_unit:
            starts = np.zeros(len(tokens), bool)
            starts[ends[:-1][lengths > 0]] = True
        else:
            starts = ~self._continues[tokens]
        sentence_ends = ends[np.concatenate(([0], np.cumsum(num_chunks)))]
        return tokens, starts, np.diff(sentence_ends)

    def _learn(self) -> None:
        if not self._new:
            return
        for ids in self._tokenizer.encode_plain(self._new):
            self._tokens.extend(ids)
            self._bounds.append(len(self._tokens))
        self._num_characters += sum(len(chunk) for chunk in self._new)
        self._new = []

    def _reset(self) -> None:
        self.clear()
        self._tokens, self._bounds, self._num_characters = array("q"), array("q", [0]), 0


def _divider(tokenizer: Tokenizer) -> Callable[[str], list[str]]:
    if not tokenizer.splits_at_spaces:
        return lambda sentence: [sentence]
    return (HAN_CHUNK if tokenizer.isolates_han else CHUNK).findall


def _join_inseparable(words: list[str]) -> list[str]:
    """Join neighbours where a cut would go through a word of BERT's, as between `caf` and `é`.

    >>> _join_inseparable(["咖啡", "caf", "é", "，", "好"])
    ['咖啡', 'café', '，', '好']
    """
    joined: list[str] = []
    for word in words:
        if joined and not _CUT_HERE.match(word) and not _CUT_HERE.match(joined[-1][-1]):
            joined[-1] += word
        else:
            joined.append(word)
    return joined
