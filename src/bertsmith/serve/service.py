"""What all routes share: inputs through a program and the batcher, within the limits, for as long as somebody waits."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from bertsmith.errors import InputError
from bertsmith.serve.answers import FieldError, TooLargeError, error_answer, json_answer
from bertsmith.serve.batching import OverloadedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from fastapi import Request
    from starlette.responses import Response

    from bertsmith.infer.programs import Program
    from bertsmith.serve.batching import Batcher
    from bertsmith.serve.metrics import Metrics
    from bertsmith.serve.served import ServedModels
    from bertsmith.serve.settings import Limits
    from bertsmith.tasks.task import Item

__all__ = ["Service"]

_SHORT = 4096  # characters, or tokens, that are worked on here; more goes to a thread, so that others need not wait
_BATCHES_AT_ONCE = 8  # the most that one item may have
_SLACK = 2  # by which the speed may be better than it has looked
_GONE = 499  # nobody is there to read it


class Service:
    """What all routes share."""

    def __init__(self, models: ServedModels, batcher: Batcher, limits: Limits, metrics: Metrics) -> None:
        self.models, self.batcher, self.limits, self.metrics = models, batcher, limits, metrics
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="aside")
        self._waiting = 0  # characters that wait for it

    def close(self) -> None:
        """End its thread."""
        self._aside.shutdown(wait=False, cancel_futures=True)

    async def ask(
        self, program: Program[Any, Any], inputs: Sequence[Any], *, truncate: bool = True, beside: int = 0
    ) -> list[Any]:
        """The results of a program, one an input; without `truncate` a text that would be cut is refused."""
        results, _ = await self.ask_and_count(program, inputs, truncate=truncate, beside=beside)
        return results

    async def ask_and_count(
        self,
        program: Program[Any, Any],
        inputs: Sequence[Any],
        *,
        truncate: bool = True,
        beside: int = 0,
        field: str = "inputs",
    ) -> tuple[list[Any], int]:
        """And the number of tokens that were read; `field` is where the inputs are from, but for those `beside` it."""
        self.check_number(inputs[beside:])
        size = sum(map(_size, inputs))
        if size > self.limits.body:  # a query or a text stands beside each of many others
            raise TooLargeError(f"{size:,} characters, each pair counted whole; {self.limits.body:,} are the most")
        items = await self.aside(size, lambda: self._encode(program, inputs, truncate, field))
        tokens = sum(item.num_tokens for item in items)
        self.check_tokens(tokens)
        most = _BATCHES_AT_ONCE * self.batcher.budget
        if any(item.num_tokens > most for item in items):
            raise TooLargeError(f"more than {most:,} tokens that the model must read at once, in one text or choice")
        in_time = int(self.batcher.speed_of(program) * self.limits.timeout)
        if in_time and tokens > _SLACK * in_time:
            raise TooLargeError(
                f"{tokens:,} tokens; within {self.limits.timeout:g} seconds about {in_time:,} can be read here"
            )
        outputs = await self.batcher.run(program, items)
        if tokens <= _SHORT:
            return program.decode(inputs, items, outputs), tokens
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._aside, lambda: program.decode(inputs, items, outputs)), tokens

    def check_number(self, texts: Sequence[Any]) -> None:
        """Refuse more texts than one request may have."""
        if len(texts) > self.limits.texts:
            raise TooLargeError(f"{len(texts):,} texts; {self.limits.texts:,} are the most in one request")

    def check_tokens(self, tokens: int) -> None:
        """Refuse more tokens than one request may have."""
        if tokens > self.limits.tokens:
            raise TooLargeError(f"{tokens:,} tokens; {self.limits.tokens:,} are the most in one request")

    async def aside(self, size: int, work: Any) -> Any:
        """Work on so many characters in a thread, or here and now where they are few.

        No more may wait for the thread than one body can have; beyond that a request is refused.
        """
        if size <= _SHORT:
            return work()
        if self._waiting and self._waiting + size > self.limits.body:
            raise OverloadedError(1.0)
        self._waiting += size
        running = asyncio.get_running_loop().run_in_executor(self._aside, work)
        running.add_done_callback(lambda _: self._forget(size))  # not sooner, though whoever asked may have left
        return await asyncio.shield(running)

    def _forget(self, size: int) -> None:
        self._waiting -= size

    def _encode(self, program: Program[Any, Any], inputs: Sequence[Any], truncate: bool, field: str) -> list[Item]:
        try:
            if not truncate and program.cuts(inputs):
                raise TooLargeError("a text is longer than what is read of one")
            return program.encode(inputs)
        except InputError as error:
            raise FieldError(field, str(error)) from error

    async def answer(self, request: Request, work: Awaitable[Any]) -> Response:
        """What work gives, as JSON, unless it takes too long or nobody waits any more."""
        doing = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait((doing, leaving), timeout=self.limits.timeout, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return json_answer(doing.result())
            if leaving.done():
                return error_answer(_GONE, "the client went away", kind="gone")
            return error_answer(
                503, f"no answer within {self.limits.timeout:g} seconds; try again later", kind="timeout"
            )
        finally:
            for task in (doing, leaving):
                task.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _size(value: Any) -> int:
    """Characters, roughly, of whatever a program takes; a text stands beside each of its choices."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, tuple | list):
        return len(value) if value and isinstance(value[0], int) else sum(map(_size, value))
    if choices := getattr(value, "choices", ()):
        return _size(choices) + len(choices) * len(value.text)
    fields = (getattr(value, name, None) for name in ("text", "pair", "question", "context"))
    return sum(_size(field) for field in fields if field is not None)
