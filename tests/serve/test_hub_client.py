"""Hugging Face's own client, which speaks to text-embeddings-inference, and requests to the bare address."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from starlette.testclient import TestClient

from serve.page_models import serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

    from bertsmith.infer.engine import Engine

TEXTS = ["the river was good", "anna has the key"]


@pytest.fixture(autouse=True)
def on_line(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it takes 127.0.0.1 for the hub


def test_vectors_and_similarities(small: dict[str, Engine]):
    filler = small["filler"]
    expected = filler.embed(TEXTS, normalize=True)
    with serving({"filler": filler}, token="secret") as address:
        client = InferenceClient(address, token="secret")
        assert np.asarray(client.feature_extraction(TEXTS)) == pytest.approx(expected, abs=1e-5)
        assert client.feature_extraction(TEXTS[0], normalize=True, truncate=True)[0] == pytest.approx(
            expected[0], abs=1e-5
        )
        classes = InferenceClient(address, token="secret").text_classification
        with pytest.raises(HfHubHTTPError, match="parameters"):  # the first model gives vectors
            classes(TEXTS[0])
        found = InferenceClient(f"{address}/similarity", token="secret").sentence_similarity(TEXTS[0], TEXTS)
        assert found == pytest.approx((expected @ expected[0]).tolist(), abs=1e-5)
        with pytest.raises(HfHubHTTPError, match="401"):
            InferenceClient(address, token="wrong").feature_extraction(TEXTS[0])


def test_classes(small: dict[str, Engine]):
    (expected,) = small["critic"].classify([TEXTS[0]])
    with serving({"critic": small["critic"]}) as address:
        client = InferenceClient(address)
        found = client.text_classification(TEXTS[0])
        assert (found[0].label, found[0].score) == (expected["label"], pytest.approx(expected["score"], abs=1e-5))
        assert len(found) == len(small["critic"].task.labels)
        assert len(client.text_classification(TEXTS[0], top_k=1)) == 1


def asking(make_app: Callable[..., FastAPI], first: str, body: dict[str, Any]) -> Any:
    with TestClient(make_app(first, *({"filler", "critic", "grader"} - {first}))) as client:
        return client.post("/", json=body)


def test_the_bare_address_does_what_the_first_model_is_for(make_app, small):
    single, pair = small["critic"].classify([TEXTS[0], tuple(TEXTS)])
    for inputs, expected in ((TEXTS[0], single), ([TEXTS[0]], single), (TEXTS, pair), ([[TEXTS[0]]], [single])):
        found = asking(make_app, "critic", {"inputs": inputs}).json()
        best = found[0][0] if isinstance(expected, list) else found[0]
        expected = expected[0] if isinstance(expected, list) else expected
        assert (best["label"], best["score"]) == (expected["label"], pytest.approx(expected["score"], abs=1e-5))
    values = small["grader"].classify([(TEXTS[0], text) for text in TEXTS])
    ranked = asking(make_app, "grader", {"query": TEXTS[0], "texts": TEXTS, "raw_scores": True}).json()
    assert {one["index"]: one["score"] for one in ranked} == pytest.approx(
        {number: found["value"] for number, found in enumerate(values)}, abs=1e-5
    )


@pytest.mark.parametrize(
    ("model", "body", "words"),
    [
        ("filler", {"inputs": [["a", "b"]]}, "^inputs"),
        ("filler", {"inputs": 3}, "^inputs: "),
        ("filler", {"query": "a", "texts": 3}, "^texts: "),
        ("critic", {"inputs": [5, 6]}, "^inputs"),
        ("critic", {"inputs": ["a", "b", "c"]}, "^inputs"),
        ("critic", {"inputs": "a", "raw_scores": True}, "^raw_scores: of classes there are shares only"),
        ("critic", {"inputs": "a", "dimensions": 4}, "^dimensions: "),
        ("critic", {"inputs": "a", "parameters": {"top_k": 0}}, "^parameters.top_k: "),
    ],
)
def test_what_the_first_model_cannot_read_is_said(make_app, model, body, words):
    answer = asking(make_app, model, body)
    assert answer.status_code == 422
    assert re.search(words, answer.json()["error"]["message"])


def test_a_model_of_numbers_calls_itself_a_reranker(make_app):
    for name, kind in (("grader", "reranker"), ("critic", "classifier"), ("filler", "embedding")):
        with TestClient(make_app(name)) as client:
            assert list(client.get("/info").json()["model_type"]) == [kind]
