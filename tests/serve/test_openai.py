"""The official `openai` client against the service, as it comes; and what LangChain and LlamaIndex send through it."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from absence import absent
from bertsmith.serve.app import create_app
from bertsmith.serve.served import Served, ServedModels
from bertsmith.serve.settings import ServeSettings
from serve.conftest import SECONDS, listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI
    from openai import OpenAI

    from bertsmith.infer.engine import Engine

TEXTS = ["the river was good", "anna lives in paris."]


@pytest.fixture(scope="module")
def openai_client(make_app: Callable[..., FastAPI]) -> Iterator[OpenAI]:
    try:
        import openai
    except ImportError:
        absent("package openai is not installed (pip install 'bertsmith[dev]')")
    with (
        listening(make_app("filler", token="secret")) as port,
        openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="secret", timeout=SECONDS, max_retries=0
        ) as client,
    ):
        yield client


def test_it_gets_the_librarys_vectors(openai_client: OpenAI, small: dict[str, Engine]):
    filler = small["filler"]
    wanted = filler.embed(TEXTS, normalize=True)
    for given in (TEXTS, [filler.tokenizer.encode(text).ids for text in TEXTS]):
        found = openai_client.embeddings.create(model="filler", input=given)  # in base64, as it asks by itself
        assert np.allclose([one.embedding for one in found.data], wanted, atol=1e-6)
        assert found.model == "filler"
        assert found.usage.total_tokens == sum(len(filler.tokenizer.encode(text).ids) for text in TEXTS)
    plain = openai_client.embeddings.create(model="filler", input=TEXTS, encoding_format="float", user="me")
    assert np.allclose([one.embedding for one in plain.data], wanted, atol=1e-6)
    single = openai_client.embeddings.create(model="filler", input=TEXTS[0], dimensions=4)
    assert np.allclose(single.data[0].embedding, wanted[0, :4] / np.linalg.norm(wanted[0, :4]), atol=1e-6)


def test_it_lists_the_models(openai_client: OpenAI):
    assert [model.id for model in openai_client.models.list()] == ["filler"]


def test_it_understands_our_errors(openai_client: OpenAI):
    import openai

    with pytest.raises(openai.NotFoundError, match="no model is called"):
        openai_client.embeddings.create(model="text-embedding-3-small", input="a")
    with pytest.raises(openai.UnprocessableEntityError, match="dimensions"):
        openai_client.embeddings.create(model="filler", input="a", dimensions=100)
    with pytest.raises(openai.AuthenticationError):
        openai_client.with_options(api_key="wrong").models.list()


USUAL_NAME = "text-embedding-ada-002"  # the default of both libraries


@pytest.fixture(scope="module")
def under_their_name(small: dict[str, Engine]) -> Iterator[TestClient]:
    """As `bertsmith serve text-embedding-ada-002=filler` does."""
    models = ServedModels([Served(USUAL_NAME, small["filler"])])
    with TestClient(create_app(ServeSettings(models=("any",)), models), raise_server_exceptions=False) as asking:
        yield asking


def sent_by(client: TestClient, body: dict[str, Any]) -> np.ndarray:
    """The vectors for a body, which both libraries ask for in base64, as the `openai` client does by itself."""
    answer = client.post("/v1/embeddings", json=body, headers={"authorization": "Bearer unused"})
    assert answer.status_code == 200, answer.text
    rows = sorted(answer.json()["data"], key=lambda row: row["index"])
    return np.stack([np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in rows])


def test_what_langchain_sends_by_default_is_taken_as_pieces(under_their_name: TestClient, small: dict[str, Engine]):
    """Lists of OpenAI's numbers: the vectors are those of the pieces that have them here, and mean nothing."""
    pieces = [[9, 12, 7], [6]]
    found = sent_by(under_their_name, {"input": pieces, "model": USUAL_NAME, "encoding_format": "base64"})
    assert np.allclose(found, small["filler"].embed(pieces, normalize=True), atol=1e-6)
    beyond = {"input": [[100_000]], "model": USUAL_NAME, "encoding_format": "base64"}
    refused = under_their_name.post("/v1/embeddings", json=beyond)
    assert refused.status_code == 422
    assert refused.json()["error"]["field"] == "input"


def test_what_langchain_sends_when_told_and_llama_index_always(under_their_name: TestClient, small: dict[str, Engine]):
    """Lists of texts: LangChain with `check_embedding_ctx_length=False`, of one text too; and a single empty text."""
    for texts in (TEXTS, TEXTS[:1], ["two lines of text"]):
        found = sent_by(under_their_name, {"input": texts, "model": USUAL_NAME, "encoding_format": "base64"})
        assert np.allclose(found, small["filler"].embed(texts, normalize=True), atol=1e-6)
    empty = sent_by(under_their_name, {"input": "", "model": USUAL_NAME, "encoding_format": "base64"})
    assert np.allclose(empty, small["filler"].embed([""], normalize=True), atol=1e-6)


def test_the_bodies_above_are_what_the_official_client_makes_of_such_calls():
    """Both libraries call `embeddings.create(input=…, model=…)` and nothing else."""
    try:
        import httpx
        import openai
    except ImportError:
        absent("package openai is not installed (pip install 'bertsmith[dev]')")
    seen: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return httpx.Response(200, json={"object": "list", "model": "m", "data": [], "usage": {}})

    client = openai.OpenAI(
        api_key="x", base_url="http://a/v1", http_client=httpx.Client(transport=httpx.MockTransport(answer))
    )
    for given in ([[9, 12, 7], [6]], TEXTS):
        with contextlib.suppress(ValueError):  # it wants vectors
            client.embeddings.create(input=given, model=USUAL_NAME)
        assert seen[-1] == {"input": given, "model": USUAL_NAME, "encoding_format": "base64"}
