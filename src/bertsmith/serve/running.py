"""The service as processes: uvicorn with a deadline for requests, one worker or several."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from array import array
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import httptools
import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from bertsmith.errors import BertsmithError, InputError
from bertsmith.serve.answers import error_answer
from bertsmith.serve.app import SETTINGS_VARIABLE, make_app
from bertsmith.serve.settings import ServeSettings

if sys.platform != "win32":
    import fcntl
    import termios

if TYPE_CHECKING:
    import asyncio

__all__ = ["PunctualProtocol", "serve_forever"]

_LEAST_TAKEN = 2**16  # bytes of an answer that a client must take in the time that it has to send a request
_LARGEST_HEAD = 2**16  # bytes of a request's address and fields; browsers and proxies send a tenth of that at the most
_KEEP_ALIVE = 75  # seconds; longer than what proxies and clients keep an idle connection for


def serve_forever(settings: ServeSettings, *, host: str, port: int, workers: int = 1, verbose: bool = False) -> None:
    """Serve until a signal comes; what was taken is then finished. Models are loaded before the port is open."""
    if workers > 1:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        settings = settings.model_copy(update={"threads": settings.threads or max(1, cores // workers)})
    os.environ[SETTINGS_VARIABLE] = settings.model_dump_json()
    common: dict[str, Any] = {
        "host": host,
        "port": port,
        "http": "bertsmith.serve.running:PunctualProtocol",
        "ws": "none",
        "access_log": verbose,
        "log_level": "info" if verbose else "error",
        "server_header": False,
        "timeout_keep_alive": _KEEP_ALIVE,
        "timeout_graceful_shutdown": int(settings.limits.timeout) + 1,
    }
    if workers == 1:
        _end_well()
        uvicorn.run(make_app(settings), **common)
        return
    config = uvicorn.Config("bertsmith.serve.app:app_from_environment", factory=True, workers=workers, **common)
    with tempfile.TemporaryDirectory(prefix="bertsmith-metrics-") as figures:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = figures
        supervisor = Multiprocess(config, [config.bind_socket()])
        supervisor.run()
    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise InputError("no worker could start; the line above says why")


def _end_well() -> None:
    """Uvicorn raises the signal that ended it again; being told to end is no failure, so that has exit code 0."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


@cache
def _seconds() -> float:
    """For the head of a request to come."""
    return ServeSettings.model_validate_json(os.environ[SETTINGS_VARIABLE]).limits.sending


class _PlainParser(httptools.HttpRequestParser):
    """Reads a request that offers another protocol (h2c, as Java's client does) as if it did not.

    The base class ends such a request at its head, and leaves the body to that protocol: it begins again, with a head
    without the offer.
    """

    def __init__(self, protocol: PunctualProtocol) -> None:
        self._protocol = protocol
        self._begin()

    def _begin(self) -> None:
        super().__init__(self._protocol)
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it

    def feed_data(self, data: bytes | bytearray | memoryview[int] | array[int]) -> None:
        """Bytes of one request, or of several."""
        rest = memoryview(data)
        while True:
            try:
                return super().feed_data(rest)
            except httptools.HttpParserUpgrade as end:
                if not self._protocol.offers:
                    raise
                head, rest = self._protocol.head_without_offer(), rest[end.args[0] :]
                self._begin()
                super().feed_data(head)


class _HeadTooLargeError(BertsmithError):
    """Stops the parser."""


class PunctualProtocol(HttpToolsProtocol):
    """HTTP as uvicorn speaks it, but a connection must bring its request, and take the answer, in time.

    Uvicorn itself waits for ever. Of a body that somebody reads the guard keeps the time, a little less, because it can
    answer; here it counts for one that nobody reads. The head of a request is bounded too: all of it is kept before
    anybody is asked for a token.
    """

    stalled: asyncio.TimerHandle | None = None
    head_size = 0  # bytes that the parser gave of this request's address and fields, those after a body included
    kept_size = 0  # bytes that it was given since it last gave anything: it keeps a field until that is whole

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A new client."""
        super().connection_made(transport)
        self.parser = _PlainParser(self)
        self.deadline = self.loop.call_later(_seconds(), transport.abort)

    def data_received(self, data: bytes) -> None:
        """Some bytes of a request, or of several."""
        self.kept_size += len(data)
        super().data_received(data)
        if self.head_size + self.kept_size > _LARGEST_HEAD and not self.transport.is_closing():
            self._refuse_head()

    def send_400_response(self, msg: str) -> None:
        """The parser gave up."""
        if self.head_size > _LARGEST_HEAD:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _refuse_head(self) -> None:
        """An answer, unless one is due to an earlier request, and the end."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
            return
        answer = error_answer(
            431, f"the head is larger than {_LARGEST_HEAD:,} bytes; send less of it", kind="too_large"
        )
        fields = b"".join(b"%b: %b\r\n" % field for field in [*answer.raw_headers, (b"connection", b"close")])
        self.transport.write(STATUS_LINE[431] + fields + b"\r\n" + bytes(answer.body))
        self.transport.close()

    def _count(self, size: int) -> None:
        """So much of a head."""
        self.kept_size = 0
        self.head_size += size
        if self.head_size > _LARGEST_HEAD:
            raise _HeadTooLargeError

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self.kept_size = self.head_size = 0
        super().on_message_begin()
        self.deadline.cancel()
        self.deadline = self.loop.call_later(_seconds(), self.transport.abort)

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole field."""
        self._count(len(name) + len(value) + len(b": \r\n"))
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """A part of the body, which the guard counts."""
        self.kept_size = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self.kept_size = 0
        if self.offers:
            return
        self.deadline.cancel()
        self.deadline = self.loop.call_later(_seconds() + 1, self.transport.abort)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of it is there."""
        self.kept_size = 0
        if self.offers:
            return
        self.deadline.cancel()
        super().on_message_complete()

    @property
    def offers(self) -> bool:
        """Whether the request, as it was read last, offers to go on in another protocol."""
        return self.parser.should_upgrade() and any(name == b"upgrade" for name, _ in self.headers)

    def head_without_offer(self) -> bytes:
        """The same request without the offer."""
        first = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        fields = [b"%b: %b" % field for field in self.headers if field[0] != b"upgrade"]
        return b"\r\n".join([first, *fields, b"", b""])

    def pause_writing(self) -> None:
        """The client does not take the answer."""
        super().pause_writing()
        self._expect_less(self._untaken())

    def _untaken(self) -> int:
        """Bytes of an answer that wait here and in the system's own queue."""
        waiting = self.transport.get_write_buffer_size()
        if sys.platform == "win32":
            return waiting
        queue = array("i", [0])
        with suppress(OSError):  # the connection is gone, or the system does not tell
            fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queue)
        return waiting + queue[0]

    def _expect_less(self, left: int) -> None:
        """A client must take some of so many bytes in time, and then some more: a slow one gets all of them."""

        def look() -> None:
            now = self._untaken()
            if left - now < min(left, _LEAST_TAKEN):
                self.transport.abort()
            else:
                self._expect_less(now)

        self.stalled = self.loop.call_later(_seconds(), look)

    def resume_writing(self) -> None:
        """It takes some."""
        if self.stalled is not None:
            self.stalled.cancel()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self.deadline.cancel()
        if self.stalled is not None:
            self.stalled.cancel()
        super().connection_lost(exc)
