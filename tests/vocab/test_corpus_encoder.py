"""The corpus encoder against the engine itself, sentence by sentence, and its word bounds against the rules."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine

from bertsmith.errors import TokenizerError
from bertsmith.text.words import ChineseWords
from bertsmith.vocab import corpus_encoder
from bertsmith.vocab.corpus_encoder import CorpusEncoder, Encoded
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from vocab.text_generator import character_pieces, make_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

NUM_TEXTS = 600
CHINESE = [
    "我来到北京清华大学。",
    "小明硕士毕业于中国科学院计算所，后在日本京都大学深造",
    "他说：“C++很好用！”于是café里",
    "㐀㐁是生僻字",
]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# Characters between which a cut may or may not be allowed, thickly mixed.
MIXED = st.text(
    st.sampled_from("北京清华大学我来到㐀㐁豈aB9éı\u0301\u200b\u00a0\u3000 \t#+.-_%&'。，！“”…·€①カﾅ[]\U00020000")
)
HAN = {*range(0x3400, 0x4DC0), *range(0x4E00, 0xA000)}
cased_and_uncased = pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
segmented_or_not = pytest.mark.parametrize("segmented", [False, True], ids=["pieces", "chinese"])


@pytest.fixture(scope="module")
def texts(words: list[str]) -> list[str]:
    """Hostile texts, Chinese among them; with the names of special tokens."""
    return make_texts(11, NUM_TEXTS, [*words, *CHINESE], special_tokens=True) + CHINESE + ["", " ", "[MASK]"]


@pytest.fixture(scope="module")
def tokenizers(pieces: list[str], texts: list[str]) -> dict[bool, Tokenizer]:
    """Every character of the texts is a piece, so that no difference hides behind [UNK]."""
    known = list(dict.fromkeys([*pieces, *character_pieces([*texts, "北京清华大学我来到㐀豈aB9éı€①カﾅ\U00020000"])]))
    return {lowercase: Tokenizer.from_pieces(known, lowercase=lowercase) for lowercase in (True, False)}


@pytest.fixture(scope="module")
def segmenter() -> ChineseWords:
    return ChineseWords()


@pytest.fixture(scope="module")
def encoders(tokenizers: dict[bool, Tokenizer], segmenter: ChineseWords) -> dict[tuple[bool, bool], CorpusEncoder]:
    """By casing and segmentation; what one test put into their tables is there in the next."""
    return {
        (lowercase, segmented): CorpusEncoder(tokenizers[lowercase], segmenter=segmenter if segmented else None)
        for lowercase in (True, False)
        for segmented in (True, False)
    }


def rows(encoded: Encoded, values: np.ndarray) -> list[list[int]]:
    """Flat values, sentence by sentence."""
    bounds = np.cumsum([0, *encoded.lengths])
    return [values[start:stop].tolist() for start, stop in pairwise(bounds)]


def assert_engines_tokens(encoder: CorpusEncoder, tokenizer: Tokenizer, sentences: Sequence[str]) -> None:
    """One sentence at a time through the engine, all at once through the encoder."""
    encoded = encoder.encode(sentences)
    assert rows(encoded, encoded.tokens) == [tokenizer.encode_plain([sentence])[0] for sentence in sentences]
    assert len(encoded.starts) == len(encoded.phrases) == len(encoded.tokens)


def plain_engine(tokenizer: Tokenizer) -> Engine:
    """The engine under a tokenizer, for which the names of special tokens are plain text."""
    engine = Engine.from_str(tokenizer.__getstate__()[0])
    engine.encode_special_tokens = True
    return engine


def assert_segmenters_bounds(encoder: CorpusEncoder, engine: Engine, segmenter: ChineseWords, sentence: str) -> None:
    """Between neighbouring Han characters a unit begins where the segmenter says, and nowhere else."""
    encoded = encoder.encode([sentence])
    expected = engine.encode(sentence, add_special_tokens=False)
    starts = {first: bool(start) for (first, _), start in zip(expected.offsets, encoded.starts, strict=True)}
    bounds = set(np.cumsum([len(word) for word in segmenter.cut(sentence)]).tolist())
    for place, (left, right) in enumerate(pairwise(sentence), start=1):
        if ord(left) in HAN and ord(right) in HAN:
            assert starts[place] == (place in bounds), (sentence, place)
    for piece, start in zip(expected.tokens, encoded.starts.tolist(), strict=True):
        assert not (start and piece.startswith("##")), sentence
    assert not len(encoded.starts) or encoded.starts[0]


@cased_and_uncased
@segmented_or_not
def test_hostile_sentences_have_the_engines_tokens(
    tokenizers: dict[bool, Tokenizer],
    encoders: dict[tuple[bool, bool], CorpusEncoder],
    texts: list[str],
    lowercase: bool,
    segmented: bool,
) -> None:
    encoder = encoders[lowercase, segmented]
    assert_engines_tokens(encoder, tokenizers[lowercase], texts)
    assert_engines_tokens(encoder, tokenizers[lowercase], texts[::-1])  # now most chunks are remembered


@cased_and_uncased
@segmented_or_not
@settings(max_examples=100, deadline=None)
@given(sentences=st.lists(MIXED | ANY_TEXT, max_size=4))
def test_any_sentences_have_the_engines_tokens(
    tokenizers: dict[bool, Tokenizer],
    encoders: dict[tuple[bool, bool], CorpusEncoder],
    lowercase: bool,
    segmented: bool,
    sentences: list[str],
) -> None:
    assert_engines_tokens(encoders[lowercase, segmented], tokenizers[lowercase], sentences)


@cased_and_uncased
def test_a_unit_begins_at_every_piece_that_does_not_continue_a_word(
    tokenizers: dict[bool, Tokenizer], texts: list[str], lowercase: bool
) -> None:
    tokenizer = tokenizers[lowercase]
    encoded = CorpusEncoder(tokenizer).encode(texts)
    pieces = tokenizer.pieces
    assert encoded.starts.tolist() == [not pieces[token].startswith("##") for token in encoded.tokens]


@cased_and_uncased
def test_units_are_the_segmenters_words_in_chinese(
    tokenizers: dict[bool, Tokenizer],
    encoders: dict[tuple[bool, bool], CorpusEncoder],
    texts: list[str],
    segmenter: ChineseWords,
    lowercase: bool,
) -> None:
    engine = plain_engine(tokenizers[lowercase])
    chinese = [text for text in texts if any(ord(character) in HAN for character in text) and len(text) < 2000]
    assert len(chinese) > 20
    for sentence in chinese:
        assert_segmenters_bounds(encoders[lowercase, True], engine, segmenter, sentence)


@pytest.fixture(scope="module")
def engine(tokenizers: dict[bool, Tokenizer]) -> Engine:
    return plain_engine(tokenizers[True])


@settings(max_examples=150, deadline=None)
@given(sentence=MIXED)
def test_units_are_the_segmenters_words_in_any_mixture(
    encoders: dict[tuple[bool, bool], CorpusEncoder], engine: Engine, segmenter: ChineseWords, sentence: str
) -> None:
    assert_segmenters_bounds(encoders[True, True], engine, segmenter, f"北{sentence}")


def test_a_hand_worked_sentence_of_chinese_words() -> None:
    tokenizer = Tokenizer.from_pieces([*SPECIAL_TOKENS, *"我来到北京清华大学。", "un", "##do"])
    encoded = CorpusEncoder(tokenizer, segmenter=ChineseWords()).encode(["我来到北京清华大学。undo", "undo undo"])
    assert "".join(map(str, encoded.starts.astype(int))) == "1101010001" + "10" + "1010"
    assert encoded.lengths.tolist() == [12, 4]


@segmented_or_not
def test_small_tables_give_the_same(
    monkeypatch: pytest.MonkeyPatch,
    tokenizers: dict[bool, Tokenizer],
    texts: list[str],
    segmenter: ChineseWords,
    segmented: bool,
) -> None:
    batches = [texts[start : start + 7] for start in range(0, len(texts), 7)]

    def encode() -> list[list[int]]:
        encoder = CorpusEncoder(tokenizers[True], segmenter=segmenter if segmented else None)
        found = [encoder.encode(batch) for batch in batches]
        return [[*one.tokens, *one.starts, *one.lengths] for one in found]

    with_large_tables = encode()
    monkeypatch.setattr(corpus_encoder, "_MAX_CHUNKS", 5)
    assert encode() == with_large_tables


def test_the_name_of_a_special_token_is_plain_text(pieces: list[str]) -> None:
    tokenizer = Tokenizer.from_pieces(pieces)
    encoded = CorpusEncoder(tokenizer).encode(["a [MASK] b", "[SEP]"])
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id}
    assert special.isdisjoint(encoded.tokens.tolist())
    assert [tokenizer.piece(token) for token in encoded.tokens[:3]] == ["a", "[", "m"]


def test_no_sentences_are_no_tokens(tokenizers: dict[bool, Tokenizer], segmenter: ChineseWords) -> None:
    for encoder in (CorpusEncoder(tokenizers[True]), CorpusEncoder(tokenizers[True], segmenter=segmenter)):
        for sentences in ([], [""], ["", "\u200b"]):
            encoded = encoder.encode(sentences)
            assert not len(encoded.tokens)
            assert encoded.lengths.tolist() == [0] * len(sentences)


def with_added_token(pieces: list[str]) -> Tokenizer:
    engine = Engine.from_str(Tokenizer.from_pieces(pieces).__getstate__()[0])
    engine.add_tokens([AddedToken("the house", normalized=True)])
    return Tokenizer(engine)


def other_rules(pieces: list[str]) -> Tokenizer:
    description = json.loads(Tokenizer.from_pieces(pieces).__getstate__()[0])
    description["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"String": "x"},
        "behavior": "Isolated",
        "invert": False,
    }
    return Tokenizer(Engine.from_str(json.dumps(description)))


@pytest.mark.parametrize("make", [with_added_token, other_rules])
def test_a_tokenizer_with_other_rules_reads_whole_sentences(pieces: list[str], make, texts: list[str]) -> None:
    tokenizer = make(pieces)
    sentences = ["see the house now", "thexhouse of houses", *texts[:100]]
    assert not tokenizer.splits_at_spaces
    assert_engines_tokens(CorpusEncoder(tokenizer), tokenizer, sentences)


def test_unsplit_chinese_is_encoded_as_the_engine_does(pieces: list[str], texts: list[str]) -> None:
    tokenizer = Tokenizer.from_pieces([*pieces, "北京", "##大学"], split_chinese=False)
    assert_engines_tokens(CorpusEncoder(tokenizer), tokenizer, [*texts, "北京大学", "我在北京"])


@pytest.mark.parametrize("kind", ["unsplit", "added token"])
def test_chinese_words_are_refused_where_a_cut_between_them_would_change_tokens(pieces: list[str], kind: str) -> None:
    tokenizer = (
        with_added_token(pieces) if kind == "added token" else Tokenizer.from_pieces(pieces, split_chinese=False)
    )
    with pytest.raises(TokenizerError, match="chinese"):
        CorpusEncoder(tokenizer, segmenter=ChineseWords())


def test_a_phrase_of_unknown_words_marks_nothing(pieces: list[str]) -> None:
    tokenizer = Tokenizer.from_pieces(pieces)
    encoded = CorpusEncoder(tokenizer, phrases=["☃☃ of", "the house"]).encode(["♞♞ of the house", "☃☃ of"])
    assert encoded.phrases.tolist() == [0, 0, 1, 2, 0, 0]
