"""What stands before every route: tokens, sizes, slow and vanishing clients; on real sockets where that matters."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import select
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from serve.conftest import SECONDS, listening, until

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


@pytest.fixture(scope="module")
def service(make_app: Callable[..., FastAPI]) -> Iterator[tuple[FastAPI, int]]:
    """An application on a socket, with little time and room for bodies."""
    app = make_app("filler", limits={"body": 50_000, "sending": 0.6})
    with listening(app, sending=0.6) as port:
        with connected(port) as one:
            one.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
            assert status(read_answer(one)) == 200
        yield app, port


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as one:
        yield one


def head(*lines: str) -> bytes:
    return "\r\n".join(["POST /embed HTTP/1.1", "host: a", "content-type: application/json", *lines, "", ""]).encode()


def read_answer(one: socket.socket) -> bytes:
    """One answer, by its own length; what there is, where the connection ends."""
    found = b""
    while True:
        start = found.find(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", found[: max(start, 0)])
        if length and len(found) >= start + 4 + int(length[1]):
            return found
        try:
            more = one.recv(65536)
        except ConnectionResetError:
            return found
        if not more:
            return found
        found += more


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_declared_length_beyond_the_limit_is_refused_before_the_body(service):
    with connected(service[1]) as one:
        one.sendall(head("content-length: 50001"))
        answer = read_answer(one)
        assert status(answer) == 413
        assert is_closed(one)


def test_a_chunked_body_beyond_the_limit_is_refused_while_it_comes(service):
    with connected(service[1]) as one:
        one.sendall(head("transfer-encoding: chunked"))
        with contextlib.suppress(ConnectionError):
            for _ in range(6):
                one.sendall(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        answer = read_answer(one)
        assert status(answer) == 413
        assert b"too_large" in answer
        assert is_closed(one)


def test_a_chunked_body_within_the_limit_is_read(service):
    with connected(service[1]) as one:
        parts = [BODY[:5], BODY[5:]]
        one.sendall(head("transfer-encoding: chunked"))
        for part in parts:
            one.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            time.sleep(0.01)
        one.sendall(b"0\r\n\r\n")
        assert status(read_answer(one)) == 200


def test_a_body_longer_than_it_says_is_no_part_of_the_request(service):
    with connected(service[1]) as one:
        one.sendall(head(f"content-length: {len(BODY)}") + BODY + b"garbage that is no request\r\n\r\n")
        assert status(read_answer(one)) in (200, 400)
    with connected(service[1]) as one:
        one.sendall(head("content-length: 5") + BODY)
        assert status(read_answer(one)) in (400, 422)


def test_a_body_that_trickles_is_answered_with_408(service):
    began = time.monotonic()
    with connected(service[1]) as one:
        one.sendall(head(f"content-length: {len(BODY)}"))
        with contextlib.suppress(ConnectionError):
            for byte in BODY[:-1]:
                one.sendall(bytes([byte]))
                time.sleep(0.04)
        answer = read_answer(one)
        assert status(answer) == 408
        assert b'"timeout"' in answer
        assert is_closed(one)
    assert time.monotonic() - began < SECONDS


def test_a_body_that_never_comes_is_answered_with_408(service):
    with connected(service[1]) as one:
        one.sendall(head("content-length: 100"))
        assert status(read_answer(one)) == 408


@pytest.mark.parametrize("sent", [b"", b"POST /embed HT", b"POST /embed HTTP/1.1\r\nhost: a\r\nx: "])
def test_a_head_that_does_not_come_ends_the_connection(service, sent: bytes):
    with connected(service[1]) as one:
        one.sendall(sent)
        assert is_closed(one)


def test_a_second_head_that_does_not_come_ends_the_connection_too(service):
    with connected(service[1]) as one:
        one.sendall(head(f"content-length: {len(BODY)}") + BODY)
        assert status(read_answer(one)) == 200
        time.sleep(0.8)  # longer than a head may take: a connection between requests is kept
        one.sendall(head(f"content-length: {len(BODY)}") + BODY)
        assert status(read_answer(one)) == 200
        one.sendall(b"POST /embed HTTP/1.1\r\nhost: ")
        assert is_closed(one)


def pour(one: socket.socket, part: bytes, most: int) -> int:
    """Send the same again and again; how many bytes went until the server had enough."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < most and not select.select([one], [], [], 0)[0]:
            sent += one.send(part)
    return sent


