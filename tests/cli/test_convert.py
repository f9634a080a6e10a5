"""`bertsmith convert --to …` as a user meets it."""

from __future__ import annotations

import re
import sys

import onnxruntime
import pytest
import torch
from sentence_transformers import SentenceTransformer

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.model.pooling import Pooling
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from twins import random_model


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Tiny models on disk."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = Tokenizer.from_pieces([*SPECIAL_TOKENS, *"abcdefg", *(f"w{n}" for n in range(50))])
    for kind in ("encoder", "span"):
        write_bundle(folder / kind, Bundle(random_model(kind), tokenizer, 64), source="a test")
    layers = Bundle(random_model("encoder"), tokenizer, 64, pooling=Pooling(layers=(1,)))
    write_bundle(folder / "layers", layers, source="a test")
    return folder


def test_to_onnx(models, run, tmp_path):
    code, out, err = run("convert", models / "span", tmp_path / "new", "--to", "onnx")
    assert (code, err) == (0, "")
    assert "span model, " in out
    assert "largest difference" in out
    assert "int8" not in out
    names = ["README.md", "config.json", "model.onnx", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == names
    session = onnxruntime.InferenceSession(tmp_path / "new/model.onnx", providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["start_logits", "end_logits"]
    assert [given.shape for given in session.get_inputs()] == 3 * [["batch", "length"]]
    code, _, err = run("convert", models / "span", tmp_path / "new", "--to", "onnx")
    assert code == 2
    assert "exists already" in err


def test_to_int8_says_what_it_costs(models, run, tmp_path):
    code, out, err = run("convert", models / "encoder", tmp_path / "new", "--to", "onnx", "--int8")
    assert (code, err) == (0, "")
    assert re.search(r"int8 against float32: cosine of sentence_embedding [01]\.\d{4} in the mean and [01]\.\d{4}", out)


def test_to_sentence_transformers(models, run, tmp_path):
    code, out, err = run("convert", models / "encoder", tmp_path / "new", "--to", "sentence-transformers")
    assert (code, err) == (0, "")
    assert "encoder model, " in out
    vectors = SentenceTransformer(str(tmp_path / "new"), device="cpu", local_files_only=True).encode(["a b", "w7"])
    assert vectors.shape == (2, 24)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["encoder", "x", "--to", "tflite"], "--to"),
        (["encoder", "x", "--int8"], "--int8 goes with --to onnx"),
        (["span", "x", "--to", "sentence-transformers"], "'span' makes no sentence vectors"),
        (["layers", "x", "--to", "sentence-transformers"], "of layers 1; mean, cls, max of the last layer"),
        (["nothing", "x", "--to", "onnx"], "nothing"),
    ],
)
def test_wrong_input_is_code_2_and_nothing_is_written(arguments, said, models, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("convert", models / arguments[0], *arguments[1:])
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["onnx", "onnxruntime"])
def test_a_missing_extra_says_how_to_get_it(name, models, run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    code, _, err = run("convert", models / "encoder", tmp_path / "new", "--to", "onnx")
    assert code == 2
    assert f"--to onnx needs {name}: pip install 'bertsmith[onnx]'" in err
    assert list(tmp_path.iterdir()) == []


def test_other_layouts_need_no_extra(models, run, tmp_path, monkeypatch):
    for name in ("onnx", "onnxruntime", "sentence_transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    for to in ("hf", "sentence-transformers"):
        code, _, err = run("convert", models / "encoder", tmp_path / to, "--to", to)
        assert (code, err) == (0, "")


def test_a_difference_is_code_1(models, run, tmp_path, monkeypatch):
    from bertsmith.bundle import onnx

    monkeypatch.setattr(onnx, "_finish", lambda vectors, *_: vectors + torch.rand(()))
    code, out, err = run("convert", models / "encoder", tmp_path / "new", "--to", "onnx")
    assert (code, out) == (1, "")
    assert "is not the model: sentence_embedding differs" in err
    assert list(tmp_path.iterdir()) == []
