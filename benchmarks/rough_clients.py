"""Clients that misbehave, and one among them that does not.

`KINDS` has a kind of misbehaviour each: what it does, and how it must end for the client. All are coroutines over raw
sockets on 127.0.0.1 and end by themselves: whoever waits for a server waits at most `PATIENCE` seconds.
The server must have been told `Target.sending` seconds, and a body of at most 4 MiB.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import struct
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE = 60.0  # of which one who is told to come back later may need much
PATH = "/v1/embeddings"
HUGE = 100 * 2**20  # bytes
TOLERANCE = 1e-4
_PART = 2**16
_FEW_TEXTS = 6  # of a request that is left in the middle of its answer
_PIECES = 100_000  # of a text whose answer is larger than what the system keeps for a connection
_WINDOW = 2**16
_SLOW_READS = 100  # of a large answer, in the time that the server was told: it has more parts than that


@dataclass(frozen=True)
class Target:
    """Where to ask, and what is right: short texts and their vectors; `sending` is the server's own limit."""

    port: int
    texts: list[str]
    vectors: np.ndarray
    sending: float = 1.0

    def head(self, length: int | None = None) -> bytes:
        """Of a request; without a length, its body is to come in chunks."""
        size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        return f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{size}\r\n\r\n".encode()

    def request(self, first: int, count: int = 1) -> bytes:
        """A whole one for some of the texts."""
        body = json.dumps({"input": self.texts[first : first + count]}).encode()
        return self.head(len(body)) + body

    def large(self) -> bytes:
        """A request whose answer has several megabytes and takes little work."""
        body = json.dumps({"inputs": "." * _PIECES}).encode()
        return self.head(len(body)).replace(PATH.encode(), b"/tokenize") + body

    def is_right(self, body: bytes, first: int, count: int = 1) -> bool:
        """Whether an answer has the vectors of these texts."""
        vectors = np.array([one["embedding"] for one in json.loads(body)["data"]])
        expected = self.vectors[first : first + count]
        return vectors.shape == expected.shape and float(np.abs(vectors - expected).max()) <= TOLERANCE


@dataclass(frozen=True)
class Kind:
    """A misbehaviour, and the ends that are right for it."""

    what: str
    act: Callable[[Target], Awaitable[str]]
    right: tuple[str, ...]


@dataclass
class Tally:
    """What came of all: per kind the ends and how often, and the seconds of the well-behaved client's answers."""

    ends: dict[str, Counter[str]] = field(default_factory=lambda: {kind.what: Counter() for kind in KINDS})
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # of the well-behaved client


async def misbehave(target: Target, number: int, at_once: int, on_tenth: Callable[[], object] = lambda: None) -> Tally:
    """So many clients, kind after kind, at most `at_once` together, and a well-behaved one all the while.

    `on_tenth` is called each time that another tenth of them has begun.
    """
    tally = Tally()
    places = asyncio.Semaphore(at_once)
    over = asyncio.Event()
    good = asyncio.ensure_future(_behave(target, tally, over))

    async def one(kind: Kind) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                end = await kind.act(target)
        except (OSError, EOFError) as error:
            end = _name(error)
        finally:
            places.release()
        tally.ends[kind.what][end] += 1

    async with asyncio.TaskGroup() as group:
        for count in range(number):
            await places.acquire()
            group.create_task(one(KINDS[count % len(KINDS)]))
            if 10 * (count + 1) // number > 10 * count // number:
                on_tenth()
    over.set()
    await good
    return tally


async def _behave(target: Target, tally: Tally, over: asyncio.Event) -> None:
    """One request after the other on one connection; a broken connection is a failure, and is made anew."""
    line: _Line | None = None
    for number in itertools.cycle(range(len(target.texts))):
        if over.is_set():
            break
        began = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE):
                if line is None:
                    line = _Line()
                    await line.connect(target)
                await line.send(target.request(number))
                status, body = await line.answer()
        except (OSError, EOFError) as error:  # a TimeoutError is an OSError
            tally.failures.append(_name(error))
            if line is not None:
                line.close()
            line = None
            await asyncio.sleep(0.1)
            continue
        if status == 200 and target.is_right(body, number):
            tally.seconds.append(time.perf_counter() - began)
        else:
            tally.failures.append(str(status) if status != 200 else "a wrong vector")
        await asyncio.sleep(0.02)
    if line is not None:
        line.close()


