"""Where the Rust engine departs from the plain rules, class by class.

Comes in: a text. Goes out: the names of the classes it belongs to, read off the characters of the text
alone. A difference between the engine and `plain_wordpiece` in a text of no class is a bug in one of them.

The engine's tables of categories stop at Unicode 8, its table of decompositions before Unicode 13, and its
lowercasing knows Unicode 17. Python brings whichever Unicode it was built with, so each rule below asks
Python what it knows of a listed character; the lists themselves reach past Unicode 17.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Code points in hexadecimal, assigned or recategorized since Unicode 8.
NEWER_FORMATS = "890-891 8E2 110CD 13430-1343F"
NEWER_PUNCTUATION = """
61D 9FD A76 C77 C84 1B4E-1B4F 1B7D-1B7F 2E43-2E4F 2E52-2E5D 2E60-2E63 10D6E 10EAD 10ED0 10F55-10F59
10F86-10F89 113D4-113D5 113D7-113D8 1144B-1144F 1145A-1145B 1145D 11660-1166C 116B9 1183B 11944-11946
119E2 11A3F-11A46 11A9A-11A9C 11A9E-11AA2 11B00-11B09 11BE1 11C41-11C45 11C70-11C71 11EF7-11EF8
11F43-11F4F 11FFF 12FF1-12FF2 16D6D-16D6F 16E97-16E9A 16FE2 1E5FF 1E95E-1E95F
"""
NEWER_MARKS = """
5C8-5C9 7FD 897-89F 8CA-8E1 9FE AFA-AFF B53-B55 C04 C3C D00 D3B-D3C D81 EBA ECE 180F 1885-1886 1ABF-1AF0
1DF6-1DFB A82C A8C5 A8FF A9BD 10D24-10D27 10D69-10D6D 10EAB-10EAC 10ECB-10ECF 10EF0-10EFF 10F46-10F50
10F82-10F85 11070 11073-11074 110C2 111CF 1123E 11241 1133B 113BB-113C0 113CE 113D0 113D2 113E1-113E2
11438-1143F 11442-11444 11446 1145E 1182F-11837 11839-1183A 1193B-1193C 1193E 11943 119D4-119D7
119DA-119DB 119E0 11A01-11A0A 11A33-11A38 11A3B-11A3E 11A47 11A51-11A56 11A59-11A5B 11A8A-11A96
11A98-11A99 11B60 11B62-11B64 11B66 11C30-11C36 11C38-11C3D 11C3F 11C92-11CA7 11CAA-11CB0 11CB2-11CB3
11CB5-11CB6 11D31-11D36 11D3A 11D3C-11D3D 11D3F-11D45 11D47 11D90-11D91 11D95 11D97 11DF0 11EF3-11EF4
11F00-11F01 11F36-11F3A 11F40 11F42 11F5A 13440 13447-13455 1611E-16129 1612D-1612F 16F4F 16FE4
1CF00-1CF2D 1CF30-1CF46 1D127-1D128 1D25B-1D25C 1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024
1E026-1E02A 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF 1E6E3 1E6E6 1E6EE-1E6EF 1E6F5
1E944-1E94A
"""
FORMER_PUNCTUATION = "166D 111C9"
FORMER_MARKS = "1734 1171E"
NEWER_CAPITALS = "1C89 A7CB-A7CC A7CE A7D2 A7D4 A7DA A7DC 10D50-10D65 16EA0-16EB8"
NEWER_COMPOSITES = "105C9 105E4 11383 11385 1138E 11391 113C5 113C7-113C8 11938 16D68-16D6A"
NEWER_REORDERED = "1715 113CF 1193D 11F41 16FF0-16FF1"
UNSPACED_CJK = "2B820-2B91F"


@dataclass(frozen=True)
class DifferenceClass:
    """One way in which the engine departs from the rules."""

    name: str
    characters: str  # in words, for a reader
    engine: str  # what the engine does with them
    rules: str  # what the rules say
    holds: Callable[[str], bool]
    uncased_only: bool = False


def difference_classes(text: str, *, lowercase: bool) -> list[str]:
    """The names of all classes that a text belongs to, in the order of `CLASSES`.

    >>> difference_classes("a" + chr(0xE000), lowercase=False)
    ['private use']
    """
    return [kind.name for kind in CLASSES if (lowercase or not kind.uncased_only) and kind.holds(text)]


def difference_class(text: str, *, lowercase: bool) -> str | None:
    """The first class of a text, or None where engine and rules must agree."""
    return next(iter(difference_classes(text, lowercase=lowercase)), None)


@cache
def characters(ranges: str) -> frozenset[str]:
    """Expand a list such as `"8E2 110CD 13430-13438"`."""
    spans = [span.split("-") for span in ranges.split()]
    return frozenset(chr(code) for span in spans for code in range(int(span[0], 16), int(span[-1], 16) + 1))


def _any_of(ranges: str, newer_here: Callable[[str], bool]) -> Callable[[str], bool]:
    """Whether a text holds a listed character that this Python sees otherwise than the engine."""
    return lambda text: any(newer_here(char) for char in characters(ranges).intersection(text))


def _has_private_use(text: str) -> bool:
    return any(unicodedata.category(char) == "Co" for char in text)


def _has_final_sigma(text: str) -> bool:
    """Whether lowercasing looks at a character's neighbours, as it does for Σ at the end of a word alone."""
    if "Σ" not in text:
        return False
    kept = _without_controls(text)
    return kept.lower() != "".join(char.lower() for char in kept)


