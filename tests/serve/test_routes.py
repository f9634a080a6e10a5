"""Every route against the library's own results, and every kind of wrong input against its status and field."""

from __future__ import annotations

import base64
import json
import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from bertsmith.serve.batching import Pace
from bertsmith.serve.routes import routes
from bertsmith.tasks.tag import Tag
from bertsmith.vocab.tokenizer import Tokenizer
from serve.conftest import SECONDS, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

    from bertsmith.infer.engine import Engine

TEXTS = ["the river was good", "anna lives in paris.", "", "北京 is great", "stone " * 30]
LONG = "anna lives in oslo, boris lives in rome. " * 20
JSON = {"content-type": "application/json"}


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


def test_as_many_texts_as_info_says_beside_a_query(client: TestClient):
    info = client.get("/info").json()
    most = info["max_client_batch_size"]
    for texts, status in ((["a"] * most, 200), (["a"] * (most + 1), 413)):
        sentences = {"source_sentence": "b", "sentences": texts}
        asked = [("/rerank", {"query": "b", "texts": texts, "model": "filler"}), ("/similarity", {"inputs": sentences})]
        assert {client.post(path, json=body).status_code for path, body in asked} == {status}
    assert {"max_concurrent_requests", "tokenization_workers"} <= info.keys()


def test_info_says_how_much_a_task_reads(make_app):
    with TestClient(make_app("critic")) as asking:
        most = asking.get("/info").json()["max_input_length"]
        assert most == 48
        for words, status in ((most - 2, 200), (most - 1, 413)):
            body = {"inputs": " ".join(["river"] * words), "truncate": False}
            assert asking.post("/predict", json=body).status_code == status


def test_more_than_can_be_read_in_time_is_refused_at_once(make_app):
    with TestClient(make_app("filler"), raise_server_exceptions=False) as asking:
        service = asking.app.state.service
        (served,) = service.models.all
        service.batcher.paces[served.engine.model] = Pace(0.5, 1.0)  # about 15 in all, and it may be twice as fast
        answer = asking.post("/embed", json={"inputs": ["the river was good"] * 10})
        assert answer.status_code == 413
        assert "within 30 seconds about 15 can be read here" in answer.json()["error"]["message"]
        assert asking.post("/embed", json={"inputs": "the river was good"}).status_code == 200


def test_a_query_beside_each_of_many_texts_counts_each_time(client: TestClient):
    """A body that is small may ask for a product that is not."""
    many = {"texts": ["a"] * 1000, "query": "a " * 50_000, "model": "grader"}
    for path, body in (
        ("/rerank", many),
        ("/rerank", {**many, "truncate": False}),
        ("/choose", {"text": "a " * 50_000, "choices": ["a"] * 100}),
    ):
        answer = client.post(path, json=body)
        assert answer.status_code == 413, path
        assert "characters, each pair counted whole" in answer.json()["error"]["message"]


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


