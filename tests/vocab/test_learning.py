"""A vocabulary: the same bytes every time, Google's ids, and what was asked for is in it."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from transformers import AutoTokenizer

from bertsmith.errors import InputError
from bertsmith.jobs import vocab as vocab_job
from bertsmith.jobs.vocab import VocabOptions, vocab
from bertsmith.vocab.learning import learn_pieces

if TYPE_CHECKING:
    from bertsmith.vocab.tokenizer import Tokenizer

STEMS = ["work", "play", "learn", "token", "house", "sing", "walk", "jump", "paint", "read", "form", "shape", "build"]
ENDINGS = ["", "s", "ed", "ing", "er", "ers", "able", "ation"]
SENTENCES = ["The workers played, learning tokens!", "Unseen wordings: 北京 café x1y2 ☃", "house houses HOUSED"]
WORDS = [("house", 9), ("houses", 7), ("mouse", 5), ("é", 2), ("北", 2), ("ß", 1)]
RUN = """
import sys
from pathlib import Path
from bertsmith.jobs.vocab import VocabOptions, vocab
if __name__ == "__main__":
    vocab(sys.argv[2:], output=Path(sys.argv[1]), options=VocabOptions(size=400))
"""


def make_corpus(folder: Path) -> list[str]:
    """Four files of made-up words, of which many are equally frequent."""
    rng = random.Random(1)
    folder.mkdir()
    words = [stem + ending for stem in STEMS for ending in ENDINGS]
    for number in range(4):
        documents = [" ".join(rng.choices(words, k=30)) + " 北京 café" for _ in range(30)]
        (folder / f"{number}.txt").write_text("\n\n".join(documents), encoding="utf-8")
    return [str(path) for path in sorted(folder.iterdir())]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_corpus(tmp_path_factory.mktemp("vocab") / "corpus")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def learn(corpus: list[str], output: Path, workers: int = 1, **options: object) -> Tokenizer:
    return vocab(corpus, output=output, options=VocabOptions(**{"size": 400, **options}), workers=workers).tokenizer


def test_any_order_of_files_and_number_of_workers_gives_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, corpus: list[str]
) -> None:
    learn(corpus, tmp_path / "one")
    monkeypatch.setattr(vocab_job, "_BLOCK", 3000)  # many jobs
    learn(corpus[::-1], tmp_path / "reversed")
    learn([corpus[2], corpus[0], corpus[3], corpus[1]], tmp_path / "two", workers=2)
    assert content(tmp_path / "one") == content(tmp_path / "reversed") == content(tmp_path / "two")
    assert sorted(content(tmp_path / "one")) == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]


def test_separate_processes_give_the_same_bytes(tmp_path: Path, corpus: list[str]) -> None:
    script = tmp_path / "run.py"
    script.write_text(RUN)
    for name in ("one", "two"):
        subprocess.run([sys.executable, script, tmp_path / name, *corpus], check=True, timeout=60)
    learn(corpus, tmp_path / "here")
    assert content(tmp_path / "one") == content(tmp_path / "two") == content(tmp_path / "here")


def test_equally_frequent_pairs_are_joined_in_the_same_order_every_time() -> None:
    rng = random.Random(2)
    words = {"".join(rng.choices("abcdefghijkl", k=rng.randint(2, 7))): rng.randint(2, 4) for _ in range(2000)}
    ranked = sorted(words.items(), key=lambda entry: (-entry[1], entry[0]))
    first, *others = (learn_pieces(ranked, 400) for _ in range(5))
    assert all(other == first for other in others)


def test_special_tokens_have_googles_ids(tmp_path: Path, corpus: list[str]) -> None:
    tokenizer = learn(corpus, tmp_path / "vocab")
    ids = [tokenizer.id_of(name) for name in ("[PAD]", "[unused0]", "[unused98]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]
    assert ids == [0, 1, 99, 100, 101, 102, 103]
    assert tokenizer.vocab_size == len(set(tokenizer.pieces)) <= 400


def test_unused_slots_beyond_the_gap_follow_the_special_tokens(tmp_path: Path, corpus: list[str]) -> None:
    tokenizer = learn(corpus, tmp_path / "vocab", unused=110)
    assert [tokenizer.id_of(name) for name in ("[MASK]", "[unused99]", "[unused109]")] == [103, 104, 114]
    assert tokenizer.id_of("[unused110]") is None
    assert tokenizer.vocab_size <= 400


@pytest.mark.parametrize("cased", [False, True], ids=["uncased", "cased"])
def test_kept_terms_are_whole_words(tmp_path: Path, corpus: list[str], cased: bool) -> None:
    terms = tmp_path / "terms.txt"
    terms.write_text("Zygomaticus\n北\nhouse\nÜberßchen\n", encoding="utf-8")
    tokenizer = learn(corpus, tmp_path / "vocab", keep=terms, cased=cased)
    for term in ("Zygomaticus", "北", "house", "Überßchen"):
        assert len(tokenizer.encode(term).ids) == 3, tokenizer.encode(term).tokens
        assert tokenizer.unk_id not in tokenizer.encode(term).ids
    assert tokenizer.lowercase != cased


@pytest.mark.parametrize("term", ["two words", "don't", "北京"])
def test_a_term_of_several_words_is_refused(tmp_path: Path, corpus: list[str], term: str) -> None:
    terms = tmp_path / "terms.txt"
    terms.write_text(f"fine\n{term}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"terms\.txt.*words for BERT"):
        learn(corpus, tmp_path / "vocab", keep=terms)
    assert not (tmp_path / "vocab").exists()


def test_the_alphabet_limit_keeps_the_most_frequent_characters(tmp_path: Path, corpus: list[str]) -> None:
    tokenizer = learn(corpus, tmp_path / "vocab", alphabet_limit=12)
    single = {piece for piece in tokenizer.pieces if len(piece) == 1}
    letters = "".join(Path(name).read_text(encoding="utf-8") for name in corpus).replace("é", "e")
    ranked = sorted(set(letters) - set(" \n"), key=lambda letter: (-letters.count(letter), letter))
    # A few documents are set aside, so the order of near equals may differ from that in all the text.
    assert len(single) == 12
    assert set(ranked[:9]) <= single <= set(ranked[:16])


@pytest.mark.parametrize(
    "options", [{"size": 103}, {"size": 120, "alphabet_limit": 1000}, {"size": 110, "unused": 110}]
)
def test_a_size_that_is_too_small_is_an_error(tmp_path: Path, corpus: list[str], options: dict[str, int]) -> None:
    with pytest.raises(InputError, match="--size"):
        learn(corpus, tmp_path / "vocab", **options)
    assert not (tmp_path / "vocab").exists()


def test_rare_characters_and_their_words_are_left_out() -> None:
    pieces = learn_pieces(WORDS, 200, alphabet_limit=8, min_frequency=2)
    assert "ß" not in pieces
    assert {"house", "houses", "mouse"} <= set(pieces)
    assert len(pieces) == len(set(pieces))


def test_transformers_reads_the_folder_and_agrees(tmp_path: Path, corpus: list[str]) -> None:
    for cased in (False, True):
        folder = tmp_path / f"cased-{cased}"
        tokenizer = learn(corpus, folder, cased=cased)
        theirs = AutoTokenizer.from_pretrained(folder)
        for sentence in SENTENCES:
            assert theirs(sentence)["input_ids"] == tokenizer.encode(sentence).ids
        assert theirs.mask_token_id == 103
        assert theirs.vocab_size == tokenizer.vocab_size
