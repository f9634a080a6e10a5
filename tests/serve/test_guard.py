"""What stands before every route: tokens, the headers of an answer, other origins, figures."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from serve.conftest import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI


TOKEN = "s3cret-tökén"


BODY = json.dumps({"inputs": "the river was good"}).encode()


@pytest.fixture(scope="module")
def locked(make_app: Callable[..., FastAPI]) -> Iterator[TestClient]:
    app = make_app("filler", token=TOKEN, cors=("https://a.example",))
    with TestClient(app, raise_server_exceptions=False) as asking:
        yield asking


@pytest.mark.parametrize(
    ("header", "passes"),
    [
        (None, False),
        (b"", False),
        (b"Bearer", False),
        (b"Bearer ", False),
        (b"Bearer wrong", False),
        (TOKEN.encode(), False),
        (b"Basic " + TOKEN.encode(), False),
        (b"Bearer " + TOKEN.encode()[:-1], False),
        (b"Bearer " + TOKEN.encode() + b"x", False),
        (b"Bearer \xff\xfe", False),
        (b"Bearer " + TOKEN.encode(), True),
        (b"bearer  " + TOKEN.encode(), True),
    ],
)
def test_the_token_must_be_right(locked: TestClient, header: bytes | None, passes: bool):
    headers = [] if header is None else [(b"authorization", header)]
    for path in ("/info", "/metrics", "/v1/models", "/openapi.json", "/nowhere"):
        answer = locked.get(path, headers=headers)
        assert (answer.status_code != 401) == passes, path
    answer = locked.post("/embed", headers=[*headers, (b"content-type", b"application/json")], content=BODY)
    assert answer.status_code == (200 if passes else 401)
    if not passes:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["type"] == "unauthorized"
        assert TOKEN not in answer.text


def test_openapi_says_that_a_token_is_wanted(locked: TestClient, client: TestClient):
    schema = locked.get("/openapi.json", headers=[(b"authorization", b"Bearer " + TOKEN.encode())]).json()
    assert schema["security"] == [{"token": []}]
    assert schema["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
    assert schema["paths"]["/health"]["get"]["security"] == []
    assert "security" not in client.get("/openapi.json").json()


def test_a_browser_may_send_what_openais_client_adds(locked: TestClient):
    asked = {"origin": "https://a.example", "access-control-request-method": "POST"}
    asked["access-control-request-headers"] = "authorization,content-type,x-stainless-lang"
    answer = locked.options("/v1/embeddings", headers=asked)
    assert answer.status_code == 200
    assert "x-stainless-lang" in answer.headers["access-control-allow-headers"]
    refused = locked.post("/embed", headers={"origin": "https://a.example"}, content=BODY)
    assert "retry-after" in refused.headers["access-control-expose-headers"]


def test_only_the_page_and_health_are_open(locked: TestClient):
    assert locked.get("/health").status_code == 200
    assert locked.get("/").status_code == 200
    assert locked.get("/page/none.js").status_code == 404
    for path in ("/health/", "/page", "/page/../info", "/Health", "/info/"):
        assert locked.get(path, follow_redirects=False).status_code in (401, 404), path
    assert locked.get("/page/../info").json()["error"]["type"] in ("unauthorized", "not_found")


def test_those_who_watch_a_service_may_ask_for_the_head_alone(locked: TestClient):
    for path in ("/", "/health"):
        answer, whole = locked.head(path), locked.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == whole.headers["content-type"]
    assert locked.head("/info").status_code == 401
    assert "head" not in locked.app.openapi()["paths"]["/health"]


def test_every_answer_has_the_headers_that_protect_a_browser(locked: TestClient):
    for path in ("/", "/health", "/info"):
        headers = locked.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in headers["content-security-policy"]


def test_other_origins_may_ask_only_where_that_was_said(locked: TestClient, client: TestClient):
    asks = {"origin": "https://a.example", "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type"}  # fmt: skip
    allowed = locked.options("/embed", headers=asks)  # a browser sends no token with this
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
    refused = locked.get("/info", headers={"origin": "https://a.example"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://a.example", "or the page cannot read the refusal"
    other = locked.options("/embed", headers={**asks, "origin": "https://b.example"})
    assert "access-control-allow-origin" not in other.headers
    closed = client.options("/embed", headers=asks)
    assert closed.status_code == 405
    assert not any(name.startswith("access-control") for name in closed.headers)
    assert "access-control-allow-origin" not in client.get("/health", headers={"origin": "https://a.example"}).headers


def test_a_length_of_thousands_of_digits_is_too_large(client: TestClient):
    """Uvicorn refuses it itself; another server may not."""
    sent: list[dict[str, Any]] = []
    scope = {"type": "http", "method": "POST", "path": "/embed", "query_string": b"", "http_version": "1.1",
             "scheme": "http", "root_path": "", "headers": [(b"content-length", b"9" * 5000)]}  # fmt: skip

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(client.app(scope, None, send))
    assert sent[0]["status"] == 413


def test_figures_count_what_was_answered(make_app: Callable[..., FastAPI]):
    with TestClient(make_app("filler"), raise_server_exceptions=False) as asking:
        asking.post("/embed", json={"inputs": ["anna", "boris"]})
        standing = asking.app.state.service.metrics
        until(lambda: standing._speed._value.get() > 0)  # also where another worker is asked for the figures
        asking.post("/embed", json={})
        asking.get("/nowhere")
        figures = asking.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in figures.splitlines() if not line.startswith("#"))
    assert lines['bertsmith_requests_total{route="/embed",status="200"}'] == "1.0"
    assert lines['bertsmith_requests_total{route="/embed",status="422"}'] == "1.0"
    assert lines['bertsmith_requests_total{route="other",status="404"}'] == "1.0"
    assert lines['bertsmith_request_seconds_count{route="/embed"}'] == "2.0"
    assert float(lines["bertsmith_queue_tokens"]) == 0
    assert float(lines["bertsmith_tokens_per_second"]) > 0
    warm = 24 * 34  # warming up: the budget over the longest text, half full
    assert float(lines["bertsmith_tokens_total"]) == warm + 6
    assert float(lines["bertsmith_sequences_total"]) == 24 + 2
    assert float(lines["bertsmith_batch_tokens_count"]) == 2
    assert float(lines["bertsmith_busy_seconds_total"]) > 0