# A route, a body, the status, and the field that the error names.
WRONG: list[tuple[str, Any, int, str | None]] = [
    ("/embed", {}, 422, "inputs"),
    ("/embed", [], 422, None),
    ("/embed", "text", 422, None),
    ("/embed", {"inputs": None}, 422, "inputs"),
    ("/embed", {"inputs": 3}, 422, "inputs"),
    ("/embed", {"inputs": {"text": "a"}}, 422, "inputs"),
    ("/embed", {"inputs": []}, 422, "inputs"),
    ("/embed", {"inputs": [[]]}, 422, "inputs.0"),
    ("/embed", {"inputs": [["a"]]}, 422, "inputs.0.0"),
    ("/embed", {"inputs": [[[1]]]}, 422, "inputs.0.0"),
    ("/embed", {"inputs": ["a", 1]}, 422, "inputs.1"),
    ("/embed", {"inputs": ["1", 2]}, 422, "inputs.1"),
    ("/embed", {"inputs": [True, False]}, 422, "inputs.0"),
    ("/embed", {"inputs": [1.5]}, 422, "inputs.0"),
    ("/embed", {"inputs": [-1]}, 422, "inputs.0"),
    ("/embed", {"inputs": [1, 170_000]}, 422, "inputs"),
    ("/embed", {"inputs": "\ud800"}, 422, "inputs"),
    ("/embed", {"inputs": ["a", "b \udfff c"]}, 422, "inputs.1"),
    ("/embed", {"inputs": "a", "\ud800": 1}, 422, None),
    ("/embed", {"inputs": "a", "surprise": 1}, 422, "surprise"),
    ("/embed", {"inputs": "a", "str": 1}, 422, "str"),
    ("/embed", {"inputs": "a", "normalize": "yes"}, 422, "normalize"),
    ("/embed", {"inputs": "a", "normalize": 1}, 422, "normalize"),
    ("/embed", {"inputs": "a", "dimensions": 0}, 422, "dimensions"),
    ("/embed", {"inputs": "a", "dimensions": "4"}, 422, "dimensions"),
    ("/embed", {"inputs": "a", "dimensions": 17}, 422, "dimensions"),
    ("/embed", {"inputs": "a", "model": "nobody"}, 404, "model"),
    ("/embed", {"inputs": "a", "model": "\ud800"}, 404, "model"),
    ("/embed", {"inputs": "a", "model": 3}, 422, "model"),
    ("/embed", {"inputs": LONG, "truncate": False}, 413, None),
    ("/embed", {"inputs": [7] * 63, "truncate": False}, 413, None),
    ("/embed", {"inputs": ["a"] * 1025}, 413, None),
    ("/v1/embeddings", {"input": [], "model": "filler"}, 422, "input"),
    ("/v1/embeddings", {"input": [10**6], "model": "filler"}, 422, "input"),
    ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}, 422, "encoding_format"),
    ("/v1/embeddings", {"input": "a", "dimensions": 17}, 422, "dimensions"),
    ("/v1/embeddings", {"input": "a", "model": "text-embedding-3-small"}, 404, "model"),
    ("/predict", {"inputs": ["a", "b", "c"]}, 422, "inputs"),
    ("/predict", {"inputs": [["a", "b", "c"]]}, 422, "inputs.0"),
    ("/predict", {"inputs": "a", "model": "filler"}, 404, "model"),
    ("/predict", {"inputs": "a", "raw_scores": True}, 422, "raw_scores"),
    ("/predict", {"inputs": "a", "raw_scores": 0}, 422, "raw_scores"),
    ("/embed", {"inputs": "a", "prompt_name": "query"}, 422, "prompt_name"),
    ("/similarity", {"inputs": {"sentences": ["a", LONG]}, "parameters": {"truncate": False}}, 413, None),
    ("/similarity", {"inputs": {"sentences": ["a"]}, "parameters": {"truncate": 0}}, 422, "parameters.truncate"),
    ("/predict", {"inputs": [["a"], ["a", LONG]], "truncate": False}, 413, None),
    ("/rerank", {"query": "a", "texts": ["a", LONG], "truncate": False}, 413, None),
    ("/rerank", {"query": "a", "texts": ["a"], "truncate": 1}, 422, "truncate"),
    ("/embed", {"inputs": "a", "truncation_direction": "Left"}, 422, "truncation_direction"),
    ("/predict", {"inputs": [["a"]] * 1025}, 413, None),
    ("/rerank", {"query": "a"}, 422, "texts"),
    ("/rerank", {"query": "a", "texts": []}, 422, "texts"),
    ("/rerank", {"query": ["a"], "texts": ["a"]}, 422, "query"),
    ("/rerank", {"query": "a", "texts": ["a"] * 1025}, 413, None),
    ("/similarity", {"inputs": {"sentences": "a"}}, 422, "inputs.sentences"),
    ("/similarity", {"inputs": {"sentences": ["a", None]}}, 422, "inputs.sentences.1"),
    ("/similarity", {"inputs": {"sentences": ["a"], "x": 1}}, 422, "inputs.x"),
    ("/similarity", {"inputs": ["a"]}, 422, "inputs"),
    ("/tokenize", {"inputs": ["a"], "pair": "b"}, 422, "pair"),
    ("/tokenize", {"inputs": "a", "pair": "b", "add_special_tokens": False}, 422, "pair"),
    ("/tokenize", {"inputs": ["a"] * 1025}, 413, None),
    ("/tokenize", {"inputs": "." * 140_000}, 413, None),
    ("/attention", {"inputs": "a " * 200}, 413, None),
    ("/attention", {"inputs": ["a"]}, 422, "inputs"),
    ("/neighbours", {"inputs": ""}, 422, "inputs"),
    ("/neighbours", {"inputs": ["river", "\u0f04\u1234"]}, 422, "inputs"),
    ("/neighbours", {"inputs": "a " * 33}, 422, "inputs"),
    ("/neighbours", {"inputs": "a", "top_k": 101}, 422, "top_k"),
    ("/fill", {"inputs": "no gap"}, 422, "inputs"),
    ("/fill", {"inputs": "[MASK] " * 200}, 422, "inputs"),
    ("/fill", {"inputs": ["[MASK] " * 50] * 50, "top_k": 100}, 413, None),
    ("/fill", {"inputs": "[MASK]", "top_k": 0}, 422, "top_k"),
    ("/fill", {"inputs": "[MASK]", "top_k": 101}, 422, "top_k"),
    ("/fill", {"inputs": "[MASK]", "top_k": "5"}, 422, "top_k"),
    ("/fill", {"inputs": "[MASK]", "top_k": 2.5}, 422, "top_k"),
    ("/fill", {"inputs": "[MASK]", "top_k": True}, 422, "top_k"),
    ("/fill", {"inputs": "[MASK]", "top_k": float("inf")}, 422, "top_k"),
    ("/fill", {"inputs": "[MASK]", "model": "critic"}, 404, "model"),
    ("/tag", {"inputs": [["a"]]}, 422, "inputs.0"),
    ("/tag", {"inputs": "a \ud800"}, 422, "inputs"),
    ("/tag", {"inputs": "a", "model": "reader"}, 404, "model"),
    ("/tag", {"inputs": ["a"] * 1025}, 413, None),
    ("/answer", {"question": "a"}, 422, "context"),
    ("/answer", {"question": "a", "context": ["b"]}, 422, "context"),
    ("/answer", {"question": "a", "context": "." * 140_000}, 413, None),
    ("/choose", {"text": "a", "choices": ["b"]}, 422, "choices"),
    ("/choose", {"text": "a", "choices": ["b"] * 101}, 422, "choices"),
    ("/choose", {"text": "a", "choices": ["b", 2]}, 422, "choices.1"),
]


