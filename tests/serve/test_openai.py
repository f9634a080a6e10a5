"""The official `openai` client against the service, as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from absence import absent
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
