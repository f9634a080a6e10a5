"""What stands before every route: the bearer token, the size of a body, the time it may take to come, the figures.

Plain ASGI, because a body must be counted while it comes and not after.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from bertsmith.serve.answers import busy_answer, error_answer, failed_answer
from bertsmith.serve.batching import OverloadedError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from bertsmith.serve.batching import Batcher
    from bertsmith.serve.metrics import Metrics
    from bertsmith.serve.settings import Limits

__all__ = ["Guard"]

_OPEN = ("/", "/health")
_CLOSE = {"connection": "close"}  # what is still to come of a body is not read
_LONGEST_NUMBER = 18  # digits; Python refuses to read thousands
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'"),
]


class Guard:
    """Wraps the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        metrics: Metrics,
        token: str | None,
        batcher: Batcher,
        queued: frozenset[str],
    ) -> None:
        self.app, self.limits, self.metrics, self.batcher = app, limits, metrics, batcher
        self.queued = queued  # paths whose requests go through the batcher
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def tell(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        try:
            await self._answer(scope, receive, tell)
        except Exception as error:
            if status:
                raise
            await failed_answer(error)(scope, receive, tell)
        finally:
            route = scope["path"] if scope["path"] in self.queued else getattr(scope.get("route"), "path", "other")
            self.metrics.answered(route, status or 499, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if not self._may_pass(scope["method"], scope["path"], headers.get(b"authorization", b"")):
            answer = error_answer(401, "a bearer token is needed", kind="unauthorized")
            answer.headers.update({"www-authenticate": "Bearer", **_CLOSE})
            await answer(scope, receive, send)
            return
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and (len(length) > _LONGEST_NUMBER or int(length) > self.limits.body):
            answer = error_answer(413, _too_large(self.limits), kind="too_large")
            answer.headers.update(_CLOSE)
            await answer(scope, receive, send)
            return
        if scope["method"] == "POST" and scope["path"] in self.queued:
            try:
                self.batcher.refuse_if_full()
            except OverloadedError as error:  # at once: before the body is read, which costs more than all of this
                await busy_answer(error)(scope, receive, send)
                return
        await self.app(scope, _Body(receive, self.limits).receive, send)

    def _may_pass(self, method: str, path: str, header: bytes) -> bool:
        seen_by_all = method in ("GET", "HEAD") and (path in _OPEN or path.startswith("/page/"))
        if self._token is None or seen_by_all:
            return True
        kind, _, given = header.partition(b" ")
        # Always compared, and in constant time, whatever the header is.
        return hmac.compare_digest(given.strip(), self._token) and kind.lower() == b"bearer"


def _too_large(limits: Limits) -> str:
    return f"the body is larger than {limits.body:,} bytes"


class _Body:
    """Counts a body while it comes. What it raises is an `HTTPException`, because FastAPI lets no other through."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._size, self._whole = 0, False
        self._deadline = time.monotonic() + limits.sending

    async def receive(self) -> Message:
        """The next part; after the last one only the end of the connection can come, and may take its time."""
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            why = f"the body did not come within {self._limits.sending:g} seconds"
            raise HTTPException(408, why, _CLOSE) from None
        self._size += len(message.get("body", b""))
        if self._size > self._limits.body:
            raise HTTPException(413, _too_large(self._limits), _CLOSE)
        self._whole = not message.get("more_body", False)
        return message
