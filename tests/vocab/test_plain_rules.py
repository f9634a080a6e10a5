"""The tokenizer against the plain rules: every difference is of a listed class."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from vocab.differences import CLASSES, difference_class, difference_classes
from vocab.plain_wordpiece import tokenize
from vocab.text_generator import by_category, character_pieces, make_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

cased_and_uncased = pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])


def disagreements(pieces: Sequence[str], texts: Sequence[str], *, lowercase: bool) -> list[str]:
    """The texts that the engine cuts otherwise than the plain rules."""
    vocabulary = set(pieces)
    encodings = Tokenizer.from_pieces(pieces, lowercase=lowercase).encode_batch(texts)
    return [
        text
        for text, encoding in zip(texts, encodings, strict=True)
        if encoding.tokens[1:-1] != tokenize(text, vocabulary, lowercase=lowercase)
    ]


@cased_and_uncased
def test_every_difference_from_the_plain_rules_is_of_a_listed_class(words, lowercase):
    texts = make_texts(21, 2000, words)
    rng = random.Random(0)
    pieces = [piece for piece in character_pieces(texts) if piece in SPECIAL_TOKENS or rng.random() < 0.98]
    pieces += sorted({text[start : start + 3] for text in texts for start in range(0, min(len(text), 40), 4)})
    pieces += sorted({f"##{piece}" for piece in pieces if piece.isalpha()})
    different = disagreements(pieces, texts, lowercase=lowercase)
    assert different, "the generator no longer reaches the edges"
    assert [ascii(text) for text in different if difference_class(text, lowercase=lowercase) is None] == []


@cased_and_uncased
def test_any_text_of_no_class_follows_the_plain_rules(pieces, lowercase):
    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(st.text(st.characters(exclude_categories=["Cs"])))
    def check(text):
        assume(not any(name in text for name in SPECIAL_TOKENS))
        different = disagreements(pieces, [text], lowercase=lowercase)
        assert not different or difference_class(text, lowercase=lowercase)

    check()


@cased_and_uncased
def test_the_classes_hold_no_character_that_agrees_and_miss_none_that_differs(lowercase):
    codes = {*range(0, 0x20000, 7), *range(0x20000, 0x110000, 997), *range(0x2B700, 0x2BA00)}
    chars = {chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF}
    rare = {char for kind in ("Mn", "Mc", "Cf", "Pd", "Po", "Zs", "Zl", "Zp", "Cc") for char in by_category()[kind]}
    texts = [f"x{char}y" for char in sorted(chars | rare)]
    pieces = character_pieces(texts)
    different = disagreements(pieces, texts, lowercase=lowercase)
    assert different == [text for text in texts if difference_class(text, lowercase=lowercase)]


@pytest.mark.parametrize("text", ["ΟΔΟΣ", "ΑΣ, Α", "Α\0Σ", "ΑΣ\nΑ", "x\U0001d165\U00016ff0y", "x\u302e\u0301\u1715y"])
def test_classes_that_depend_on_neighbours_are_seen(text):
    pieces = character_pieces([text, "ς"])
    assert len(difference_classes(text, lowercase=True)) == 1
    assert difference_class(text, lowercase=False) is None
    assert disagreements(pieces, [text], lowercase=True) == [text]
    assert disagreements(pieces, [text], lowercase=False) == []


@pytest.mark.parametrize("text", ["ΣΑ", "Σ", "a Σ", "ΑΣ\u00adΑ", "\u1715\u0301", "\u1715 \U0001d165", "q\u0301", ""])
def test_texts_without_such_neighbours_are_of_no_class(text):
    assert difference_classes(text, lowercase=True) == []
    pieces = character_pieces([text])
    assert disagreements(pieces, [text], lowercase=True) == []


def test_class_names_are_unique():
    assert len({kind.name for kind in CLASSES}) == len(CLASSES) > 5


@pytest.mark.parametrize(("length", "expected"), [(100, 100), (101, 1), (10_000, 1)])
def test_a_word_beyond_the_limit_is_unknown(pieces, length, expected):
    tokens = Tokenizer.from_pieces(pieces).encode("a" * length).tokens[1:-1]
    assert tokens == tokenize("a" * length, set(pieces), lowercase=True)
    assert len(tokens) == expected
    assert (tokens == ["[UNK]"]) == (length > 100)
