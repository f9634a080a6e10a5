"""Clients of an embedding server on this machine: closed and open loops, every answer checked.

In: a job as JSON on standard input (`Job`), and a file with the vectors that are right. Out: one JSON line for every
phase (`Phase`), with a record for every request. A process of its own, so that its processor time is known; the head
of an answer is read by hand because that costs less than any library, and what the generator takes, the server lacks.

A phase begins when the one before has sent its last request; what is then still on its way is waited for at the end.
"""

from __future__ import annotations

import asyncio
import random
import re
import resource
import subprocess
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

TOLERANCE = 1e-4  # of each number of a vector of length 1
MOST_CONNECTIONS = 4096
_PAUSE = 0.05  # seconds, before a client that was refused or cut off asks again
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Phase:
    """Requests of one kind.

    closed: `clients` connections, each asks again when it is answered. open: arrivals at random, `rate` a second,
    whatever the answers do. steady: arrivals at equal distances, all with the first text.
    """

    kind: Literal["closed", "open", "steady"]
    seconds: float
    clients: int = 1
    rate: float = 1.0
    warm_up: float = 0.0  # seconds of the same before; they are not counted


@dataclass(frozen=True)
class Job:
    """What to do. `form`: where the vector is in an answer, as OpenAI has it or a bare list of lists."""

    port: int
    path: str
    bodies: list[str]
    vectors: str  # .npy, (texts, width), the right answers
    form: Literal["openai", "bare"]
    phases: list[Phase]
    patience: float = 60.0  # seconds to wait for the last answers


class Record(NamedTuple):
    """A request: when it was due (seconds; below 0 in the warm-up), how long its answer took, and what it was."""

    due: float
    seconds: float
    status: int  # 0: no answer
    right: bool  # 200: the vector is right; 429: it says when to come again


@dataclass
class Result:
    """What came of a phase. `processor` is the generator's own time on a core, in seconds, out of `wall`."""

    phase: Phase
    wall: float = 0.0
    processor: float = 0.0
    worst: float = 0.0  # largest difference from a right vector
    records: list[Record] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Of one core that the generator took."""
        return self.processor / self.wall

    @property
    def good(self) -> list[float]:
        """Seconds of the right answers, the shortest first."""
        return sorted(r.seconds for r in self.records if r.status == 200 and r.right and r.due >= 0)

    @property
    def throughput(self) -> float:
        """Right answers a second that came between warm-up and end."""
        end = self.phase.seconds
        return sum(r.status == 200 and r.right and 0 <= r.due + r.seconds <= end for r in self.records) / end

    @property
    def wrong(self) -> list[Record]:
        """All that is neither a right answer nor a proper refusal."""
        return [record for record in self.records if record.status not in (200, 429) or not record.right]


def percentile(seconds: Sequence[float], share: float) -> float:
    """Of sorted numbers; NaN of none."""
    return seconds[min(len(seconds) - 1, int(share * len(seconds)))] if seconds else float("nan")


def generate(job: Job) -> list[Result]:
    """Run a job in a process of its own; what is not over in time is ended."""
    longest = sum(phase.seconds + phase.warm_up for phase in job.phases) + job.patience + 30
    command = [sys.executable, str(Path(__file__).resolve())]
    done = subprocess.run(command, input=orjson.dumps(asdict(job)), capture_output=True, timeout=longest, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    results = []
    for phase, line in zip(job.phases, done.stdout.splitlines(), strict=True):
        content = orjson.loads(line)
        records = [Record(*record) for record in content.pop("records")]
        results.append(Result(**{**content, "phase": phase, "records": records}))
    return results


class Answer(NamedTuple):
    """What came back; status 0 where nothing did."""

    status: int
    head: bytes
    body: bytes


class Connection(asyncio.Protocol):
    """A kept-alive connection with at most one request on its way."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.open = False
        self._buffer = bytearray()
        self._body_at = self._whole = 0  # where the body begins, where the answer ends
        self._answered: Callable[[Answer], None] | None = None

    def ask(self, request: bytes, answered: Callable[[Answer], None]) -> None:
        """Send; `answered` is called once, also where the connection breaks."""
        self._answered = answered
        self._buffer.clear()
        self._whole = 0
        if self.open:
            self.transport.write(request)
        else:
            self._finish(Answer(0, b"", b""))

    def connection_made(self, transport: Any) -> None:
        """Ready."""
        self.transport, self.open = transport, True

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        buffer = self._buffer
        buffer += data
        if not self._whole:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self._body_at = end + 4
            length = _LENGTH.search(buffer, 0, end)
            self._whole = self._body_at + (int(length[1]) if length else 0)
        if len(buffer) >= self._whole:
            head, body = bytes(buffer[: self._body_at]), bytes(buffer[self._body_at : self._whole])
            self._finish(Answer(int(head[9:12]), head, body))

    def connection_lost(self, error: Exception | None) -> None:
        """Closed by either side."""
        del error
        self.open = False
        self._finish(Answer(0, b"", b""))

    def close(self) -> None:
        """Hang up."""
        if self.open:
            self.transport.abort()

    def _finish(self, answer: Answer) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)


