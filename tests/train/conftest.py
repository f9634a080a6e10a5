"""What the tests of training share: a small data set with a held-out split."""

from __future__ import annotations

import random
import string
from typing import TYPE_CHECKING

import pytest

from bertsmith.data.building import ShardOptions, build_shards
from bertsmith.text.corpus import CorpusOptions
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

WORDS = [
    "the", "of", "house", "houses", "river", "stone", "tree", "cloud", "bird",
    "mountain", "was", "and", "saw", "under", "light", "winter", "snow", "it",
]  # fmt: skip


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some hundred documents of a few short sentences."""
    folder, rng = tmp_path_factory.mktemp("shards"), random.Random(7)
    documents = [
        "\n".join(
            " ".join(rng.choices(WORDS, k=rng.randint(4, 14))).capitalize() + "." for _ in range(rng.randint(3, 8))
        )
        for _ in range(120)
    ]
    (folder / "corpus.txt").write_text("\n\n".join(documents), encoding="utf-8")
    letters = [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]
    tokenizer = Tokenizer.from_pieces([*SPECIAL_TOKENS, *string.punctuation, *letters, *WORDS])
    options, reading = ShardOptions(holdout=0.1), CorpusOptions(min_chars=1)
    build_shards([str(folder / "corpus.txt")], tokenizer, folder / "data", corpus=reading, options=options, workers=1)
    return folder / "data"