def _has_newer_order(text: str) -> bool:
    """Whether a newer combining character shares a run with another one that survives the folding."""
    newer = characters(NEWER_REORDERED)
    if newer.isdisjoint(text):
        return False
    decomposed = unicodedata.normalize("NFD", _without_controls(text))
    for combining, run in groupby(decomposed, lambda char: unicodedata.combining(char) > 0):
        survivors = [char for char in run if unicodedata.category(char) != "Mn"]
        if combining and len(survivors) > 1 and not newer.isdisjoint(survivors):
            return True
    return False


def _without_controls(text: str) -> str:
    return "".join(
        char
        for char in text
        if char in "\t\n\r" or not (char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf"))
    )


CLASSES = (
    DifferenceClass(
        "private use",
        "category Co: U+E000–F8FF and planes 15 and 16",
        "drops them, as if they were controls",
        "keep them",
        _has_private_use,
    ),
    DifferenceClass(
        "newer format character",
        "Cf since Unicode 9: U+0890–0891, U+08E2, U+110CD, U+13430–13438 (later to 1343F)",
        "keeps them",
        "drop them",
        _any_of(NEWER_FORMATS, lambda char: unicodedata.category(char) == "Cf"),
    ),
    DifferenceClass(
        "newer punctuation",
        "P* since Unicode 9, such as U+061D ARABIC END OF TEXT MARK and U+2E4F CORNISH VERSE DIVIDER",
        "takes them as letters",
        "split the word at them",
        _any_of(NEWER_PUNCTUATION, lambda char: unicodedata.category(char).startswith("P")),
    ),
    DifferenceClass(
        "former punctuation",
        "U+166D CANADIAN SYLLABICS CHI SIGN (So now) and U+111C9 SHARADA SANDHI MARK (Mn now), P* in Unicode 8",
        "splits the word at them",
        "keep them in the word, or (uncased) drop U+111C9 as an accent",
        _any_of(FORMER_PUNCTUATION, lambda char: not unicodedata.category(char).startswith("P")),
    ),
    DifferenceClass(
        "start of CJK extension E",
        "the 256 characters U+2B820–2B91F",
        "leaves them in the word: its range begins at U+2B920",
        "make each a word",
        lambda text: not characters(UNSPACED_CJK).isdisjoint(text),
    ),
    DifferenceClass(
        "newer accent",
        "Mn since Unicode 9, such as U+0898–089F and the marks of Adlam, Glagolitic and Zanabazar Square",
        "keeps them",
        "drop them",
        _any_of(NEWER_MARKS, lambda char: unicodedata.category(char) == "Mn"),
        uncased_only=True,
    ),
    DifferenceClass(
        "former accent",
        "Mn once, a spacing mark (Mc) now: U+1734 HANUNOO SIGN PAMUDPOD (and U+1171E after Unicode 14)",
        "drops them",
        "keep them",
        _any_of(FORMER_MARKS, lambda char: unicodedata.category(char) != "Mn"),
        uncased_only=True,
    ),
    DifferenceClass(
        "newer capital",
        "capitals of Unicode 16 and 17, unknown to an older Python: U+1C89, seven from U+A7CB to A7DC, Garay "
        "U+10D50–10D65 and Beria Erfe U+16EA0–16EB8",
        "lowercases them",
        "leave them alone",
        _any_of(NEWER_CAPITALS, lambda char: char.lower() == char),
        uncased_only=True,
    ),
    DifferenceClass(
        "newer composite",
        "characters with a decomposition since Unicode 13: U+11938 DIVES AKURU VOWEL SIGN O",
        "leaves them whole",
        "take them apart",
        _any_of(NEWER_COMPOSITES, lambda char: unicodedata.decomposition(char) != ""),
        uncased_only=True,
    ),
    DifferenceClass(
        "newer order of marks",
        "U+1715, U+1193D and U+16FF0–16FF1 beside another spacing mark with a combining class",
        "leaves the marks in the order they came",
        "sort them by combining class",
        _has_newer_order,
        uncased_only=True,
    ),
    DifferenceClass(
        "final sigma",
        "Σ at the end of a word",
        "lowercases it to σ",
        "lowercase it to ς",
        _has_final_sigma,
        uncased_only=True,
    ),
)