@pytest.mark.parametrize(("path", "body", "status", "field"), WRONG)
def test_what_is_wrong_has_its_status_and_its_field(client: TestClient, path, body, status, field):
    answer = client.post(path, content=json.dumps(body), headers=JSON)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "field"}
    assert error["field"] == field
    assert error["message"]
    assert error["type"] == {404: "not_found", 413: "too_large", 422: "invalid_request_error"}[status]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"inputs": "\xff"}',
        b"[" * 100_000,
        b'{"inputs": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"inputs": "a", "dimensions": ' + b"9" * 5000 + b"}",
        b'{"inputs": NaN}',
        b"null",
    ],
    ids=["empty", "cut", "not UTF-8", "not UTF-8 inside", "deep and cut", "deep", "a huge number", "NaN", "null"],
)
def test_a_body_that_is_not_json_is_422(client: TestClient, content: bytes):
    answer = client.post("/embed", content=content, headers=JSON)
    assert answer.status_code == 422
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_no_route_and_no_such_method(client: TestClient):
    assert client.get("/nowhere").json()["error"]["type"] == "not_found"
    refused = client.get("/embed")
    assert refused.status_code == 405
    assert refused.headers["allow"] == "POST"
    for path in ("/page/../app.py", "/page/%2e%2e%2fapp.py", "/page/..%2f..%2fapp.py", "/page/none.js"):
        assert client.get(path).status_code == 404, path


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": [1.5] * 100_000}),
        ("/embed", {"inputs": [[1.5]] * 100_000}),
        ("/predict", {"inputs": [[1]] * 100_000}),
        ("/similarity", {"inputs": {"sentences": [1] * 100_000}}),
        ("/embed", {"inputs": "a", **{f"{n}": 1 for n in range(50_000)}}),
        ("/similarity", {"inputs": {f"{n}": 1 for n in range(50_000)}}),
    ],
)
def test_a_body_wrong_in_every_place_is_refused_as_fast_as_one(client: TestClient, path, body, monkeypatch):
    """Each wrong place was once an error of its own: a minute and gigabytes for one body of allowed size."""
    import bertsmith.serve.answers as answers

    seen: list[Any] = []
    vague = answers._how_vague
    monkeypatch.setattr(answers, "_how_vague", lambda error: seen.append(error) or vague(error))
    answer = client.post(path, json=body)
    assert answer.status_code == 422
    assert len(seen) < 10
    assert len(answer.content) < 1000


