"""Documents to sentences, by `sentencex`, in the language of the text.

Three ways: `split` divides each line into sentences (a line's end always ends one); `wrapped` first joins the lines of
a paragraph, for text that was broken at a column; `lines` takes each line for a sentence, the original's format.
"""

from __future__ import annotations

import re
from typing import Literal

import sentencex

from bertsmith.errors import InputError

__all__ = ["SentenceMode", "SentenceSplitter", "language_of"]

SentenceMode = Literal["split", "lines", "wrapped"]

_SAMPLE = 500
_KANA = re.compile("[\u3041-\u30ff]")
_HAN = re.compile("[\u4e00-\u9fff]")
# A sentence of these languages has one of these inside or at its end; a line without is one sentence.
_ENDS = re.compile("[.!?。！？…｡．‼⁇⁈⁉]")
_WITH_THESE_ENDS = ("en", "zh", "ja")
# The library does not take …… for an end. It is one, unless the sentence goes on with a comma or the like.
_ELLIPSIS = re.compile("(…{2,}[”’」』）】》]*)(?=[^”’」』）】》，、；：,;:。！？!?….\\s])")
# White space beyond ASCII, before a full stop, makes the library panic; to BERT it is a space like any other.
_WIDE_SPACE = re.compile("[\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_WRAP = re.compile(r"[ \t]*\n[ \t]*")
_HAN_WRAP = re.compile("(?<=[\u3000-\u30ff\u4e00-\u9fff\uff00-\uffef])[ \t]*\n[ \t]*(?=[\u3000-\u30ff\u4e00-\u9fff])")


class SentenceSplitter:
    """Splits documents. `language` is a code such as `en`, or `auto`: English, Chinese or Japanese by the characters.

    >>> SentenceSplitter().split('He said, "Go." Then he left.')
    ['He said, "Go."', 'Then he left.']
    >>> SentenceSplitter().split("他走了……真的吗！？“是的。”她说。")
    ['他走了……', '真的吗！？', '“是的。”', '她说。']
    """

    def __init__(self, language: str = "auto", mode: SentenceMode = "split") -> None:
        if language != "auto" and not re.fullmatch("[a-z]{2,3}", language):
            raise InputError(f"--language {language}: give a code of two or three letters such as en or zh, or auto")
        self.language = language
        self.mode = mode

    def split(self, text: str) -> list[str]:
        """The sentences of a document, without white space around them."""
        if self.mode == "lines":
            return [stripped for line in text.split("\n") if (stripped := line.strip())]
        language = language_of(text) if self.language == "auto" else self.language
        sentences = []
        for line in self._lines(text):
            if language in _WITH_THESE_ENDS and not _ENDS.search(line):
                sentences.append(line)
            else:
                sentences += _segment(language, line)
        return [stripped for sentence in sentences if (stripped := sentence.strip())]

    def _lines(self, text: str) -> list[str]:
        if self.mode == "split":
            return text.split("\n")
        return [_WRAP.sub(" ", _HAN_WRAP.sub("", paragraph)) for paragraph in _PARAGRAPH.split(text)]


def language_of(text: str) -> str:
    """English, Chinese or Japanese: by the characters that a text begins with.

    >>> language_of("今天 weather"), language_of("ここです"), language_of("Здравствуйте")
    ('zh', 'ja', 'en')
    """
    sample = text[:_SAMPLE]
    if sample.isascii():
        return "en"
    if _KANA.search(sample):
        return "ja"
    return "zh" if len(_HAN.findall(sample)) > len(sample) / 20 else "en"


def _segment(language: str, line: str) -> list[str]:
    sentences: list[str] = sentencex.segment(language, _WIDE_SPACE.sub(" ", line))
    if "……" not in line:
        return list(sentences)
    return [part for sentence in sentences for part in _ELLIPSIS.sub("\\1\n", sentence).split("\n")]
