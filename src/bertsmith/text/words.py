"""Chinese words, by `rjieba` with a dictionary of one's own; and lists of terms from files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import rjieba

from bertsmith.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ChineseWords", "has_han", "read_terms"]

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")


class ChineseWords:
    """A segmenter. Terms of the user's dictionary stay whole wherever the text allows it.

    >>> ChineseWords().cut("我来到北京清华大学")
    ['我', '来到', '北京', '清华大学']
    """

    def __init__(self, terms: Sequence[str] = ()) -> None:
        self._segmenter = rjieba.Jieba()
        for term in terms:
            self._segmenter.add_word(term, None, None)

    def cut(self, text: str) -> list[str]:
        """The words of a text; put together again they are the text."""
        words: list[str] = self._segmenter.cut(text)
        return words


def has_han(text: str) -> bool:
    """Whether there is anything to segment."""
    return not text.isascii() and _HAN.search(text) is not None


def read_terms(path: Path) -> list[str]:
    """One term a line, UTF-8; blank lines and repetitions are left out."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise CorpusError(f"{path}, line {line}: is not UTF-8; convert the file first") from error
    if "\0" in text:
        raise CorpusError(f"{path}, line {text[: text.index(chr(0))].count(chr(10)) + 1}: has a NUL byte")
    terms = list(dict.fromkeys(stripped for line in text.split("\n") if (stripped := line.strip())))
    if not terms:
        raise CorpusError(f"{path}: is empty; expected one term a line")
    return terms
