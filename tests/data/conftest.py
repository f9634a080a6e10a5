"""What the data tests share: a small tokenizer, a corpus, and data sets built from both."""

from __future__ import annotations

import json
import random
import string
from typing import TYPE_CHECKING

import pytest

from bertsmith.data.building import Built, ShardOptions, build_shards
from bertsmith.text.corpus import CorpusOptions
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

ENGLISH = ["the", "of", "house", "houses", "running", "un", "##want", "##ed", "##do", "it", "token", "##s", "##ing"]
CHINESE = list("北京清华大学我来到。")


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Letters with their `##` forms, punctuation, and a few words."""
    letters = string.ascii_lowercase + string.digits
    pieces = [
        *SPECIAL_TOKENS,
        *string.punctuation,
        *letters,
        *(f"##{letter}" for letter in letters),
        *ENGLISH,
        *CHINESE,
    ]
    return Tokenizer.from_pieces(list(dict.fromkeys(pieces)))


@pytest.fixture(scope="session")
def documents() -> list[str]:
    """Some 300 documents of one to eight lines, English and Chinese."""
    rng = random.Random(7)
    words = [word.removeprefix("##") for word in ENGLISH]
    lines = [" ".join(rng.choices(words, k=rng.randint(2, 12))).capitalize() + "." for _ in range(1200)]
    lines += ["我来到北京清华大学。北京到了。" + rng.choice(words) for _ in range(60)]
    return ["\n".join(rng.choices(lines, k=rng.randint(1, 8))) + f" document {number}" for number in range(300)]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, documents: list[str]) -> Path:
    """The documents in one file."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", documents)


@pytest.fixture
def build(tmp_path: Path, tokenizer: Tokenizer) -> Callable[..., tuple[Path, Built]]:
    """Builds a data set of some documents."""

    def make(
        documents: Sequence[str],
        *,
        name: str = "data",
        tokenizer: Tokenizer = tokenizer,
        workers: int = 1,
        **options: object,
    ) -> tuple[Path, Built]:
        source = write_corpus(tmp_path / f"{name}.jsonl", documents)
        reading = CorpusOptions(min_chars=1)
        shard_options = ShardOptions(**{"holdout": 0.0, **options})
        folder = tmp_path / name
        return folder, build_shards(
            [str(source)], tokenizer, folder, corpus=reading, options=shard_options, workers=workers
        )

    return make


def write_corpus(path: Path, documents: Sequence[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
    return path
