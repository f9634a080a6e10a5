"""Hostile texts, each a pure function of a seed and an index.

Comes in: a seed, an index and some words of a vocabulary. Goes out: a text without half surrogates, up to
some 10,000 characters long, glued from parts that tokenizers are known to stumble over.
"""

from __future__ import annotations

import random
import sys
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
# Blocks where characters appeared, or changed their category, after old tables were made.
YOUNG_BLOCKS = (
    (0x0890, 0x08FF),
    (0x1710, 0x173F),
    (0x1AB0, 0x1AFF),
    (0x2E40, 0x2E5F),
    (0xA7C0, 0xA7DF),
    (0x10D50, 0x10D65),
    (0x11180, 0x111DF),
    (0x11900, 0x1195F),
    (0x11A00, 0x11AAF),
    (0x11C00, 0x11D5F),
    (0x13430, 0x1345F),
    (0x16FE0, 0x16FFF),
    (0x1E000, 0x1E02F),
    (0x1E900, 0x1E95F),
)
SCRIPTS = {
    "hangul": ((0xAC00, 0xD7A3), (0x1100, 0x11FF), (0x3130, 0x318F)),
    "arabic": ((0x0600, 0x06FF), (0xFB50, 0xFDFF), (0xFE70, 0xFEFF)),
    "indic": ((0x0900, 0x097F), (0x0980, 0x09FF), (0x0B80, 0x0BFF), (0x0D00, 0x0D7F)),
    "kana": ((0x3040, 0x30FF), (0xFF65, 0xFF9F)),
    "latin": ((0x00C0, 0x024F), (0x1E00, 0x1EFF), (0xFF21, 0xFF5A)),
    "greek": ((0x0370, 0x03FF), (0x1F00, 0x1FFF)),
}
CONTROLS = "\0\x01\x07\x08\x0b\x0c\x1b\x1c\x1d\x1e\x1f\x7f\x80\x85\x9f\xad\u061c\u180e\u200b\u200e\u2060\ufeff\ufffd"
LIGATURES = ("ﬁ", "ﬀ", "ﬃ", "ﬆ", "ß", "ẞ", "Ǆ", "ǅ", "ĳ", "Æ", "Œ", "ŉ", "ﷺ", "㍿", "½", "№")
TURKISH = ("İ", "ı", "I", "i", "İSTANBUL", "ISPARTA", "i̇", "ğ", "Ş")
SIGMAS = ("Σ", "σ", "ς", "ΟΔΥΣΣΕΥΣ", "ΣΑΣ", "ΑΣ.", "ΑΣ\u00ad", "Α\u0301Σ", "ΑΣ\u0301", "ΑΣʼ", "ΑΣΒ")
SPACING_MARKS = "\u1715\u1734\u302e\u1b44\U00011938\U0001193d\U00016ff0\U0001d165\U0001d16d"
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡§«·»¿‐–—‘’“”„…‰⁂、。《》「」〜！，：；？｡·؟،।॥"
LONG_LENGTHS = (99, 100, 101, 200)
HUGE_LENGTH = 10_000


def make_text(seed: int, index: int, words: Sequence[str] = (), *, special_tokens: bool = False) -> str:
    """The text at an index: nothing at all, one part, or up to a dozen.

    >>> make_text(1, 5) == make_text(1, 5)
    True
    """
    rng = random.Random(f"{seed}/{index}")
    num_parts = 0 if rng.random() < 0.01 else rng.choice((1, 1, 2, 3, 4, 6, 8, 12))
    makers = [*_MAKERS, *([_special] if special_tokens else [])]
    parts = [rng.choice(makers)(rng, words) for _ in range(num_parts)]
    return rng.choice(("", "", " ", "-")).join(parts)


def make_texts(seed: int, count: int, words: Sequence[str] = (), *, special_tokens: bool = False) -> list[str]:
    """The first `count` texts of a seed."""
    return [make_text(seed, index, words, special_tokens=special_tokens) for index in range(count)]


def character_pieces(texts: Iterable[str]) -> list[str]:
    """A vocabulary of all characters of some texts, folded or not, where no change hides behind `[UNK]`."""
    plain = set("".join(texts))
    folded = {char for text in plain for char in unicodedata.normalize("NFD", text.lower())}
    chars = sorted(plain | folded)
    return [*SPECIAL_TOKENS, *chars, *(f"##{char}" for char in chars)]


@cache
def by_category() -> dict[str, str]:
    """All characters of each category but Cs; the two hugest categories are thinned out."""
    found: dict[str, list[str]] = {}
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        category = unicodedata.category(char)
        if category != "Cs" and (code < 0x20000 or code % 16 == 0):
            found.setdefault(category, []).append(char)
    return {category: "".join(chars) for category, chars in sorted(found.items())}