class _Line:
    """A connection. Not a stream of asyncio's: that forgets an answer it has received when it fails to send more."""

    def __init__(self, window: int | None = None) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if window is not None:  # before connecting, or the system has already promised more
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.buffer = b""

    async def connect(self, target: Target) -> None:
        await asyncio.get_running_loop().sock_connect(self.socket, ("127.0.0.1", target.port))

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def receive(self, size: int = _PART) -> bool:
        """Some more into the buffer; whether there was any."""
        data = await asyncio.get_running_loop().sock_recv(self.socket, size)
        self.buffer += data
        return bool(data)

    async def answer(self, size: int = _PART, pause: float = 0.0) -> tuple[int, bytes]:
        """Status and body of the next answer; EOFError where none comes. Read in parts of a size, with pauses."""
        while (end := self.buffer.find(b"\r\n\r\n") + 4) < 4:
            if not await self.receive(size):
                raise EOFError
        head = self.buffer[:end].lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0]) if b"content-length: " in head else 0
        while len(self.buffer) < end + length:
            await asyncio.sleep(pause)
            if not await self.receive(size):
                raise EOFError
        body, self.buffer = self.buffer[end : end + length], self.buffer[end + length :]
        return int(head[9:12]), body

    async def end(self) -> str:
        """How it ends: an answer's status and whether the server hangs up then, or hangs up without."""
        try:
            status, _ = await self.answer()
        except EOFError:
            return "cut off in an answer" if self.buffer else "closed"
        try:
            async with asyncio.timeout(1.0):
                return f"{status} and more" if await self.receive() else f"{status}, closed"
        except TimeoutError:
            return str(status)
        except OSError:
            return f"{status}, closed"

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Hang up without a farewell."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def _name(error: BaseException) -> str:
    names = {ConnectionResetError: "reset", BrokenPipeError: "reset", EOFError: "closed", TimeoutError: "nothing came"}
    return names.get(type(error), type(error).__name__)


def _with_a_line(act: Callable[[Target, _Line], Awaitable[str]]) -> Callable[[Target], Awaitable[str]]:
    async def run(target: Target) -> str:
        line = _Line(window=_WINDOW if act.__name__ in ("_read_slowly", "_never_read") else None)
        try:
            await line.connect(target)
            return await act(target, line)
        finally:
            line.close()

    return run


@_with_a_line
async def _silent(target: Target, line: _Line) -> str:
    del target
    return await line.end()


@_with_a_line
async def _half_a_head(target: Target, line: _Line) -> str:
    await line.send(target.head(10)[:40])
    return await line.end()


@_with_a_line
async def _head_in_drops(target: Target, line: _Line) -> str:
    """A byte now and then, which no clock that starts anew with each byte would notice."""

    async def drip() -> None:
        for byte in target.head(10):
            await line.send(bytes([byte]))
            await asyncio.sleep(0.05)

    return await _while(drip(), line.end())


@_with_a_line
async def _half_a_body(target: Target, line: _Line) -> str:
    request = target.request(0)
    await line.send(request[: len(request) - 10])
    return await line.end()


@_with_a_line
async def _body_in_drops(target: Target, line: _Line) -> str:
    async def drip() -> None:
        await line.send(target.head(1000))
        for _ in range(1000):
            await line.send(b" ")
            await asyncio.sleep(0.05)

    return await _while(drip(), line.end())


@_with_a_line
async def _leave_in_the_body(target: Target, line: _Line) -> str:
    request = target.request(0)
    await line.send(request[: len(request) - 10])
    return "left"


@_with_a_line
async def _leave_after_the_request(target: Target, line: _Line) -> str:
    await line.send(target.request(0))
    await asyncio.sleep(0.002)
    return "left"


@_with_a_line
async def _reset_after_the_request(target: Target, line: _Line) -> str:
    await line.send(target.request(0))
    await asyncio.sleep(0.002)
    line.reset()
    return "left"