def test_a_name_that_is_not_a_field_is_not_sent_back_whole(client: TestClient):
    answer = client.post("/embed", json={"inputs": "a", "x" * 100_000: 1})
    assert answer.status_code == 422
    assert len(answer.content) < 1000


def test_a_failure_inside_says_nothing_of_the_inside(client: TestClient, monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise RuntimeError("/secret/path")

    monkeypatch.setattr("bertsmith.infer.programs.EmbedProgram.forward", fail)
    answer = client.post("/embed", json={"inputs": "a"})
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "internal_error"
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "/secret/path" in caplog.text, "the log has it"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert 'bertsmith_requests_total{route="/embed",status="500"} 1.0' in client.get("/metrics").text
    monkeypatch.undo()
    assert client.post("/embed", json={"inputs": "a"}).status_code == 200, "the service goes on"


@pytest.fixture
def tight(make_app: Callable[..., FastAPI]) -> Iterator[TestClient]:
    """A service of few texts and tokens, less than its own warming up takes."""
    limits = {"texts": 3, "tokens": 512, "body": 20_000}
    with TestClient(make_app("filler", limits=limits), raise_server_exceptions=False) as asking:
        yield asking


def test_limits_are_kept_and_do_not_keep_the_service_from_starting(tight: TestClient):
    assert tight.post("/embed", json={"inputs": ["a"] * 3}).status_code == 200
    assert tight.post("/embed", json={"inputs": ["a"] * 4}).status_code == 413
    assert tight.post("/tokenize", json={"inputs": "a " * 510}).status_code == 200
    assert tight.post("/tokenize", json={"inputs": "a " * 511}).status_code == 413
    assert tight.post("/embed", json={"inputs": "a" * 20_000}).status_code == 413


def test_no_answer_in_time_is_503_and_leaves_the_queue(tight: TestClient, gate):
    service, limits = tight.app.state.service, tight.app.state.service.limits
    service.limits = limits.model_copy(update={"timeout": 0.3})
    held = gate()
    batcher = tight.app.state.service.batcher
    with ThreadPoolExecutor(2) as clients:
        waiting = [clients.submit(tight.post, "/embed", json={"inputs": "a"}) for _ in range(2)]
        answers = [one.result(SECONDS) for one in waiting]
    assert [answer.status_code for answer in answers] == [503, 503]
    assert answers[0].json()["error"]["type"] == "timeout"
    assert batcher.waiting_tokens == 0
    held.opened.set()
    service.limits = limits
    assert tight.post("/embed", json={"inputs": "a"}).status_code == 200


def test_a_full_queue_is_429_before_the_body_is_read(client: TestClient, gate):
    held = gate()
    batcher = client.app.state.service.batcher
    before = dict(batcher.paces)
    batcher.paces.update(dict.fromkeys(before, Pace(100.0, 1.0)))
    with ThreadPoolExecutor(80) as clients:
        first = clients.submit(client.post, "/embed", json={"inputs": "a"})
        assert held.reached.wait(SECONDS)
        one = {"inputs": "stone " * 62}
        waiting = [clients.submit(client.post, "/embed", json=one) for _ in range(batcher.budget // 64)]
        until(lambda: batcher.waiting_tokens >= batcher.budget - 256)
        refused = client.post("/embed", content=b"{ this is no JSON")
        assert refused.status_code == 429
        assert refused.headers["retry-after"]
        assert client.post("/tokenize", json={"inputs": "a"}).status_code == 200, "it needs no model"
        assert 'bertsmith_requests_total{route="/embed",status="429"}' in client.get("/metrics").text
        held.opened.set()
        assert {one.result(SECONDS).status_code for one in (first, *waiting)} <= {200, 429}
    batcher.paces.update(before)


def test_a_full_queue_is_429_and_says_when_to_come_back(client: TestClient, gate):
    held = gate()
    batcher = client.app.state.service.batcher
    before = dict(batcher.paces)
    batcher.paces.update(dict.fromkeys(before, Pace(100.0, 1.0)))
    many = {"inputs": ["stone " * 60] * 60}
    with ThreadPoolExecutor(3) as clients:
        first = clients.submit(client.post, "/embed", json={"inputs": "a"})
        assert held.reached.wait(SECONDS)
        second = clients.submit(client.post, "/embed", json=many)
        until(lambda: batcher.waiting_tokens == 60 * 62)
        refused = client.post("/embed", json=many)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "38"
        assert refused.json()["error"]["type"] == "overloaded"
        assert client.get("/health").status_code == 200
        figures = client.get("/metrics").text
        assert f"bertsmith_queue_tokens {60 * 62:.1f}" in figures
        short = clients.submit(client.post, "/embed", json={"inputs": "a"})  # a turn is all that it must wait for
        until(lambda: batcher.waiting_tokens == 60 * 62 + 3)
        held.opened.set()
        assert {one.result(SECONDS).status_code for one in (first, second, short)} == {200}
    batcher.paces.update(before)


def test_text_that_waits_to_be_tokenised_is_bounded_too(tight: TestClient, monkeypatch):
    held, reached, encode = threading.Event(), threading.Event(), Tokenizer.encode_ids

    def slow(self: Tokenizer, texts: list[str], **options: Any) -> Any:
        if len(texts[0]) > 4096:
            reached.set()
            held.wait(SECONDS)
        return encode(self, texts, **options)

    monkeypatch.setattr(Tokenizer, "encode_ids", slow)
    monkeypatch.setattr(
        tight.app.state.service, "limits", tight.app.state.service.limits.model_copy(update={"timeout": 30.0})
    )
    with ThreadPoolExecutor(3) as clients:
        first = clients.submit(tight.post, "/embed", json={"inputs": "a" * 15_000})
        assert reached.wait(SECONDS)
        assert tight.post("/embed", json={"inputs": "b" * 15_000}).status_code == 429
        second = clients.submit(tight.post, "/embed", json={"inputs": "c" * 4_500})
        assert tight.post("/embed", json={"inputs": "short"}).status_code == 200, (
            "short texts do not wait for long ones"
        )
        held.set()
        assert first.result(SECONDS).status_code == second.result(SECONDS).status_code == 200


def test_long_texts_are_read_away_from_the_event_loop(client: TestClient, monkeypatch):
    threads: dict[str, str] = {}

    def watch(name: str, function: Any) -> Any:
        def called(*values: Any, **options: Any) -> Any:
            threads[name] = threading.current_thread().name
            return function(*values, **options)

        return called

    monkeypatch.setattr(Tag, "example", watch("example", Tag.example))
    for name in ("encode_ids", "encode_batch", "encode_plain"):
        monkeypatch.setattr(Tokenizer, name, watch(name, getattr(Tokenizer, name)))
    for path, body in (
        ("/tag", {"inputs": "anna " * 2000}),
        ("/choose", {"text": "a", "choices": ["b " * 3000, "c " * 3000]}),
        ("/tokenize", {"inputs": "anna " * 2000}),
        ("/answer", {"question": "a", "context": "anna " * 2000}),
    ):
        threads.clear()
        assert client.post(path, json=body).status_code == 200
        assert threads
        assert all(name.startswith("aside") for name in threads.values()), (path, threads)


@pytest.mark.parametrize("path", ["/embed", "/v1/embeddings", "/"])
@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_that_is_not_called_json_is_told_which_header_to_send(client: TestClient, path: str, kind: str | None):
    headers = {} if kind is None else {"content-type": kind}
    answer = client.post(path, content=b'{"inputs": "anna", "input": "anna"}', headers=headers)
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].endswith("send it with the header Content-Type: application/json")
