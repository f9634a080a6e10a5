"""BERT's tokenization as a readable specification: plain Python, no tokenizer library.

Comes in: a text and a vocabulary. Goes out: the pieces of the text, without `[CLS]` and `[SEP]`.
The names of special tokens inside a text are not treated specially here.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

UNKNOWN = "[UNK]"
LONGEST_WORD = 100
CJK_RANGES = (
    (0x4E00, 0x9FFF),  # unified ideographs
    (0x3400, 0x4DBF),  # extension A
    (0x20000, 0x2A6DF),  # extension B
    (0x2A700, 0x2B73F),  # extension C
    (0x2B740, 0x2B81F),  # extension D
    (0x2B820, 0x2CEAF),  # extension E
    (0xF900, 0xFAFF),  # compatibility ideographs
    (0x2F800, 0x2FA1F),  # compatibility supplement
)


def tokenize(text: str, vocabulary: Collection[str], *, lowercase: bool) -> list[str]:
    """Split a text into pieces.

    >>> tokenize("Unwanted, éh!", {"un", "##want", "##ed", ",", "eh"}, lowercase=True)
    ['un', '##want', '##ed', ',', 'eh', '[UNK]']
    """
    pieces: list[str] = []
    for word in space_cjk(clean(text)).split():
        for part in split_punctuation(fold(word) if lowercase else word):
            pieces.extend(match_pieces(part, vocabulary))
    return pieces


def clean(text: str) -> str:
    """Drop control characters, and write every white space as a space."""
    return "".join(" " if is_space(char) else char for char in text if not is_dropped(char))


def is_dropped(char: str) -> bool:
    """U+0000, U+FFFD and categories Cc and Cf, but not the three controls that count as white space."""
    if char in "\t\n\r":
        return False
    return char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf")


def is_space(char: str) -> bool:
    """Tab, line feed, carriage return, and every separator of Unicode."""
    return char in "\t\n\r" or unicodedata.category(char) in ("Zs", "Zl", "Zp")


def space_cjk(text: str) -> str:
    """Put spaces around Chinese characters, so that each becomes a word."""
    return "".join(f" {char} " if is_cjk(char) else char for char in text)


def is_cjk(char: str) -> bool:
    """Whether a character is in one of the eight ranges; kana and hangul are not."""
    return any(first <= ord(char) <= last for first, last in CJK_RANGES)


def fold(word: str) -> str:
    """Lowercase, take letters and accents apart, and drop the accents.

    >>> fold("Ærø-Café")
    'ærø-cafe'
    """
    decomposed = unicodedata.normalize("NFD", word.lower())
    return "".join(char for char in decomposed if unicodedata.category(char) != "Mn")


def split_punctuation(word: str) -> Iterator[str]:
    """Make each punctuation mark a word of its own.

    >>> list(split_punctuation("it's..."))
    ['it', "'", 's', '.', '.', '.']
    """
    run = ""
    for char in word:
        if not is_punctuation(char):
            run += char
            continue
        if run:
            yield run
        yield char
        run = ""
    if run:
        yield run


def is_punctuation(char: str) -> bool:
    """All of ASCII that is neither letter nor digit (so `$` and `^` too), and category P*."""
    if char.isascii():
        return not char.isalnum()
    return unicodedata.category(char).startswith("P")


def match_pieces(word: str, vocabulary: Collection[str]) -> list[str]:
    """Take the longest piece from the left, again and again; one gap makes the whole word unknown."""
    if len(word) > LONGEST_WORD:
        return [UNKNOWN]
    pieces: list[str] = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if prefix + word[start:end] in vocabulary), None)
        if end is None:
            return [UNKNOWN]
        pieces.append(prefix + word[start:end])
        start = end
    return pieces
