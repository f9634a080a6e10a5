"""Clients on real sockets: bodies and heads that do not come or do not end, offers of h2c, slow readers, leavers."""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import time
from typing import TYPE_CHECKING

import pytest

from serve.conftest import SECONDS, listening, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI


BODY = json.dumps({"inputs": "the river was good"}).encode()


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
