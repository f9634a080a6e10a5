"""How much a request may ask for, how long it may take, and what happens where the queue is full."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from bertsmith.serve.batching import Pace
from bertsmith.tasks.tag import Tag
from bertsmith.vocab.tokenizer import Tokenizer
from serve.conftest import SECONDS, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI


def test_as_many_texts_as_info_says_beside_a_query(client: TestClient):
    info = client.get("/info").json()
    most = info["max_client_batch_size"]
    for texts, status in ((["a"] * most, 200), (["a"] * (most + 1), 413)):
        sentences = {"source_sentence": "b", "sentences": texts}
        asked = [("/rerank", {"query": "b", "texts": texts, "model": "filler"}), ("/similarity", {"inputs": sentences})]
        assert {client.post(path, json=body).status_code for path, body in asked} == {status}
    assert {"max_concurrent_requests", "tokenization_workers"} <= info.keys()


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
