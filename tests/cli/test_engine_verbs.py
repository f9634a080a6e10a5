"""`embed`, `whiten`, `classify`, `tag`, `answer` and `choose` as a user meets them: results, files, and mistakes."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import threading

import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.cli import main as cli
from bertsmith.infer import pipeline
from bertsmith.infer.engine import load
from bertsmith.model.pooling import Pooling
from finetuning.small_tasks import (
    NOUNS,
    SHAPE,
    make_tokenizer,
    pairs,
    questions,
    read_json_lines,
    riddles,
    write_json_lines,
    write_lines,
    write_squad,
    write_table,
)
from infer.task_models import LABELS, near, write_tasks
from twins import random_model

TEXTS = ["the river was good", "", "Anna lives in Paris.", "北京 “quoted”, \\ and \t tab"]
DEEP = SHAPE.derive(num_hidden_layers=4)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model of every kind of task, and an encoder."""
    folder = write_tasks(tmp_path_factory.mktemp("models"))
    write_bundle(folder / "encoder", Bundle(random_model("encoder", DEEP), make_tokenizer(), 64), source="a test")
    write_bundle(folder / "mlm", Bundle(random_model("mlm", DEEP), make_tokenizer(), 64), source="a test")
    return folder


@pytest.fixture
def run(capsys, models, tmp_path, monkeypatch):
    """Run a command line in a folder of its own; gives exit code, stdout, stderr. A word in capitals is a model."""
    monkeypatch.chdir(tmp_path)

    def call(line, *more):
        words = [str(models / word.lower()) if word.isalpha() and word.isupper() else word for word in line.split()]
        code = cli.run([*words, *map(str, more)])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def stdin(monkeypatch):
    """Give standard input some bytes."""
    return lambda data: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))


def ours(models):
    return load(str(models / "encoder"))


def read_vectors(path):
    """Vectors, and the other columns, of any of the three forms."""
    if path.suffix == ".npy":
        return np.load(path), None
    rows = read_json_lines(path) if path.suffix == ".jsonl" else pq.read_table(path).to_pylist()
    return np.array([row.pop("vector") for row in rows], np.float32), rows


@pytest.mark.parametrize("form", ["npy", "jsonl", "parquet"])
@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ("", {}),
        ("--pool cls", {"pool": "cls"}),
        ("--pool max --normalize", {"pool": "max", "normalize": True}),
        ("--pool last4 --no-normalize", {"pool": "last4"}),
        ("--pool first-last", {"pool": "first-last"}),
        ("--layers -2,-1 --max-length 5", {"layers": (-2, -1), "max_length": 5}),
    ],
)
def test_embed_texts_into_every_form(run, models, tmp_path, form, flags, asked):
    write_lines(tmp_path / "texts.txt", TEXTS)
    code, out, err = run(f"embed ENCODER -i texts.txt -o v.{form} {flags}")
    expected = ours(models).embed(TEXTS, **asked)
    assert (code, out, err) == (0, f"v.{form}: 4 vectors of {expected.shape[1]}\n", "")
    vectors, rows = read_vectors(tmp_path / f"v.{form}")
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert rows is None or rows == [{"text": text} for text in TEXTS]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.txt", f"v.{form}"]


def test_embed_says_it_as_json_too(run, tmp_path):
    write_lines(tmp_path / "texts.txt", TEXTS)
    code, out, _ = run("embed ENCODER -i texts.txt -o v.npy --json")
    assert (code, json.loads(out)) == (0, {"output": "v.npy", "rows": 4, "width": 16})


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "parquet"])
def test_embed_pairs_from_every_kind_of_table(run, models, tmp_path, ending):
    rows = [(text, other) for text, other, _ in pairs(5)]
    file = tmp_path / f"a.{ending}"
    if ending == "tsv":
        write_table(file, ("n", "sentence1", "sentence2"), [(n, *row) for n, row in enumerate(rows)])
    elif ending == "csv":
        write_lines(file, ["text,pair", *(f'"{one}",{two}' for one, two in rows)])
    elif ending == "jsonl":
        write_json_lines(file, ({"text": one, "pair": two} for one, two in rows))
    else:
        pq.write_table(pyarrow.table({"text": [one for one, _ in rows], "pair": [two for _, two in rows]}), file)
    code, out, _ = run(f"embed ENCODER --input {file} --output v.jsonl")
    assert (code, out) == (0, "v.jsonl: 5 vectors of 16\n")
    vectors, found = read_vectors(tmp_path / "v.jsonl")
    np.testing.assert_allclose(vectors, ours(models).embed(rows), atol=1e-5)
    assert found == [{"text": one, "pair": two} for one, two in rows]


