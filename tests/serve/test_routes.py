"""Every route against the library's own results, and OpenAPI against the answers."""

from __future__ import annotations

import base64
import math
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from bertsmith.serve.routes import routes

if TYPE_CHECKING:
    from bertsmith.infer.engine import Engine


TEXTS = ["the river was good", "anna lives in paris.", "", "北京 is great", "stone " * 30]


LONG = "anna lives in oslo, boris lives in rome. " * 20


def close(found: Any, wanted: Any) -> bool:
    """The same JSON, numbers to 1e-5."""
    if isinstance(wanted, np.ndarray):
        wanted = wanted.tolist()
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict)
            and found.keys() == wanted.keys()
            and all(close(found[k], wanted[k]) for k in wanted)
        )
    if isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(close, found, wanted))
    if isinstance(wanted, float):
        return found == pytest.approx(wanted, abs=1e-5)
    return found == wanted


def unpacked(text: str, shape: tuple[int, ...] = (-1,)) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape)


def labels(prediction: dict[str, Any]) -> list[dict[str, Any]]:
    """As `/predict` has them."""
    scores = prediction.get("scores") or {"value": prediction["value"]}
    return [{"label": label, "score": score} for label, score in sorted(scores.items(), key=lambda pair: -pair[1])]


def nearby(engine: Engine, word: str, top: int) -> list[list[dict[str, Any]]]:
    return [[one._asdict() for one in engine.neighbours([word], top=top)[0]]]


def fills(engine: Engine, text: str, top: int) -> list[dict[str, Any]]:
    (gaps,) = engine.fill_many([text], top=top)
    return [
        {"start": gap.start, "stop": gap.stop, "candidates": [{"token": t, "score": s} for t, s in gap.candidates]}
        for gap in gaps
    ]


def answered(found: dict[str, Any], top: int) -> dict[str, Any]:
    best = found["candidates"][0]
    return {
        "answer": found["answer"],
        "score": best["score"],
        "start": best["start"],
        "end": best["end"],
        "null_margin": found["null_margin"],
        "candidates": found["candidates"][:top],
    }


def cut(vectors: np.ndarray, size: int) -> np.ndarray:
    return vectors[:, :size] / np.linalg.norm(vectors[:, :size], axis=1, keepdims=True)


