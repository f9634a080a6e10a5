"""The engine against a plain computation: order, batching, pooling, fill-in, wrong input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertsmith.bundle.folder import Bundle
from bertsmith.errors import InputError, TokenizerError
from bertsmith.infer import pipeline
from bertsmith.infer.engine import Engine
from bertsmith.tasks import running
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from twins import TINY, random_model

TEXTS = ["a", "", "b c d e f", "a b", "c " * 90, "d e", "b c d e f"]


def make_engine(kind="encoder"):
    tokenizer = Tokenizer.from_pieces([*SPECIAL_TOKENS, "a", "b", "c", "d", "e", "f", *(f"w{n}" for n in range(50))])
    return Engine(Bundle(random_model(kind), tokenizer, TINY.max_position_embeddings), device="cpu")


def alone(engine, text, pool):
    """One text, one pass, pooled by hand."""
    ids = torch.tensor(engine.tokenizer.encode(text, max_length=64).ids)
    with torch.no_grad():
        rows = engine.model.encoder(ids, None, torch.tensor([len(ids)])).rows
    return {"mean": rows.mean(0), "max": rows.max(0).values, "cls": rows[0]}[pool]


@pytest.mark.parametrize("budget", [1, 20, 10_000])
@pytest.mark.parametrize("pool", ["mean", "max", "cls"])
def test_vectors_are_those_of_each_text_alone_in_the_order_given(pool, budget, monkeypatch):
    monkeypatch.setattr(running, "_CPU_BUDGET", budget)
    monkeypatch.setattr(pipeline, "_INPUTS_AT_ONCE", 3)
    engine = make_engine()
    seen = []
    vectors = engine.embed(TEXTS, pool=pool, progress=seen.append)
    assert sum(seen) == len(TEXTS)
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(vector, alone(engine, text, pool), atol=1e-5)


def test_normalize_gives_unit_length_and_max_length_cuts():
    engine = make_engine()
    np.testing.assert_allclose(np.linalg.norm(engine.embed(TEXTS, normalize=True), axis=1), 1, rtol=1e-5)
    short = engine.embed(["a b c d"], max_length=4)
    np.testing.assert_allclose(short[0], alone(engine, "a b", "mean"), atol=1e-5)


def test_no_texts_give_no_vectors():
    assert make_engine().embed([]).shape == (0, TINY.hidden_size)


def test_wrong_input_is_named():
    engine = make_engine()
    with pytest.raises(InputError, match="list of texts"):
        engine.embed("one text")
    with pytest.raises(InputError, match="64 positions"):
        engine.embed(["a"], max_length=65)
    with pytest.raises(InputError, match="no room"):
        engine.embed(["a"], max_length=2)
    with pytest.raises(TokenizerError, match="surrogate"):
        engine.embed(["a\ud800"])
    with pytest.raises(TokenizerError, match="no tokenizer"):
        Engine(Bundle(random_model("encoder"), None, 64))


@pytest.mark.parametrize("kind", ["mlm", "pretraining"])
def test_fill_gives_the_softmax_of_the_head_for_each_mask_in_order(kind):
    engine = make_engine(kind)
    text = "a [MASK] b [MASK]"
    gaps = engine.fill(text, top=4)
    ids = torch.tensor(engine.tokenizer.encode(text).ids)
    masked = (ids == engine.tokenizer.mask_id).nonzero()[:, 0]
    with torch.no_grad():
        logits = engine.model(ids, None, torch.tensor([len(ids)]), masked)
    expected = (logits if kind == "mlm" else logits.mlm).softmax(-1)[:, : engine.tokenizer.vocab_size]
    assert len(gaps) == 2
    for gap, row in zip(gaps, expected, strict=True):
        scores = [candidate.score for candidate in gap]
        assert scores == sorted(scores, reverse=True)
        np.testing.assert_allclose(scores, row.topk(4).values, rtol=1e-5)
        assert gap[0].token == engine.tokenizer.piece(int(row.argmax()))


def test_fill_says_what_is_wrong():
    with pytest.raises(InputError, match="no masked-word head"):
        make_engine().fill("a [MASK]")
    engine = make_engine("mlm")
    with pytest.raises(InputError, match=r"write \[MASK\]"):
        engine.fill("a b")
    with pytest.raises(InputError, match="64 at most"):
        engine.fill("a " * 70 + "[MASK]")
    for top in (0, 62):
        with pytest.raises(InputError, match="top must be"):
            engine.fill("[MASK]", top=top)