def test_embed_columns_by_name_and_number(run, models, tmp_path):
    rows = [(text, other) for text, other, _ in pairs(5)]
    write_table(tmp_path / "a.tsv", ("x", "y"), rows)
    assert run("embed ENCODER -i a.tsv -o v.npy --column text=y")[0] == 0
    np.testing.assert_allclose(np.load("v.npy"), ours(models).embed([other for _, other in rows]), atol=1e-5)
    write_table(tmp_path / "b.tsv", None, rows)
    assert run("embed ENCODER -i b.tsv -o v.npy --column text=2 --column pair=1")[0] == 0
    np.testing.assert_allclose(np.load("v.npy"), ours(models).embed([row[::-1] for row in rows]), atol=1e-5)


def test_embed_standard_input(run, models, stdin, tmp_path):
    stdin("the river\r\n\n北京".encode())
    code, out, _ = run("embed ENCODER -i - -o v.jsonl")
    assert (code, out) == (0, "v.jsonl: 3 vectors of 16\n")
    vectors, rows = read_vectors(tmp_path / "v.jsonl")
    assert [row["text"] for row in rows] == ["the river", "", "北京"]
    np.testing.assert_allclose(vectors, ours(models).embed(["the river", "", "北京"]), atol=1e-5)
    stdin(b"one\nt\xff\n")
    code, out, err = run("embed ENCODER -i - -o w.npy")
    assert (code, out) == (2, "")
    assert err.startswith("bertsmith: standard input, line 2: is not UTF-8")


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize(("flags", "layers"), [("", (-1,)), ("--layers 0,2,-1", (0, 2, -1))])
def test_embed_tokens(run, models, tmp_path, form, flags, layers):
    write_lines(tmp_path / "texts.txt", TEXTS)
    code, out, _ = run(f"embed ENCODER --tokens -i texts.txt -o v.{form} {flags}")
    assert (code, out) == (0, f"v.{form}: 4 texts, vectors of 16\n")
    path = tmp_path / f"v.{form}"
    rows = read_json_lines(path) if form == "jsonl" else pq.read_table(path).to_pylist()
    assert [row["text"] for row in rows] == TEXTS
    for row, (pieces, states) in zip(rows, ours(models).tokens(TEXTS, layers=layers), strict=True):
        assert row["tokens"] == pieces
        np.testing.assert_allclose(np.array(row["vectors"], np.float32), states, atol=1e-5)