@pytest.fixture(scope="module")
def asked(small: dict[str, Engine]) -> list[tuple[str, dict[str, Any], Any]]:
    """A route, what it is asked, and what the library says."""
    filler, critic, grader = small["filler"], small["critic"], small["grader"]
    unit, plain = filler.embed(TEXTS, normalize=True), filler.embed(TEXTS, normalize=False)
    pieces = filler.tokenizer.encode(TEXTS[0]).ids
    gaps = ["the [MASK] was [MASK]", f"[MASK] {LONG[:80]}"]
    single = labels(critic.classify([TEXTS[0]])[0])
    pairs = [labels(found) for found in critic.classify([("who is anna", TEXTS[1]), (TEXTS[1], TEXTS[4])])]
    numbers = grader.classify([(TEXTS[0], text) for text in TEXTS])
    order = sorted(range(len(TEXTS)), key=lambda number: -numbers[number]["value"])
    raw = [{"index": number, "score": numbers[number]["value"]} for number in order]
    ranked = [{"index": one["index"], "score": 1 / (1 + math.exp(-one["score"])), "text": TEXTS[one["index"]]}
              for one in raw]  # fmt: skip
    cosines = unit[1:] @ unit[0]
    nearest = [{"index": int(n), "score": float(cosines[n])} for n in np.argsort(-cosines)]
    picked = small["chooser"].choose("where is the key", ["the good river", "the bad stone", LONG])
    return [
        ("/embed", {"inputs": TEXTS}, unit),
        ("/embed", {"inputs": TEXTS[0]}, unit[:1]),
        ("/embed", {"inputs": TEXTS, "normalize": False}, plain),
        ("/embed", {"inputs": TEXTS, "truncate": None, "prompt_name": None}, unit),
        ("/embed", {"inputs": TEXTS, "dimensions": 5}, cut(unit, 5)),
        ("/embed", {"inputs": TEXTS, "dimensions": 5, "normalize": False}, plain[:, :5]),
        ("/embed", {"inputs": pieces}, unit[:1]),
        ("/embed", {"inputs": [pieces, pieces[1:-1]]}, unit[[0, 0]]),
        ("/embed", {"inputs": TEXTS, "model": "critic"}, critic.embed(TEXTS, normalize=True)),
        ("/predict", {"inputs": TEXTS[0]}, single),
        ("/predict", {"inputs": [[TEXTS[0]]], "raw_scores": False, "truncate": True}, [single]),
        ("/predict", {"inputs": [TEXTS[0]], "truncate": None}, single),
        ("/predict", {"inputs": TEXTS[0], "truncate": False}, single),
        ("/predict", {"inputs": ["who is anna", TEXTS[1]]}, pairs[0]),
        ("/predict", {"inputs": [["who is anna", TEXTS[1]], [TEXTS[1], TEXTS[4]]]}, pairs),
        ("/predict", {"inputs": [[TEXTS[3]]], "model": "grader"}, [labels(grader.classify([TEXTS[3]])[0])]),
        ("/rerank", {"query": TEXTS[0], "texts": TEXTS, "return_text": True}, ranked),
        ("/rerank", {"query": TEXTS[0], "texts": TEXTS, "raw_scores": True, "truncate": None}, raw),
        ("/rerank", {"query": TEXTS[0], "texts": TEXTS[1:], "model": "filler"}, nearest),
        ("/similarity", {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}}, cosines),
        ("/similarity", {"inputs": {"sentences": TEXTS}, "parameters": {}}, unit @ unit.T),
        ("/fill", {"inputs": gaps[0]}, [fills(filler, gaps[0], 5)]),
        ("/fill", {"inputs": gaps, "top_k": 2.0}, [fills(filler, text, 2) for text in gaps]),
        ("/neighbours", {"inputs": "river", "top_k": 3}, nearby(filler, "river", 3)),
        ("/neighbours", {"inputs": ["river", "anna paris"], "model": "critic"},
         nearby(critic, "river", 10) + nearby(critic, "anna paris", 10)),
        ("/tag", {"inputs": TEXTS}, small["finder"].tag(TEXTS)),
        ("/tag", {"inputs": LONG}, small["finder"].tag([LONG])),
        ("/answer", {"question": "where is anna", "context": LONG, "top_k": 3},
         answered(small["reader"].answer("where is anna", LONG), 3)),
        ("/choose", {"text": "where is the key", "choices": ["the good river", "the bad stone", LONG]}, picked),
    ]  # fmt: skip


def test_every_route_says_what_the_library_says(client: TestClient, asked: list[tuple[str, dict[str, Any], Any]]):
    for path, body, wanted in asked:
        answer = client.post(path, json=body)
        assert answer.status_code == 200, (path, answer.text)
        assert close(answer.json(), wanted), (path, body)


def test_it_says_the_same_when_all_ask_at_once(client: TestClient, asked: list[tuple[str, dict[str, Any], Any]]):
    mixed = asked * 4
    random.Random(0).shuffle(mixed)
    with ThreadPoolExecutor(12) as clients:
        answers = list(clients.map(lambda one: client.post(one[0], json=one[1]), mixed))
    for answer, (path, body, wanted) in zip(answers, mixed, strict=True):
        assert answer.status_code == 200, (path, answer.text)
        assert close(answer.json(), wanted), (path, body)


def test_vectors_as_openai_has_them(client: TestClient, small: dict[str, Engine]):
    filler = small["filler"]
    unit = filler.embed(TEXTS, normalize=True)
    whole = client.post("/v1/embeddings", json={"model": "filler", "input": TEXTS, "user": "me", "new": 1}).json()
    assert whole["object"] == "list"
    assert whole["model"] == "filler"
    assert [one["index"] for one in whole["data"]] == list(range(len(TEXTS)))
    assert close([one["embedding"] for one in whole["data"]], unit)
    count = sum(len(filler.tokenizer.encode(text, max_length=64).ids) for text in TEXTS)
    assert whole["usage"] == {"prompt_tokens": count, "total_tokens": count}
    body = {"input": TEXTS, "encoding_format": "base64", "dimensions": 4}
    packed = client.post("/v1/embeddings", json=body).json()
    assert close([unpacked(one["embedding"]) for one in packed["data"]], cut(unit, 4))
    (single,) = client.post("/v1/embeddings", json={"input": filler.tokenizer.encode(TEXTS[0]).ids}).json()["data"]
    assert close(single["embedding"], unit[0])


