"""`index.json`: what is broken, incomplete or made up is an error, never a crash."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bertsmith.data.index import Index, layout, read_index
from bertsmith.data.shards import ShardSet
from bertsmith.errors import ShardError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DOCUMENTS = ["the house\nof it", "unwanted houses", "running"]
KEYS = ["tokenizer", "vocab_size", "unknown_id", "options", "corpus", "units", "train", "holdout"]
SHARD_KEYS = ["unit", "documents", "sentences", "tokens", "unknown", "sha256"]


@pytest.fixture
def folder(build: Callable[..., Any]) -> Path:
    return build(DOCUMENTS)[0]


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "index.json"
    content = json.loads(path.read_bytes())
    edit(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_an_index_is_read_as_it_was_made(build: Callable[..., Any]) -> None:
    folder, built = build(DOCUMENTS)
    assert read_index(folder) == built.index
    assert built.index.count("train", "documents") == 3
    assert built.index.count("train", "sentences") == 4
    assert built.index.shards("holdout") == []


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_key_is_named(folder: Path, key: str) -> None:
    change(folder, lambda index: index.pop(key))
    with pytest.raises(ShardError, match=rf"index\.json: {key}"):
        read_index(folder)


@pytest.mark.parametrize("key", SHARD_KEYS)
def test_a_missing_key_of_a_shard_is_named(folder: Path, key: str) -> None:
    change(folder, lambda index: index["train"][0].pop(key))
    with pytest.raises(ShardError, match=rf"train\.0\.{key}"):
        ShardSet(folder)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", [None, "", "../../x", -1, 1.5, [None]])
def test_a_value_of_the_wrong_kind_is_an_error(folder: Path, key: str, value: object) -> None:
    change(folder, lambda index: index.update({key: value}))
    with pytest.raises(ShardError, match=rf"index\.json: {key}"):
        read_index(folder)


@pytest.mark.parametrize("key", SHARD_KEYS)
@pytest.mark.parametrize("value", [None, "", "../../x", -1, 1.5, [], {}, 10**30, "f" * 65])
def test_a_value_of_the_wrong_kind_in_a_shard_is_an_error(folder: Path, key: str, value: object) -> None:
    change(folder, lambda index: index["train"][0].update({key: value}))
    with pytest.raises(ShardError, match=rf"train\.0\.{key}"):
        ShardSet(folder)


@pytest.mark.parametrize("key", ["documents", "sentences", "tokens", "unit"])
@pytest.mark.parametrize("value", [0, 1, 2, 5, 99_999, 2**26])
def test_counts_that_do_not_fit_the_file_are_an_error_before_memory_is_asked_for(
    folder: Path, key: str, value: int
) -> None:
    right = read_index(folder).train[0].model_dump()[key]
    change(folder, lambda index: index["train"][0].update({key: value}))
    shards = ShardSet(folder)
    if value != right:
        with pytest.raises(ShardError, match="build it again"):
            shards.shard(0)


@pytest.mark.parametrize("change_to", [{"format": "other"}, {"version": 2}, {"more": 1}])
def test_another_format_is_refused(folder: Path, change_to: dict[str, object]) -> None:
    change(folder, lambda index: index.update(change_to))
    with pytest.raises(ShardError, match="build it again"):
        read_index(folder)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"7", b"\xff\xfe", b"[" * 100_000, b'{"a": ' + b"9" * 9999 + b"}"]
)
def test_what_is_not_json_is_refused(folder: Path, content: bytes) -> None:
    (folder / "index.json").write_bytes(content)
    with pytest.raises(ShardError, match=r"index\.json"):
        read_index(folder)


def test_an_unfinished_build_and_a_missing_folder_are_told_apart(folder: Path) -> None:
    (folder / "index.json").unlink()
    with pytest.raises(ShardError, match="not finished"):
        read_index(folder)
    with pytest.raises(ShardError, match="no such folder"):
        read_index(folder / "nowhere")


def test_a_small_vocabulary_that_is_made_up_finds_tokens_outside_it(folder: Path) -> None:
    change(folder, lambda index: index.update(vocab_size=5))
    with pytest.raises(ShardError, match="damaged"):
        ShardSet(folder).document(0)


def test_sections_of_a_large_shard_do_not_overflow() -> None:
    most = 2**32 - 1
    sections = layout(120_000, most, most, most)
    assert sections["documents"].stop == 4 * (2**32) + 2**32 + 2 * 4 * 2**32
    starts = [section.start for section in sections.values()]
    assert starts == sorted(starts)
    assert all(start % 8 == 0 for start in starts)


def test_counts_of_a_whole_split_may_pass_four_billion(folder: Path) -> None:
    def repeat(index: dict[str, Any]) -> None:
        index["train"] = [
            {**index["train"][0], "tokens": 2**32 - 1, "sentences": 2**32 - 1, "unit": n} for n in range(9)
        ]

    change(folder, repeat)
    shards = ShardSet(folder)
    assert shards.num_tokens == shards.num_sentences == 9 * (2**32 - 1)
    assert isinstance(read_index(folder), Index)