def test_embed_in_eight_bits_is_passed_on(run, models, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("bertsmith.model.eight_bit.quantize", asked.append)
    write_lines(tmp_path / "texts.txt", TEXTS)
    assert run("embed ENCODER -i texts.txt -o v.npy --int8")[0] == 0
    assert len(asked) == 1


def sample(count=80):
    """Texts that differ, one more often than the others."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice([*NOUNS, "the", "was", "x", "北"], rng.integers(1, 12))) for _ in range(count)]


@pytest.mark.parametrize(
    ("flags", "width"),
    [
        ("", 15),
        ("--pool cls --layers 1,-1 --dimensions 5", 5),
        ("--pool first-last --normalize", 16),
        ("--pool last4 --dimensions 40", 40),
    ],
)
def test_whiten_then_embed(run, models, tmp_path, flags, width):
    """The new folder needs nobody to remember how its vectors were made.

    LayerNorm leaves the rows of one layer a direction less than they have numbers.
    """
    write_lines(tmp_path / "texts.txt", sample())
    code, out, _ = run(f"whiten ENCODER -i texts.txt -o white {flags}")
    assert (code, out) == (0, f"white: whitened by 80 texts, vectors of {width}\n")
    code, out, err = run("embed white -i texts.txt -o v.npy")
    assert code == 0, err
    vectors = np.load("v.npy")
    assert vectors.shape == (80, width)
    assert run("embed white -i texts.txt -o w.npy --no-normalize")[0] == 0
    white = np.load("w.npy")
    np.testing.assert_allclose(white.mean(0), 0, atol=5e-3)
    np.testing.assert_allclose(np.cov(white, rowvar=False), np.eye(width), atol=2e-2)
    scaled = white / np.linalg.norm(white, axis=1, keepdims=True) if "--normalize" in flags else white
    np.testing.assert_allclose(vectors, scaled, atol=1e-5)
    assert run("embed white -i texts.txt -o plain.npy --no-whiten --no-normalize")[0] == 0
    plain = flags.replace("--normalize", "").split(" --dimensions")[0]
    assert run(f"embed ENCODER -i texts.txt -o before.npy {plain}")[0] == 0
    np.testing.assert_allclose(np.load("plain.npy"), np.load("before.npy"), atol=1e-5)


def test_whitening_again_begins_from_plain_vectors(run, tmp_path):
    write_lines(tmp_path / "texts.txt", sample())
    assert run("whiten ENCODER -i texts.txt -o one --pool cls --dimensions 4")[0] == 0
    code, out, _ = run("whiten one -i texts.txt -o two")
    assert (code, out) == (0, "two: whitened by 80 texts, vectors of 15\n")
    assert load("two").pooling == Pooling(pool="cls")


def test_a_whitening_goes_with_its_pool_alone(run, tmp_path):
    write_lines(tmp_path / "texts.txt", sample())
    assert run("whiten ENCODER -i texts.txt -o white")[0] == 0
    for flags in ("--pool cls", "--layers 1", "--whiten --pool max"):
        code, out, err = run(f"embed white -i texts.txt -o v.npy {flags}")
        assert (code, out) == (2, "")
        assert err.startswith(
            "bertsmith: white: its whitening is for pool mean; leave pool and layers out, or the whit"
        )
    assert run("embed white -i texts.txt -o v.npy --pool cls --no-whiten")[0] == 0


def test_whitening_of_pairs(run, models, tmp_path):
    rows = [(one, other) for one in sample(8) for other in sample(8)]
    write_table(tmp_path / "a.tsv", ("text", "pair"), rows)
    code, out, _ = run("whiten ENCODER -i a.tsv -o white --dimensions 3")
    assert (code, out) == (0, "white: whitened by 64 texts, vectors of 3\n")
    np.testing.assert_allclose(np.cov(load("white").embed(rows), rowvar=False), np.eye(3), atol=2e-2)


WRONG_SAMPLES = [
    (["the river"], "whitening: one text is no sample; give some hundreds at least"),
    (["the river"] * 20, "whitening: all texts of the sample have the same vector"),
    ([], "texts.txt: is empty; expected one text per line"),
]


@pytest.mark.parametrize(("lines", "said"), WRONG_SAMPLES)
def test_a_sample_that_teaches_nothing_leaves_no_folder(run, tmp_path, lines, said):
    write_lines(tmp_path / "texts.txt", lines)
    assert run("whiten ENCODER -i texts.txt -o white") == (2, "", f"bertsmith: {said}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


@pytest.mark.parametrize("form", ["npy", "jsonl", "parquet"])
@pytest.mark.parametrize("tokens", ["", "--tokens"])
def test_an_error_in_the_middle_names_the_line_and_leaves_no_output(run, tmp_path, monkeypatch, form, tokens):
    if tokens and form == "npy":
        return
    monkeypatch.setattr(pipeline, "_INPUTS_AT_ONCE", 10)
    (tmp_path / "texts.txt").write_bytes(b"the river\n" * 55 + b"\xff\n" + b"stone\n" * 50)
    code, out, err = run(f"embed ENCODER -i texts.txt -o v.{form} {tokens}")
    assert (code, out) == (2, "")
    assert err == "bertsmith: texts.txt, line 56: is not UTF-8 (byte 0 of the line); convert the file first\n"
    write_json_lines(tmp_path / "a.jsonl", [*({"text": "stone"} for _ in range(33)), {"text": None}, {"text": "a"}])
    code, out, err = run(f"embed ENCODER -i a.jsonl -o v.{form} {tokens}")
    assert (code, out) == (2, "")
    assert err.startswith("bertsmith: a.jsonl, line 34: column 'text' holds None, not text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "texts.txt"]


def test_an_output_that_was_there_stays_as_it_was_when_something_is_wrong(run, tmp_path):
    (tmp_path / "texts.txt").write_bytes(b"stone\n\xff\n")
    (tmp_path / "v.npy").write_bytes(b"precious")
    assert run("embed ENCODER -i texts.txt -o v.npy")[0] == 2
    assert (tmp_path / "v.npy").read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("embed ENCODER -i none.txt -o v.npy", "none.txt: cannot be read (No such file or directory)"),
        ("embed ENCODER -i . -o v.npy", ".: cannot be read (Is a directory)"),
        ("embed ENCODER -i empty.txt -o v.npy", "empty.txt: is empty; expected one text per line"),
        ("embed ENCODER -i empty.txt -o v.jsonl", "empty.txt: is empty; expected one text per line"),
        ("embed ENCODER -i empty.txt -o v.parquet --tokens", "empty.txt: is empty; expected one text per line"),
        ("embed ENCODER -i empty.tsv -o v.npy", "empty.tsv, line 1: is empty"),
        ("embed ENCODER -i texts.txt -o v.npy --tokens", "which .npy cannot hold; take .jsonl"),
        ("embed ENCODER -i texts.txt -o v.csv", "the output is a file whose name ends in .npy, .parquet, .jsonl"),
        ("embed ENCODER -i texts.txt -o v.npy --layers 5", "layers 5: this model has layers 0 to 4"),
        ("embed ENCODER -i texts.txt -o v.jsonl --tokens --layers -6", "layers -6: this model has layers 0 to 4"),
        ("embed ENCODER -i texts.txt -o v.npy --layers one", "--layers one: expected whole numbers with commas"),
        ("embed ENCODER -i texts.txt -o v.npy --pool last4 --layers 1", "last4 has its own"),
        ("embed ENCODER -i texts.txt -o v.npy --whiten", "has no whitening; see bertsmith whiten"),
        ("embed ENCODER -i texts.txt -o v.npy --max-length 65", "more than the model's 64 positions"),
        ("embed ENCODER -i texts.txt -o v.npy --max-length 0", "leaves no room"),
        ("embed ENCODER -i texts.txt -o v.jsonl --tokens --pool cls", "pool, normalize and whiten are for vectors"),
        ("embed ENCODER -i texts.txt -o v.jsonl --tokens --normalize", "pool, normalize and whiten are for vectors"),
        ("embed ENCODER -i a.tsv -o v.npy", "which column is the text? There are x, y; name it with --column text="),
        ("embed ENCODER -i a.tsv -o v.npy --column text=z", "a.tsv, line 2: no column 'z'; there are x, y"),
        ("embed ENCODER -i a.tsv -o v.npy --column text", "--column text: expected NAME=VALUE"),
        ("whiten ENCODER -i none.txt -o white", "none.txt: cannot be read"),
        ("whiten ENCODER -i texts.txt -o texts.txt", "texts.txt: exists already"),
        ("whiten ENCODER -i texts.txt -o white --dimensions 0", "dimensions must be from 1 to 16, not 0"),
        ("whiten ENCODER -i texts.txt -o white --dimensions 17", "dimensions must be from 1 to 16, not 17"),
        ("whiten ENCODER -i texts.txt -o white --layers 9", "layers 9: this model has layers 0 to 4"),
        ("classify TAG river", "was fine-tuned to tag, not to classify or regress"),
        ("tag CLASSIFY river", "was fine-tuned to classify, not to tag"),
        ("answer CLASSIFY --question a --context b", "was fine-tuned to classify, not to answer"),
        ("choose ANSWER a b c", "was fine-tuned to answer, not to choose"),
        ("classify ENCODER river", "is a model of kind 'encoder', which does no task yet; see bertsmith finetune"),
        ("tag MLM river", "is a model of kind 'mlm', which does no task yet; see bertsmith finetune"),
        ("answer ENCODER --question a --context b", "does no task yet"),
        ("choose ENCODER a b c", "does no task yet"),
        ("predict ENCODER -i texts.txt", "does no task yet"),
        ("predict CLASSIFY -i empty.txt -o said.jsonl", "empty.txt: is empty"),
        ("predict CLASSIFY -i texts.txt -o folder", "folder: is a folder; name a file"),
        ("choose CHOOSE a", "0 choices; there must be two at least"),
        ("choose CHOOSE a b", "1 choices; there must be two at least"),
        ("classify CLASSIFY \udcff", "half a surrogate pair"),
        ("tag TAG \udcff", "half a surrogate pair"),
        ("answer ANSWER --question \udcff --context b", "half a surrogate pair"),
        ("choose CHOOSE a b \udcff", "half a surrogate pair"),
        ("answer ANSWER --question a --context b --top 0", "--top"),
        ("answer ANSWER --question a --context b --top -1", "--top"),
        ("classify CLASSIFY", "text"),
        ("classify nowhere/at/all river", "nowhere"),
    ],
)
def test_wrong_input_is_code_2_and_one_sentence_and_nothing_is_left(run, tmp_path, line, said):
    write_lines(tmp_path / "texts.txt", sample(30))
    write_table(tmp_path / "a.tsv", ("x", "y"), [("a", "b")])
    (tmp_path / "empty.txt").touch()
    (tmp_path / "empty.tsv").touch()
    (tmp_path / "folder").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
    assert "─" in err or len(err.splitlines()) == 1  # of what cyclopts refuses it draws a box
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def said_of(run, kind, file):
    """What `predict` says of the one example of a file."""
    code, out, err = run(f"predict {kind} -i {file}")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize("text", ["the river was good", "Anna lives in Paris.", "- begins so", "北京"])
def test_one_text_is_classified_and_tagged_as_in_a_file(run, tmp_path, stdin, text):
    file = write_json_lines(tmp_path / "a.jsonl", [{"text": text}])
    for verb, kind in (("classify", "CLASSIFY"), ("classify", "MULTILABEL"), ("classify", "REGRESS"), ("tag", "TAG")):
        expected = said_of(run, kind, file)
        code, out, _ = run(f"{verb} {kind} --json", "--", text)
        assert (code, json.loads(out)) == (0, near(expected))
        stdin(f"{text}\n".encode())
        code, out, _ = run(f"{verb} {kind} - --json")
        assert (code, json.loads(out)) == (0, near(expected))


def test_classify_a_pair(run, tmp_path):
    file = write_json_lines(tmp_path / "a.jsonl", [{"text": "who is anna", "pair": "the good river"}])
    expected = said_of(run, "CLASSIFY", file)
    code, out, _ = run("classify CLASSIFY --json", "who is anna", "--pair", "the good river")
    assert (code, json.loads(out)) == (0, near(expected))
    assert json.loads(run("classify CLASSIFY --json", "who is anna")[1])["scores"] != expected["scores"]


def test_the_tables_that_people_see(run, models):
    code, out, _ = run("classify CLASSIFY", "the river was good")
    rows = [line.split("\t") for line in out.splitlines()]
    assert (code, rows[0]) == (0, ["class", "score"])
    shares = [float(share.removesuffix("%")) for _, share in rows[1:]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert {name for name, _ in rows[1:]} == set(LABELS["classify"])
    code, out, _ = run("classify REGRESS river")
    (value,) = (each["value"] for each in load(str(models / "regress")).classify(["river"]))
    assert (code, out) == (0, f"value\n{value:.4f}\n")
    (found,) = load(str(models / "tag")).tag(["Anna lives in Paris."])
    code, out, _ = run("tag TAG", "Anna lives in Paris.")
    lines = out.splitlines()
    assert lines[0] == "entity\tlabel\tcharacters\tscore"
    assert [line.split("\t")[:3] for line in lines[1:]] == [
        [each["text"], each["label"], f"{each['start']}–{each['end']}"] for each in found["entities"]
    ]
    assert run("tag TAG", "")[:2] == (0, "entity\tlabel\tcharacters\tscore\n")


def test_answer(run, models, tmp_path, stdin):
    (paragraph,) = questions(1)
    question, context = paragraph["qas"][0]["question"], paragraph["context"]
    expected = said_of(run, "ANSWER", write_squad(tmp_path / "a.json", [paragraph]))
    expected["id"] = ""
    code, out, _ = run("answer ANSWER --json --top 100", "--question", question, "--context", context)
    assert (code, json.loads(out)) == (0, near(expected))
    stdin(context.encode())
    code, out, _ = run("answer ANSWER --context - --top 2", "--question", question)
    lines = out.splitlines()
    assert (code, lines[0]) == (0, "answer\tcharacters\tscore")
    assert [line.split("\t")[0] for line in lines[1:]] == [each["text"] for each in expected["candidates"][:2]]
    code, out, _ = run("answer ANSWER --question who --context", "")
    assert (code, out.splitlines()) == (0, ["the text has no answer; the likeliest places:", lines[0]])


def test_choose(run, tmp_path):
    (row,) = riddles(1)
    expected = said_of(run, "CHOOSE", write_json_lines(tmp_path / "a.jsonl", [row]))
    code, out, _ = run("choose CHOOSE --json", row["text"], *row["choices"])
    assert (code, json.loads(out)) == (0, near(expected))
    code, out, _ = run("choose CHOOSE", row["text"], *row["choices"])
    lines = [line.split("\t") for line in out.splitlines()]
    assert lines[0] == ["choice", "score"]
    assert lines[1][0] == expected["text"]
    assert {line[0] for line in lines[1:]} == set(row["choices"])


def test_a_column_that_is_named_alone_is_no_pair(run, models, tmp_path):
    rows = [{"sentence1": "the river", "sentence2": "was good"}]
    write_json_lines(tmp_path / "a.json", rows)  # and .json is JSON lines too
    run("embed ENCODER --input a.json --output one.npy --column text=sentence1")
    run("embed ENCODER --input a.json --output two.npy")
    np.testing.assert_allclose(np.load("one.npy"), ours(models).embed(["the river"]), atol=1e-6)
    np.testing.assert_allclose(np.load("two.npy"), ours(models).embed([("the river", "was good")]), atol=1e-6)


@pytest.mark.parametrize("pair", ["pair", "sentence2"])
def test_a_second_text_that_comes_late_is_refused_and_not_ignored(run, tmp_path, pair):
    write_json_lines(tmp_path / "a.jsonl", [{"text": "the river"}, {"text": "was"}, {"text": "good", pair: "anna"}])
    code, _, err = run("embed ENCODER --input a.jsonl --output v.npy")
    assert code == 2
    assert f"a.jsonl, line 3: column '{pair}' is a second text, and the first row has none" in err
    assert not (tmp_path / "v.npy").exists()
    assert run("embed ENCODER --input a.jsonl --output v.npy --column text=text")[0] == 0, "nobody asked for pairs"


@pytest.mark.parametrize(
    "line", ["embed ENCODER --input a.jsonl --output", "predict CLASSIFY --input a.jsonl --output"]
)
@pytest.mark.parametrize("name", ["a.jsonl", "./a.jsonl", "link.jsonl"])
def test_the_input_is_never_written_over(run, tmp_path, line, name):
    write_json_lines(tmp_path / "a.jsonl", [{"text": "the river"}])
    (tmp_path / "link.jsonl").symlink_to("a.jsonl")
    before = (tmp_path / "a.jsonl").read_bytes()
    code, _, err = run(f"{line} {name}")
    assert code == 2
    assert f"{name.removeprefix('./')}: is the input itself" in err
    assert (tmp_path / "a.jsonl").read_bytes() == before
    assert run(f"{line} b.jsonl")[0] == 0


def test_a_pipe_is_read_once(run, tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe.txt").write_text("the river\nwas good\n"))
    writer.start()
    code, _, err = run("embed ENCODER --input pipe.txt --output v.npy")
    writer.join()
    assert (code, err) == (0, "")
    assert len(np.load("v.npy")) == 2


def test_a_folder_with_steps_that_are_not_known_gives_no_vectors_in_silence(run, models, tmp_path):
    shutil.copytree(models / "encoder", tmp_path / "m")
    steps = [{"idx": n, "name": str(n), "path": path, "type": f"models.{kind}"} for n, (path, kind) in
             enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_LSTM", "LSTM")])]  # fmt: skip
    (tmp_path / "m" / "modules.json").write_text(json.dumps(steps))
    (tmp_path / "a.txt").write_text("the river\n")
    code, _, err = run("embed m --input a.txt --output v.npy")
    assert code == 2
    assert "LSTM" in err
    assert "--pool mean" in err
    assert not (tmp_path / "v.npy").exists()
    assert run("embed m --input a.txt --output v.npy --pool mean")[0] == 0


def test_dimensions_are_judged_before_the_work(run, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("the river\nwas good\n")
    monkeypatch.setattr("bertsmith.infer.engine.Engine.embed", None)
    code, _, err = run("whiten ENCODER --input a.txt --output w --dimensions 999")
    assert code == 2
    assert "dimensions must be from 1 to" in err


def test_a_whitened_pre_trained_model_goes_to_onnx_as_vectors(run, models, tmp_path):
    import onnxruntime

    (tmp_path / "a.txt").write_text("the river\nwas good\nin rome\n")
    assert run("whiten MLM --input a.txt --output w --normalize")[0] == 0
    assert run("convert w graph --to onnx")[0] == 0
    session = onnxruntime.InferenceSession("graph/model.onnx", providers=["CPUExecutionProvider"])
    ids = np.array([make_tokenizer().encode("the river").ids])
    fed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    found = session.run(["sentence_embedding"], fed)[0]
    np.testing.assert_allclose(found, load("w").embed(["the river"]), atol=1e-4)