def test_pieces_have_their_characters(client: TestClient, small: dict[str, Engine]):
    text, pair = "The Rivers, 北京!", "anna"
    (row,) = client.post("/tokenize", json={"inputs": text, "pair": pair}).json()
    wanted = small["filler"].tokenizer.encode(text, pair)
    assert [one["id"] for one in row] == wanted.ids
    assert [one["text"] for one in row] == wanted.tokens
    assert [one["segment"] for one in row] == wanted.type_ids
    assert [one["text"] for one in row if one["special"]] == ["[CLS]", "[SEP]", "[SEP]"]
    assert all((one["start"] is None) == one["special"] for one in row)
    inner = [one for one in row if not one["special"] and one["segment"] == 0]
    assert [text[one["start"] : one["stop"]].lower() for one in inner] == [
        one["text"].removeprefix("##") for one in inner
    ]
    plain = client.post("/tokenize", json={"inputs": [text, pair], "add_special_tokens": False}).json()
    assert plain[0] == inner
    assert [one["text"] for one in plain[1]] == ["anna"]


def test_attention_is_the_librarys(client: TestClient, small: dict[str, Engine]):
    for pair in (None, "where is boris"):
        found = client.post("/attention", json={"inputs": TEXTS[1], "pair": pair, "model": "finder"}).json()
        wanted = small["finder"].attention(TEXTS[1], pair)
        shape = (found["layers"], found["heads"], found["size"], found["size"])
        assert shape == wanted.maps.shape
        assert np.allclose(unpacked(found["weights"], shape), wanted.maps, atol=1e-5)
        assert [one["text"] for one in found["tokens"]] == wanted.encoding.tokens


def test_a_text_without_an_answer_has_none(client: TestClient):
    found = client.post("/answer", json={"question": "where", "context": " "}).json()
    assert (found["answer"], found["start"], found["end"], found["score"]) == ("", None, None, None)


def test_info_names_all_models_and_what_they_can(client: TestClient, small: dict[str, Engine]):
    found = client.get("/info").json()
    assert found["model_id"] == "filler"
    assert found["max_input_length"] == 64
    models = {model["name"]: model for model in found["models"]}
    assert list(models) == list(small)
    for name, task in {"critic": "classify", "grader": "regress", "finder": "tag", "reader": "answer"}.items():
        assert models[name]["task"] == task
        assert task in models[name]["can"]
        assert {"embed", "similarity", "tokenize", "attention"} <= set(models[name]["can"])
    assert "fill" in models["filler"]["can"]
    assert models["critic"]["labels"] == ["bad", "dull", "good"]
    assert [one["id"] for one in client.get("/v1/models").json()["data"]] == list(small)
    assert client.get("/health").json() == {}


def test_info_says_how_much_a_task_reads(make_app):
    with TestClient(make_app("critic")) as asking:
        most = asking.get("/info").json()["max_input_length"]
        assert most == 48
        for words, status in ((most - 2, 200), (most - 1, 413)):
            body = {"inputs": " ".join(["river"] * words), "truncate": False}
            assert asking.post("/predict", json=body).status_code == status


def test_openapi_has_an_example_for_every_body_and_the_answers_are_as_it_says(client: TestClient):
    schema = client.get("/openapi.json").json()
    replies = {route.path: TypeAdapter(route.response_model) for route in routes.routes if isinstance(route, APIRoute)}
    bodies = {name: body for name, body in schema["components"]["schemas"].items() if name.endswith("Body")}
    posts = {path: methods["post"] for path, methods in schema["paths"].items() if "post" in methods}
    assert len(posts) == len(bodies) == 12
    for path, post in posts.items():
        name = post["requestBody"]["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[-1]
        for example in bodies[name]["examples"]:
            answer = client.post(path, json=example)
            assert answer.status_code == 200, path
            replies[path].validate_json(answer.content)  # no field more, none less
        assert post["responses"]["200"]["content"]["application/json"]["schema"]
        assert {"200", "401", "404", "408", "413", "422", "429", "503"} <= post["responses"].keys()