@_with_a_line
async def _leave_in_the_answer(target: Target, line: _Line) -> str:
    await line.send(target.request(0, _FEW_TEXTS))
    await line.receive(100)
    return "left" if line.buffer[9:12] == b"200" else line.buffer[9:12].decode()


async def _ask_for_much(target: Target, line: _Line) -> None:
    """Until an answer begins; whoever is told to come back later (429) does."""
    while True:
        await line.send(target.large())
        while len(line.buffer) < len("HTTP/1.1 200"):
            if not await line.receive(1):
                raise EOFError
        if line.buffer[9:12] != b"429":
            return
        await line.answer()
        await asyncio.sleep(1.0)


@_with_a_line
async def _read_slowly(target: Target, line: _Line) -> str:
    """A large answer through a small window, in small parts: longer than a request may take to come."""
    await _ask_for_much(target, line)
    status, body = await line.answer(size=_WINDOW, pause=target.sending / _SLOW_READS)
    if status != 200:
        return str(status)
    (pieces,) = json.loads(body)
    return "200" if len(pieces) == _PIECES + 2 else "a wrong answer"


@_with_a_line
async def _never_read(target: Target, line: _Line) -> str:
    """What has come by the time is read then: the rest must be missing. The server looks twice before it acts."""
    await _ask_for_much(target, line)
    await asyncio.sleep(2 * target.sending + 3.0)
    return await line.end()


@_with_a_line
async def _huge_head(target: Target, line: _Line) -> str:
    async def pour() -> None:
        await line.send(target.head(10)[:-2] + b"x: ")
        for _ in range(HUGE // _PART):
            await line.send(b"x" * _PART)

    return await _while(pour(), line.end())


@_with_a_line
async def _huge(target: Target, line: _Line) -> str:
    async def pour() -> None:
        await line.send(target.head(HUGE))
        for _ in range(HUGE // _PART):
            await line.send(b" " * _PART)

    return await _while(pour(), line.end())


@_with_a_line
async def _huge_in_chunks(target: Target, line: _Line) -> str:
    async def pour() -> None:
        await line.send(target.head())
        for _ in range(HUGE // _PART):
            await line.send(f"{_PART:x}\r\n".encode() + b" " * _PART + b"\r\n")

    return await _while(pour(), line.end())


@_with_a_line
async def _no_http(target: Target, line: _Line) -> str:
    del target
    await line.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 this is not HTTP\r\n\r\n")
    return await line.end()


@_with_a_line
async def _no_json(target: Target, line: _Line) -> str:
    await line.send(target.head(9) + b'{"input":')
    status, _ = await line.answer()
    return str(status)


async def _while(doing: Awaitable[None], end: Awaitable[str]) -> str:
    """How it ends, whatever becomes of what is done meanwhile: a server that has answered need not read on."""
    task = asyncio.ensure_future(doing)
    try:
        return await end
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()


KINDS = (
    Kind("connects and says nothing", _silent, ("closed", "reset")),
    Kind("sends half a head", _half_a_head, ("closed", "reset")),
    Kind("sends its head in drops", _head_in_drops, ("closed", "reset")),
    Kind("sends half a body", _half_a_body, ("408, closed",)),
    Kind("sends its body in drops", _body_in_drops, ("408, closed",)),
    Kind("leaves in the middle of its body", _leave_in_the_body, ("left",)),
    Kind("leaves before the answer", _leave_after_the_request, ("left",)),
    Kind("resets before the answer", _reset_after_the_request, ("left",)),
    Kind("leaves in the middle of the answer", _leave_in_the_answer, ("left",)),
    Kind("reads a large answer slowly", _read_slowly, ("200",)),
    Kind("does not read a large answer", _never_read, ("cut off in an answer", "reset")),
    Kind("sends a head of 100 MB", _huge_head, ("431, closed",)),
    Kind("sends 100 MB, and says so", _huge, ("413, closed",)),
    Kind("sends 100 MB in chunks", _huge_in_chunks, ("413, closed",)),
    Kind("does not speak HTTP", _no_http, ("400, closed",)),
    Kind("does not send JSON", _no_json, ("422",)),
)
