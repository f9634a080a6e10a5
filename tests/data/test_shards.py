"""Shards: byte by byte as the format says, and safe to read whatever became of the file."""

from __future__ import annotations

import hashlib
import random
import struct
from typing import TYPE_CHECKING, Any

import pytest

from bertsmith.data.index import WORD_START
from bertsmith.data.shards import ShardSet
from bertsmith.errors import ShardError
from bertsmith.text.sentences import SentenceSplitter
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DOCUMENTS = ["Undo it!\nIt", "it"]


@pytest.fixture(scope="module")
def tiny() -> Tokenizer:
    return Tokenizer.from_pieces([*SPECIAL_TOKENS, "un", "##do", "it", "!"])


@pytest.fixture
def small(build: Callable[..., Any], tiny: Tokenizer) -> Path:
    return build(DOCUMENTS, tokenizer=tiny, sentences="lines")[0]


def test_a_small_shard_byte_by_byte(small: Path) -> None:
    tokens = struct.pack("<6H", 5, 6, 7, 8, 7, 7) + bytes(4)
    units = bytes([1, 0, 1, 1, 1, 1]) + bytes(2)
    sentences = struct.pack("<4I", 0, 4, 5, 6)
    bounds = struct.pack("<3I", 0, 2, 3) + bytes(4)
    content = (small / "train-00000.bin").read_bytes()
    assert content == tokens + units + sentences + bounds
    (info,) = ShardSet(small).index.train
    assert info.model_dump() == {
        "unit": 0,
        "documents": 2,
        "sentences": 3,
        "tokens": 6,
        "unknown": 0,
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def test_a_large_vocabulary_has_wide_tokens(build: Callable[..., Any]) -> None:
    for size, code in ((2**16, "H"), (2**16 + 1, "I")):
        filler = [f"w{number}" for number in range(size - 6)]
        tokenizer = Tokenizer.from_pieces([*SPECIAL_TOKENS, *filler, "last"])
        folder, _ = build(["last w0", "last"], name=f"data-{size}", tokenizer=tokenizer)
        tokens = struct.pack(f"<3{code}", size - 1, 5, size - 1)
        content = (folder / "train-00000.bin").read_bytes()
        assert content.startswith(tokens + bytes(-len(tokens) % 8) + bytes([1, 1, 1]))
        assert [sentence.tolist() for sentence in ShardSet(folder).document(0)] == [[size - 1, 5]]


def test_documents_come_back_as_they_were_encoded(
    build: Callable[..., Any], tokenizer: Tokenizer, documents: list[str]
) -> None:
    folder, built = build(documents, shard_mb=0.004)
    shards = ShardSet(folder)
    expected = [[row for row in tokenizer.encode_plain(SentenceSplitter().split(text)) if row] for text in documents]
    assert shards.num_shards == len(built.index.units) > 5
    assert [[row.tolist() for row in shards.document(n)] for n in range(shards.num_documents)] == expected
    sentences = [row for document in expected for row in document]
    assert shards.num_sentences == len(sentences)
    assert shards.num_tokens == sum(map(len, sentences))
    order = random.Random(0).sample(range(len(sentences)), len(sentences))
    assert all(shards.sentence(number).tolist() == sentences[number] for number in order)
    pieces = tokenizer.pieces
    for number in range(shards.num_shards):
        shard = shards.shard(number)
        begins = [not pieces[token].startswith("##") for token in shard.tokens]
        assert (shard.units == WORD_START).tolist() == begins
    shards.verify()


def test_unknown_tokens_are_counted(build: Callable[..., Any], tiny: Tokenizer) -> None:
    folder, built = build(["it ☃ it", "zzz", "it"], tokenizer=tiny)
    assert built.index.count("train", "unknown") == 2
    assert ShardSet(folder).document(1)[0].tolist() == [tiny.unk_id]


def test_pieces_are_counted(small: Path) -> None:
    assert ShardSet(small).count_pieces().tolist() == [0, 0, 0, 0, 0, 1, 1, 3, 1]
    assert ShardSet(small, "holdout").count_pieces().tolist() == [0] * 9


def test_of_many_shards_pieces_are_counted_in_some_that_lie_evenly(
    build: Callable[..., Any], tiny: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = build(["it"] * 40 + ["!"] * 40, tokenizer=tiny, shard_mb=1e-6)
    shards = ShardSet(folder)
    whole = shards.count_pieces()
    monkeypatch.setattr("bertsmith.data.shards._COUNTED", 4)
    some = shards.count_pieces()
    assert whole[[7, 8]].sum() > some[[7, 8]].sum() >= 4
    assert abs(int(some[7]) - int(some[8])) <= 1


def test_documents_without_tokens_vanish_and_are_counted(build: Callable[..., Any], tiny: Tokenizer) -> None:
    folder, built = build(["\u200b\u200b", "it", "\u200b", "it !"], tokenizer=tiny)
    assert built.index.corpus["without_tokens"] == 2
    shards = ShardSet(folder)
    assert [[row.tolist() for row in shards.document(n)] for n in range(2)] == [[[7]], [[7, 8]]]


def test_numbers_outside_are_index_errors(small: Path) -> None:
    shards = ShardSet(small)
    for number in (-1, 2, 10**12):
        with pytest.raises(IndexError):
            shards.document(number)
    for number in (-1, 3):
        with pytest.raises(IndexError):
            shards.sentence(number)


def test_an_empty_split_has_nothing_and_verifies(small: Path) -> None:
    holdout = ShardSet(small, "holdout")
    assert (holdout.num_shards, holdout.num_documents, holdout.num_sentences, holdout.num_tokens) == (0, 0, 0, 0)
    holdout.verify()
    with pytest.raises(IndexError):
        holdout.document(0)


def test_a_missing_shard_is_named(small: Path) -> None:
    (small / "train-00000.bin").unlink()
    shards = ShardSet(small)
    for read in (lambda: shards.document(0), shards.verify):
        with pytest.raises(ShardError, match=r"train-00000\.bin: cannot be read"):
            read()


def test_a_folder_in_place_of_a_shard_is_an_error(small: Path) -> None:
    (small / "train-00000.bin").unlink()
    (small / "train-00000.bin").mkdir()
    shards = ShardSet(small)
    for read in (lambda: shards.document(0), shards.verify):
        with pytest.raises(ShardError, match=r"train-00000\.bin"):
            read()


def test_a_shard_cut_or_lengthened_anywhere_is_an_error(small: Path) -> None:
    path = small / "train-00000.bin"
    whole = path.read_bytes()
    for content in [*(whole[:size] for size in range(len(whole))), whole + b"\0", whole + bytes(4096)]:
        path.write_bytes(content)
        shards = ShardSet(small)
        with pytest.raises(ShardError, match="bytes where the index says"):
            shards.document(0)
        with pytest.raises(ShardError, match="SHA-256"):
            shards.verify()


def test_every_flipped_byte_is_caught_by_verify_and_never_crashes_a_reader(small: Path) -> None:
    path = small / "train-00000.bin"
    whole = path.read_bytes()
    for place in range(len(whole)):
        for mask in (0x01, 0x80, 0xFF):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
            with pytest.raises(ShardError, match="SHA-256"):
                ShardSet(small).verify()
            read_all(small)


def read_all(folder: Path) -> None:
    """Either everything can be read and is in the vocabulary, or opening says that it is damaged."""
    shards = ShardSet(folder)
    try:
        shards.shard(0)
    except ShardError as error:
        assert "damaged" in str(error)
        return
    documents = [shards.document(number) for number in range(shards.num_documents)]
    assert all(documents)
    assert sum(map(len, documents)) == shards.num_sentences
    assert all(len(row) and row.max() < shards.index.vocab_size for rows in documents for row in rows)
    for number in range(shards.num_sentences):
        assert len(shards.sentence(number))


def test_a_changed_shard_with_a_matching_hash_is_still_checked(small: Path) -> None:
    path = small / "train-00000.bin"
    content = bytearray(path.read_bytes())
    content[24:28] = struct.pack("<I", 3)  # the first sentence begins after the first token
    path.write_bytes(content)
    index = small / "index.json"
    old = ShardSet(small).index.train[0].sha256
    index.write_text(index.read_text().replace(old, hashlib.sha256(content).hexdigest()))
    with pytest.raises(ShardError, match="damaged"):
        ShardSet(small).verify()


def test_more_shards_than_stay_open_can_be_read(
    build: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, documents: list[str]
) -> None:
    monkeypatch.setattr("bertsmith.data.shards._MAX_OPEN", 2)
    shards = ShardSet(build(documents[:60], shard_mb=0.001)[0])
    assert shards.num_shards > 4
    order = random.Random(1).choices(range(shards.num_documents), k=200)
    assert all(len(shards.document(number)) for number in order)


def test_progress_adds_up_to_the_size_of_the_split(small: Path) -> None:
    calls: list[tuple[int, int]] = []
    ShardSet(small).verify(lambda done, total: calls.append((done, total)))
    size = (small / "train-00000.bin").stat().st_size
    assert calls == [(size, size)]
