"""Texts far longer than what is kept of them: cut as the whole text would be, and not read to their end."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Regex, normalizers
from tokenizers import Tokenizer as Engine

from bertsmith.errors import TokenizerError
from bertsmith.vocab.tokenizer import Tokenizer
from vocab.text_generator import character_pieces, make_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

cased_and_uncased = pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])


def make_long_text(seed: int, words: Sequence[str], length: int) -> str:
    """Hostile parts, and runs of what gives no token, one token, or a token a character."""
    rng = random.Random(seed)
    silent = (" ", "\u3000", "\0", "\u200b", "\u0301")
    runs = (*silent, ".", "[", "[MASK]", "[MASK", "a", "你", "。", "😀", "e\u0301", "\u1715")
    text = ""
    while len(text) < length:
        part = rng.choice(runs) * rng.choice((1, 3, 99, 100, 101, 400, 4000))
        text += part[:4000] if rng.random() < 0.1 else make_text(seed, len(text), words, special_tokens=True)
    return text


def rows_of(encoding: Any) -> list[tuple[Any, ...]]:
    """All that is said of each token of the text, and nothing of those around it."""
    columns = (encoding.ids, encoding.tokens, encoding.offsets, encoding.word_ids)
    return [row for row in zip(*columns, strict=True) if row[-1] is not None]


class CountingEngine:
    """Writes down how many characters each call hands to an engine."""

    def __init__(self, engine: Engine, calls: list[int]) -> None:
        self._engine, self._calls = engine, calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(texts: Any, **options: Any) -> Any:
            self._calls.append(sum(len(part) for text in texts for part in text))
            return getattr(self._engine, name)(texts, **options)

        return call


@pytest.fixture
def counted(pieces: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Tokenizer, list[int]]:
    """A tokenizer, and the characters of every call of its engines."""
    tokenizer, calls = Tokenizer.from_pieces(pieces), []
    make = tokenizer._engine
    monkeypatch.setattr(tokenizer, "_engine", lambda *arguments: CountingEngine(make(*arguments), calls))
    return tokenizer, calls


# The same as the whole text


@cased_and_uncased
def test_a_long_text_is_cut_as_the_whole_of_it(words, lowercase):
    texts = [make_long_text(seed, words, 8_000 + 700 * seed) for seed in range(24)]
    tokenizer = Tokenizer.from_pieces(character_pieces(texts), lowercase=lowercase)
    whole = [rows_of(encoding) for encoding in tokenizer.encode_batch(texts)]
    for max_length in (3, 17, 64, 129):
        encodings = tokenizer.encode_batch(texts, max_length=max_length)
        for text, encoding, rows in zip(texts, encodings, whole, strict=True):
            assert rows_of(encoding) == rows[: max_length - 2], ascii(text)
            assert len(encoding) == min(len(rows) + 2, max_length)
        assert tokenizer.encode_ids(texts, max_length=max_length) == [encoding.ids for encoding in encodings]
    assert sum(len(head) < len(text) for text, head in zip(texts, tokenizer._heads(texts, 17), strict=True)) > 12


@cased_and_uncased
@pytest.mark.parametrize("split_chinese", [True, False])
def test_what_follows_changes_no_token_beyond_the_reach(words, lowercase, split_chinese):
    texts = [make_long_text(seed, words, 1500) for seed in range(100, 120)]
    pieces = character_pieces(texts)
    tokenizer = Tokenizer.from_pieces(pieces, lowercase=lowercase, split_chinese=split_chinese)
    rng, num_changed = random.Random(0), 0
    for text in texts:
        rows = rows_of(tokenizer.encode(text))
        heads = [text[: rng.randrange(len(text))] for _ in range(60)]
        for head, encoding in zip(heads, tokenizer.encode_batch(heads), strict=True):
            begun = rows_of(encoding)
            sure = max(0, len(begun) - tokenizer._reach)
            assert begun[:sure] == rows[:sure], ascii(head)
            num_changed += begun != rows[: len(begun)]
    assert num_changed > 50, "no text is cut where it matters"


def test_a_mask_and_a_word_at_the_very_limit_are_found_behind_emptiness(pieces):
    tokenizer = Tokenizer.from_pieces(pieces)
    text = "a" + " " * 50_000 + "[MASK]" + "\0" * 50_000 + "b" * 101 + "\u200b" * 50_000 + " the"
    expected = ["[CLS]", "a", "[MASK]", "[UNK]", "the", "[SEP]"]
    assert tokenizer.encode(text, max_length=6).tokens == expected
    assert tokenizer.encode(text, max_length=5).tokens == [*expected[:4], "[SEP]"]
    assert [len(ids) for ids in tokenizer.encode_ids([text, text + "s !"], max_length=7)] == [6, 7]


@cased_and_uncased
def test_pairs_with_long_sides_are_cut_from_the_longer(words, lowercase):
    texts = [make_long_text(seed, words, 300 * (seed % 9) ** 2 + 30) for seed in range(200, 240)]
    tokenizer = Tokenizer.from_pieces(character_pieces(texts), lowercase=lowercase)
    whole = [rows_of(encoding) for encoding in tokenizer.encode_batch(texts)]
    for step, max_length in ((1, 20), (2, 33), (3, 64), (7, 65)):
        pairs = texts[step:] + texts[:step]
        room = max_length - 3
        for encoding, first, second in zip(
            tokenizer.encode_batch(texts, pairs, max_length=max_length), whole, whole[step:] + whole[:step], strict=True
        ):
            fewer = min(len(first), len(second), room // 2)
            kept = (room - fewer, fewer) if len(first) > len(second) else (fewer, room - fewer)
            assert [row[:3] for row in rows_of(encoding)] == [row[:3] for row in first[: kept[0]] + second[: kept[1]]]


def test_rules_that_are_not_berts_read_the_whole_text(pieces):
    engine = Engine.from_str(Tokenizer.from_pieces(pieces)._text)
    engine.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex("^.*!$"), "a")])
    tokenizer = Tokenizer(engine)
    assert tokenizer.encode("the " * 9000, max_length=4).tokens == ["[CLS]", "the", "the", "[SEP]"]
    assert tokenizer.encode("the " * 9000 + "!", max_length=4).tokens == ["[CLS]", "a", "[SEP]"]


@pytest.mark.parametrize("pair", [None, "a"])
def test_half_a_surrogate_that_nobody_reads_is_named(pieces, pair):
    with pytest.raises(TokenizerError, match=r"half a surrogate pair .* at character 90000"):
        Tokenizer.from_pieces(pieces).encode("b " * 45_000 + "\ud83d", pair, max_length=16)


# And not read to its end


@pytest.mark.parametrize("part", [".", "[", "。", "你", "a b ", "[MASK]", "the house "])
def test_of_four_million_characters_few_are_read(counted, part):
    tokenizer, calls = counted
    text = part * (4_000_000 // len(part))
    assert len(tokenizer.encode(text, max_length=256)) == 256
    assert len(tokenizer.encode("a", text, max_length=256)) == 256
    assert len(tokenizer.encode(text, "a", max_length=256)) == 256
    assert sum(calls) < 60_000


def test_words_far_apart_are_read_as_far_as_needed(counted):
    tokenizer, calls = counted
    text = ("a" + " " * 999) * 4000
    assert len(tokenizer.encode(text, max_length=16)) == 16
    assert 16_000 < sum(calls) < 1_000_000


def test_a_word_without_end_is_not_read_twice(counted):
    tokenizer, calls = counted
    assert tokenizer.encode("a" * 1_000_000, max_length=256).tokens == ["[CLS]", "[UNK]", "[SEP]"]
    assert sum(calls) < 1_400_000


def test_texts_of_common_length_are_one_call(counted):
    tokenizer, calls = counted
    texts = ["the house " * 1000] * 20
    tokenizer.encode_batch(texts, max_length=256)
    assert calls == [200_000]