HEAD_LIMIT = 2**16
ENDLESS = {
    "an address": (b"GET /", b"a" * 1000),
    "one field": (b"GET / HTTP/1.1\r\nx: ", b"a" * 1000),
    "the name of a field": (b"GET / HTTP/1.1\r\n", b"a" * 1000),
    "many fields": (b"GET / HTTP/1.1\r\n", b"x: y\r\n" * 100),
    "lines before a request": (b"", b"\r\n" * 500),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_a_head_without_end_is_refused(service, what: str):
    """At once, and not when its time is over: in that a client could send gigabytes."""
    start, part = ENDLESS[what]
    with connected(service[1]) as one:
        one.sendall(start)
        assert pour(one, part, 2**25) < 2**25, "the system's own queues hold some megabytes"
        answer = read_answer(one)
        assert status(answer) == 431
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"].startswith("the head is larger than")
        assert is_closed(one)


@pytest.mark.parametrize("start", [b"0\r\nx: ", b"0\r\n", b"5;"])
def test_fields_after_a_body_have_no_more_room(service, start: bytes):
    part = b"x: y\r\n" * 100 if start == b"0\r\n" else b"a" * 1000
    with connected(service[1]) as one:
        one.sendall(head("transfer-encoding: chunked") + start)
        pour(one, part, 2**25)
        assert read_answer(one) == b"", "not even that it took too long"


@pytest.mark.parametrize("size", [1000, 2**18])
def test_a_head_is_counted_anew_for_every_request_and_a_body_is_none_of_it(service, size: int):
    """Heads and bodies of nearly all that is allowed, end to end on one connection, in parts of any size."""
    body = BODY.ljust(49_000)
    request = head(f"x: {'a' * (HEAD_LIMIT - 200)}", f"content-length: {len(body)}") + body
    with connected(service[1]) as one:
        sent = request * 4
        for start in range(0, len(sent), size):
            one.sendall(sent[start : start + size])
        found = b""
        while found.count(b"HTTP/1.1 ") < 4 or not found.endswith(b"]]"):
            more = one.recv(65536)
            assert more, found[:200]
            found += more
        assert found.count(b"HTTP/1.1 200 OK\r\n") == 4
        one.sendall(request.replace(b"host: a", b"host: " + b"a" * 300))
        assert status(read_answer(one)) == 431


def test_a_head_that_is_too_large_takes_no_answer_from_the_request_before_it(service, gate):
    """It would come first, as if it were the other's."""
    held = gate()
    with connected(service[1]) as one:
        one.sendall(head(f"content-length: {len(BODY)}") + BODY)
        assert held.reached.wait(SECONDS)
        one.sendall(b"GET / HTTP/1.1\r\nx: " + b"a" * 2 * HEAD_LIMIT)
        assert read_answer(one) == b""


H2C = (
    "connection: Upgrade, HTTP2-Settings",
    "upgrade: h2c",
    "http2-settings: AAEAAEAAAAIAAAAB",
)
OFFER = head(*H2C, f"content-length: {len(BODY)}") + BODY


def vectors(answer: bytes) -> list[list[float]]:
    assert status(answer) == 200, answer
    return json.loads(answer.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("size", [len(OFFER), len(OFFER) - len(BODY), len(OFFER) - len(BODY) - 1, 100, 7])
def test_a_request_that_offers_h2c_is_answered_as_any_other(service, size: int):
    """However its bytes come, and what comes after it; Java's client sends such a head."""
    plain = head(f"content-length: {len(BODY)}") + BODY
    with connected(service[1]) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.sendall(plain)
        expected = vectors(read_answer(one))
        for request in (OFFER, plain, OFFER):
            for start in range(0, len(request), size):
                one.sendall(request[start : start + size])
                time.sleep(0.0005)
            assert vectors(read_answer(one)) == expected


def test_offers_of_a_protocol_end_to_end_are_answered_in_turn(service):
    chunked = head(*H2C, "transfer-encoding: chunked") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    last = b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n\r\n"
    with connected(service[1]) as one:
        one.sendall(OFFER + chunked + OFFER + last)
        found = b"".join(iter(lambda: one.recv(65536), b""))
    assert found.count(b"HTTP/1.1 200 OK\r\n") == found.count(b"HTTP/1.1 ") == 4
    first, second, third, _ = (part.partition(b"\r\n\r\n")[2] for part in found.split(b"HTTP/1.1 200 OK\r\n")[1:])
    assert first == second == third


def test_a_thousand_offers_at_once_do_no_harm(service):
    offer = b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    with connected(service[1]) as one:
        one.sendall(offer * 1000 + b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        found = b"".join(iter(lambda: one.recv(65536), b""))
    assert found.count(b"HTTP/1.1 200 OK\r\n") == 1001


@pytest.mark.parametrize(("line", "code"), [("GET /health", 200), ("GET http://[", 400), ("CONNECT a:1", 400)])
def test_an_offer_without_a_body_gets_its_answer(service, line: str, code: int):
    request = f"{line} HTTP/1.1\r\nhost: a\r\nconnection: upgrade, close\r\nupgrade: h2c\r\n\r\n"
    with connected(service[1]) as one:
        one.sendall(request.encode())
        assert status(read_answer(one)) == code


def test_an_offer_without_its_body_has_no_more_time_than_others(service):
    with connected(service[1]) as one:
        one.sendall(OFFER[: -len(BODY)])
        assert status(read_answer(one)) == 408
    with connected(service[1]) as one:
        one.sendall(OFFER[:100])
        assert is_closed(one)


def test_what_waits_for_the_model_may_take_longer_than_sending(service, gate):
    held = gate()
    with connected(service[1]) as one:
        one.sendall(head(f"content-length: {len(BODY)}") + BODY)
        assert held.reached.wait(SECONDS)
        time.sleep(0.8)
        held.opened.set()
        assert status(read_answer(one)) == 200


@pytest.mark.parametrize("reads", [True, False])
def test_a_slow_reader_gets_all_of_a_large_answer_and_one_that_does_not_read_is_cut_off(make_app, reads):
    """More than the system keeps for a connection by itself."""
    body = json.dumps({"inputs": "." * 120_000}).encode()
    request = head(f"content-length: {len(body)}").replace(b"/embed", b"/tokenize") + body
    with listening(make_app("filler", limits={"sending": 0.6}), sending=0.6) as port, socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)  # before connecting
        one.settimeout(SECONDS)
        one.connect(("127.0.0.1", port))
        one.sendall(request)
        found = one.recv(2**16)
        begun = time.monotonic()
        start = found.index(b"\r\n\r\n") + 4
        size = start + int(re.search(rb"content-length: (\d+)", found)[1])
        if not reads:
            time.sleep(3.0)
        while len(found) < size:
            try:
                part = one.recv(2**16)
            except ConnectionError:
                break
            if not part:
                break
            found += part
            time.sleep(0.01 if reads else 0.0)
        assert size > 8 * 2**20
        assert (len(found) == size) is reads
        assert time.monotonic() - begun > 1.0  # longer than a request may take to come


def test_a_client_that_vanishes_leaves_the_queue(service, gate):
    app, port = service
    batcher = app.state.service.batcher
    held = gate()
    before = num_gone(port)
    with connected(port) as first:
        first.sendall(head(f"content-length: {len(BODY)}") + BODY)
        assert held.reached.wait(SECONDS)
        with connected(port) as second:
            second.sendall(head(f"content-length: {len(BODY)}") + BODY)
            until(lambda: batcher.waiting_tokens > 0)
        until(lambda: batcher.waiting_tokens == 0)
        held.opened.set()
        assert status(read_answer(first)) == 200
    assert num_gone(port) == before + 1


def num_gone(port: int) -> float:
    """Requests whose client did not wait for an answer, as the figures count them."""
    with connected(port) as one:
        one.sendall(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")
        found = re.search(rb'requests_total{route="/embed",status="499"} (.*)', read_answer(one))
        return float(found[1]) if found else 0.0


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