class Clients:
    """All clients of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        head = f"POST {job.path} HTTP/1.1\r\nhost: 127.0.0.1:{job.port}\r\ncontent-type: application/json\r\n"
        bodies = [body.encode() for body in job.bodies]
        self.requests = [f"{head}content-length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
        self.vectors = np.load(job.vectors)
        self.free: deque[Connection] = deque()  # for arrivals; the loops keep their own
        self.waiting: deque[Callable[[Connection], None]] = deque()  # arrivals without a connection
        self.connections: list[Connection] = []  # all that were ever made
        self.num_connections = 0  # of arrivals, open or about to be
        self.on_their_way = 0
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> list[Result]:
        """Phase after phase."""
        results = []
        for phase in self.job.phases:
            results.append(await self._phase(phase))
        patience = time.perf_counter() + self.job.patience
        while self.on_their_way and time.perf_counter() < patience:
            await asyncio.sleep(0.01)
        for task in self.tasks:
            task.cancel()
        for connection in self.connections:
            connection.close()  # what has not come now is recorded as no answer
        await asyncio.sleep(0.1)
        return results

    async def _phase(self, phase: Phase) -> Result:
        result = Result(phase)
        start, processor = time.perf_counter(), _processor_time()
        if phase.kind == "closed":
            await self._closed(result, start + phase.warm_up)
        else:
            await self._arrivals(result, start + phase.warm_up)
        result.wall, result.processor = time.perf_counter() - start, _processor_time() - processor
        return result

    async def _closed(self, result: Result, began: float) -> None:
        numbers = _round_and_round(len(self.requests))
        end = began + result.phase.seconds

        async def client() -> None:
            connection = await self._connect()
            while (due := time.perf_counter()) < end:
                answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
                self._ask(connection, next(numbers), result, due, began, _setting(answer))
                if not await answer:
                    await asyncio.sleep(_PAUSE)
                    if not connection.open:
                        connection = await self._connect()
            connection.close()

        clients = [asyncio.ensure_future(client()) for _ in range(result.phase.clients)]
        self.tasks.update(clients)
        await asyncio.sleep(max(0.0, end - time.perf_counter()))
        await asyncio.wait(clients, timeout=self.job.patience)  # each ends with its last answer

    async def _arrivals(self, result: Result, began: float) -> None:
        steady = result.phase.kind == "steady"
        numbers = iter(lambda: 0, 1) if steady else _round_and_round(len(self.requests))
        for offset in _offsets(result.phase):
            late = began + offset - time.perf_counter()
            if late > 0.0005:
                await asyncio.sleep(late)
            self._arrive(next(numbers), result, began + offset, began)
        await asyncio.sleep(max(0.0, began + result.phase.seconds - time.perf_counter()))

    def _arrive(self, number: int, result: Result, due: float, began: float) -> None:
        self.on_their_way += 1

        def over(connection: Connection) -> Callable[[bool], None]:
            def done(went_well: bool) -> None:
                del went_well
                self.on_their_way -= 1
                if not connection.open:
                    self.num_connections -= 1
                elif self.waiting:
                    self.waiting.popleft()(connection)
                else:
                    self.free.append(connection)

            return done

        def ask(connection: Connection) -> None:
            self._ask(connection, number, result, due, began, over(connection))

        while self.free:
            connection = self.free.pop()
            if connection.open:
                ask(connection)
                return
            self.num_connections -= 1
        if self.num_connections >= MOST_CONNECTIONS:
            self.waiting.append(ask)
            return
        self.num_connections += 1
        task = asyncio.ensure_future(self._connect_and(ask))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _connect_and(self, ask: Callable[[Connection], None]) -> None:
        ask(await self._connect())

    async def _connect(self) -> Connection:
        """A connection; a closed one where the server takes none."""
        try:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(Connection, "127.0.0.1", self.job.port)
        except OSError:
            return Connection()
        self.connections.append(connection)
        return connection

    def _ask(
        self,
        connection: Connection,
        number: int,
        result: Result,
        due: float,
        began: float,
        done: Callable[[bool], None],
    ) -> None:
        def answered(answer: Answer) -> None:
            seconds = time.perf_counter() - due
            right = self._is_right(answer, number, result)
            result.records.append(Record(due - began, seconds, answer.status, right))
            done(answer.status == 200)

        connection.ask(self.requests[number], answered)

    def _is_right(self, answer: Answer, number: int, result: Result) -> bool:
        if answer.status == 429:
            return b"\r\nretry-after:" in answer.head.lower()
        if answer.status != 200:
            return False
        try:
            content = orjson.loads(answer.body)
            vector = np.array(content["data"][0]["embedding"] if self.job.form == "openai" else content[0], np.float32)
        except (KeyError, IndexError, TypeError, ValueError):
            return False
        if vector.shape != self.vectors[number].shape:
            return False
        difference = float(np.abs(vector - self.vectors[number]).max())
        result.worst = max(result.worst, difference)
        return difference <= TOLERANCE  # and not NaN


def _setting(future: asyncio.Future[bool]) -> Callable[[bool], None]:
    """A function that gives a future its result, unless nobody waits for it any more."""

    def done(went_well: bool) -> None:
        if not future.done():
            future.set_result(went_well)

    return done


def _round_and_round(count: int) -> Iterator[int]:
    while True:
        yield from range(count)


def _offsets(phase: Phase) -> Iterable[float]:
    """When requests are due."""
    rng = random.Random(0)
    at = -phase.warm_up
    while at < phase.seconds:
        yield at
        at += 1 / phase.rate if phase.kind == "steady" else rng.expovariate(phase.rate)


def _processor_time() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """A job from standard input."""
    import uvloop

    content = orjson.loads(sys.stdin.buffer.read())
    job = Job(**{**content, "phases": [Phase(**phase) for phase in content["phases"]]})
    for result in uvloop.run(Clients(job).run()):
        content = {**vars(result), "records": [tuple(record) for record in result.records]}
        sys.stdout.buffer.write(orjson.dumps(content) + b"\n")


if __name__ == "__main__":
    main()