@cache
def white_space() -> str:
    """Every character that Unicode or Python takes for white space."""
    return "".join(char for char in map(chr, range(0x10000)) if char.isspace())


def _in_range(rng: random.Random, ranges: Sequence[tuple[int, int]]) -> str:
    return chr(rng.randint(*rng.choice(ranges)))


def _any_plane(rng: random.Random, words: Sequence[str]) -> str:
    codes = (rng.randrange(17) * 0x10000 + rng.randrange(0x10000) for _ in range(rng.randint(1, 6)))
    return "".join(chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF)


def _any_category(rng: random.Random, words: Sequence[str]) -> str:
    chars = rng.choice(list(by_category().values()))
    return rng.choice("aZ9") + rng.choice(chars) + rng.choice(("", "b", rng.choice(chars)))


def _young(rng: random.Random, words: Sequence[str]) -> str:
    block = [rng.choice(YOUNG_BLOCKS)]
    return rng.choice(("", "a", "Ü")) + "".join(_in_range(rng, block) for _ in range(rng.randint(1, 3)))


def _script(rng: random.Random, words: Sequence[str]) -> str:
    ranges = rng.choice(list(SCRIPTS.values()))
    return "".join(_in_range(rng, ranges) for _ in range(rng.randint(1, 8)))


def _cjk(rng: random.Random, words: Sequence[str]) -> str:
    first, last = rng.choice(CJK_RANGES)
    edges = (first - 1, first, last, last + 1)
    return "".join(chr(rng.choice((*edges, rng.randint(first, last)))) for _ in range(rng.randint(1, 5)))


def _control(rng: random.Random, words: Sequence[str]) -> str:
    return rng.choice(("", "un")) + rng.choice(CONTROLS) + rng.choice(("", "want", rng.choice(CONTROLS)))


def _accents(rng: random.Random, words: Sequence[str]) -> str:
    marks = rng.choice((by_category()["Mn"], by_category()["Mn"], by_category()["Mc"], SPACING_MARKS))
    base = rng.choice(("", "e", "A", "क", "가", "你", " "))
    return base + "".join(rng.choice(marks) for _ in range(rng.randint(1, 5)))


def _emoji(rng: random.Random, words: Sequence[str]) -> str:
    faces = [chr(rng.randint(0x1F300, 0x1FAFF)) for _ in range(rng.randint(1, 4))]
    flag = "".join(chr(rng.randint(0x1F1E6, 0x1F1FF)) for _ in range(2))
    joined = rng.choice(("\u200d", "\ufe0f", "\ufe0f\u200d", "\U0001f3fd", "")).join(faces)
    return rng.choice((joined, joined, flag, "1\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e0062\U000e007f"))


def _space(rng: random.Random, words: Sequence[str]) -> str:
    return "".join(rng.choice(white_space()) for _ in range(rng.randint(1, 4)))


def _punctuation(rng: random.Random, words: Sequence[str]) -> str:
    return "".join(rng.choice(PUNCTUATION) for _ in range(rng.randint(1, 6)))


def _trouble(rng: random.Random, words: Sequence[str]) -> str:
    return rng.choice(("", "x")) + rng.choice((*LIGATURES, *TURKISH, *SIGMAS)) + rng.choice(("", "", "s"))


def _word(rng: random.Random, words: Sequence[str]) -> str:
    chosen = [rng.choice(words).removeprefix("##") for _ in range(rng.randint(1, 4))] if words else ["the"]
    glue = rng.choice((" ", " ", "", "'", "-"))
    return rng.choice((str, str, str.upper, str.title))(glue.join(chosen))


def _long(rng: random.Random, words: Sequence[str]) -> str:
    length = HUGE_LENGTH if rng.random() < 0.02 else rng.choice(LONG_LENGTHS)
    alphabet = rng.choice(("a", "ab", "un", "é", "你", "क", "x\u0301", rng.choice(by_category()["Lo"])))
    return (alphabet * length)[:length]


def _special(rng: random.Random, words: Sequence[str]) -> str:
    name = rng.choice(SPECIAL_TOKENS)
    return rng.choice((name, name, f" {name} ", f"a{name}b", name.lower(), name[:-1], f"[{name}]"))


_MAKERS: tuple[Callable[[random.Random, Sequence[str]], str], ...] = (
    *(_any_plane, _any_category, _young, _script, _cjk, _control, _accents, _emoji),
    *(_space, _punctuation, _trouble, _word, _word, _word, _long),
)
