"""Word counts against a plain count with the engine's own normalizer and pre-tokenizer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from bertsmith.text.documents import Document
from bertsmith.vocab import counting
from bertsmith.vocab.counting import MAX_WORD_LENGTH, CountJob, WordRules, count_block, merge_counts
from vocab.text_generator import make_texts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
cased_and_uncased = pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])


def naive_count(texts: Iterable[str], *, lowercase: bool) -> Counter[str]:
    """Each text whole through the engine's parts."""
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    words: Counter[str] = Counter()
    for text in texts:
        found = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(text))
        words.update(word for word, _ in found)
    return words


@pytest.fixture(scope="module")
def texts(words: list[str]) -> list[str]:
    return make_texts(5, 400, words, special_tokens=True)


def count(folder: Path, blocks: list[list[str]], holdout: float = 0.0) -> Path:
    folder.mkdir()
    for number, block in enumerate(blocks):
        count_block(CountJob(number, [Document.of(text) for text in block], WordRules(), holdout, folder))
    return folder


@cased_and_uncased
def test_counts_are_those_of_the_engines_rules(texts: list[str], lowercase: bool) -> None:
    repeated = texts + texts[::3]
    assert WordRules(lowercase).count(repeated) == naive_count(repeated, lowercase=lowercase)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(ANY_TEXT, max_size=5), lowercase=st.booleans())
def test_counts_of_any_text_are_those_of_the_engines_rules(texts: list[str], lowercase: bool) -> None:
    assert WordRules(lowercase).count(texts) == naive_count(texts, lowercase=lowercase)


def test_a_table_that_overflows_counts_the_same(monkeypatch: pytest.MonkeyPatch, texts: list[str]) -> None:
    monkeypatch.setattr(counting, "_MAX_CHUNKS", 10)
    assert WordRules().count(texts) == naive_count(texts, lowercase=True)


def test_blocks_add_up_in_any_order_and_division(tmp_path: Path, texts: list[str]) -> None:
    expected = {
        word: times for word, times in naive_count(texts, lowercase=True).items() if len(word) <= MAX_WORD_LENGTH
    }
    whole = merge_counts(count(tmp_path / "a", [texts]), "learn")
    assert dict(whole) == expected
    assert whole == sorted(whole, key=lambda entry: (-entry[1], entry[0].encode()))
    parted = count(tmp_path / "b", [texts[::-1][:50], texts[::-1][50:51], texts[::-1][51:]])
    assert merge_counts(parted, "learn") == whole
    assert merge_counts(parted, "learn", limit=7) == whole[:7]


def test_held_out_documents_are_counted_apart(tmp_path: Path, texts: list[str]) -> None:
    folder = count(tmp_path / "counts", [texts[:200], texts[200:]], holdout=0.3)
    aside = [text for text in texts if Document.of(text).held_out(0.3)]
    learned = [text for text in texts if not Document.of(text).held_out(0.3)]
    assert len(aside) > 50
    for name, side in (("learn", learned), ("holdout", aside)):
        counted = naive_count(side, lowercase=True)
        assert dict(merge_counts(folder, name)) == {w: n for w, n in counted.items() if len(w) <= MAX_WORD_LENGTH}
