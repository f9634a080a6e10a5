"""`vocab`, `shards` and `inspect` on data, through the command line."""

from __future__ import annotations

import json
import random

import pytest

from bertsmith.cli.main import run

WORDS = ["river", "stone", "walking", "walked", "light", "lighter", "harbour", "winter", "snow", "under"]


@pytest.fixture
def corpus(tmp_path):
    """Some hundred documents of made-up English."""
    rng = random.Random(0)
    sentences = [" ".join(rng.choices(WORDS, k=8)).capitalize() + "." for _ in range(900)]
    documents = ["\n".join(sentences[start : start + 3]) for start in range(0, 900, 3)]
    (tmp_path / "corpus.txt").write_text("\n\n".join(documents), encoding="utf-8")
    return str(tmp_path / "corpus.txt")


def test_from_text_to_shards_and_a_look_at_them(corpus, tmp_path, capsys):
    vocabulary, data = str(tmp_path / "vocab"), str(tmp_path / "data")
    assert run(["vocab", corpus, "-o", vocabulary, "--size", "200", "--workers", "1", "--holdout", "0.1"]) == 0
    shown = capsys.readouterr().out
    assert "300 documents" in shown
    assert "pieces per word" in shown
    assert run(["shards", corpus, "--tokenizer", vocabulary, "-o", data, "--workers", "1", "--holdout", "0.1"]) == 0
    assert f"{data}: complete" in capsys.readouterr().out
    assert run(["inspect", data, "--verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    train, holdout = found["splits"]["train"], found["splits"]["holdout"]
    assert train["documents"] + holdout["documents"] == 300
    assert holdout["documents"] > 0
    assert train["sentences"] + holdout["sentences"] == 900
    assert train["unknown_share"] == 0
    assert sum(train["histogram"]) == train["sentences"]
    assert found["verified"]
    assert run(["inspect", data]) == 0
    assert "sentences to 16 tokens" in capsys.readouterr().out


def test_vocab_beside_another(corpus, tmp_path, capsys):
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert run(["vocab", corpus, "-o", first, "--size", "160", "--workers", "1"]) == 0
    capsys.readouterr()
    assert run(["vocab", corpus, "-o", second, "--size", "200", "--workers", "1", "--compare", first, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["quality"]["pieces_per_word"] <= found["compared"]["pieces_per_word"]
    assert found["quality"]["size"] <= 200


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["vocab", "absent.txt", "-o", "v"], "no such file"),
        (["vocab", "CORPUS", "-o", "v", "--size", "110"], "too small"),
        (["vocab", "CORPUS", "-o", "v", "--unused", "5"], "--unused must be at least 99"),
        (["shards", "CORPUS", "--tokenizer", "absent", "-o", "d"], "absent"),
        (["shards", "CORPUS", "--tokenizer", "TOKENIZER", "-o", "d", "--holdout", "1.5"], "--holdout"),
        (["shards", "CORPUS", "--tokenizer", "TOKENIZER", "-o", "d", "--dictionary", "x"], "--words chinese"),
        (["shards", "CORPUS", "--tokenizer", "TOKENIZER", "-o", "d", "--phrases", "absent.txt"], "absent.txt"),
        (["shards", "CORPUS", "--tokenizer", "TOKENIZER", "-o", "d", "--language", "English"], "--language"),
        (["shards", "CORPUS", "--tokenizer", "TOKENIZER", "-o", "d", "--workers", "0"], "--workers"),
        (["shards", "builtin:moon", "--tokenizer", "TOKENIZER", "-o", "d"], "builtin:python-docs"),
        (["inspect", "base", "--verify"], "no data set is there"),
        (["inspect", "CORPUS", "--tensors"], "is a file; a model is a folder"),
    ],
)
def test_wrong_input_is_one_sentence_and_leaves_nothing(arguments, words, corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["vocab", corpus, "-o", "tokenizer", "--size", "160", "--workers", "1"]) == 0
    capsys.readouterr()
    named = [{"CORPUS": corpus, "TOKENIZER": "tokenizer"}.get(argument, argument) for argument in arguments]
    assert run(named) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert not (tmp_path / "v").exists()
    assert not (tmp_path / "d" / "index.json").exists()


@pytest.mark.parametrize("verb", ["shards", "vocab"])
def test_a_hyphen_is_standard_input(verb, corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["vocab", corpus, "-o", "tokenizer", "--size", "160", "--workers", "1"]) == 0
    more = ["--tokenizer", "tokenizer"] if verb == "shards" else ["--size", "160"]
    with (tmp_path / "corpus.txt").open(encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        assert run([verb, "-", "-o", "out", "--workers", "1", *more]) == 0
    assert "300 documents" in capsys.readouterr().out


def test_embed_reads_standard_input_too(tmp_path, monkeypatch, capsys):
    """The line is parsed, the input read, and the model that is not there is what is complained of."""
    (tmp_path / "texts.txt").write_text("one\n", encoding="utf-8")
    with (tmp_path / "texts.txt").open(encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        assert run(["embed", "no-such-model", "--input", "-", "--output", str(tmp_path / "v.npy")]) == 2
    assert "no-such-model" in capsys.readouterr().err
