"""Every kind of wrong input against its status and its field; what fails inside stays inside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from starlette.testclient import TestClient

LONG = "anna lives in oslo, boris lives in rome. " * 20


JSON = {"content-type": "application/json"}


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


@pytest.mark.parametrize("path", ["/embed", "/v1/embeddings", "/"])
@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_that_is_not_called_json_is_told_which_header_to_send(client: TestClient, path: str, kind: str | None):
    headers = {} if kind is None else {"content-type": kind}
    answer = client.post(path, content=b'{"inputs": "anna", "input": "anna"}', headers=headers)
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].endswith("send it with the header Content-Type: application/json")
