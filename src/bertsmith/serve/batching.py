"""Work of many requests, packed into common batches.

A worker that is free takes what is waiting at once; so work waits only while all workers are busy, and batches grow
by themselves under load. Requests take turns: each may put a few hundred tokens into a batch before the next one's
turn, so a long text, or a request of a thousand texts, does not hold up a short one for more than a round.
Batches are of one program (an embedding and a fill-in do not mix), and of no more than the token budget, unless a
single item is.

The queue is bounded by time: what would wait longer than `max_wait` seconds, at the speed of the last batches, is
refused at once; who waits for a result and goes away, or runs out of time, has his work taken out of the queue.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from bertsmith.errors import BertsmithError
from bertsmith.model.streams import one_thread_an_operation
from bertsmith.tasks.running import token_budget
from bertsmith.tasks.task import TaskBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from bertsmith.infer.programs import Program
    from bertsmith.tasks.task import Item

__all__ = ["Batcher", "ClosedError", "OverloadedError"]

_log = logging.getLogger("bertsmith.serve")
_TURN = 256  # tokens that a request may add to a batch before others have their turn
_MEMORY = 8192  # tokens after which half of an old speed is forgotten
_SHARE = 128  # tokens that are worth a batch of their own when other workers have nothing to do


class OverloadedError(BertsmithError):
    """The queue is full; `retry_after` says in how many seconds there may be room."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("the service is busy; try again later")
        self.retry_after = retry_after


class ClosedError(BertsmithError):
    """The service is shutting down."""

    def __init__(self) -> None:
        super().__init__("the service is shutting down")


@dataclass(eq=False)
class _Request:
    """Items of one caller on their way through the model."""

    program: Program[Any, Any]
    items: Sequence[Item]
    done: Callable[[list[np.ndarray] | BaseException], None]
    outputs: list[Any] = field(default_factory=list)
    taken: int = 0  # how many items are in a batch already
    missing: int = 0  # how many outputs have not come back
    over: bool = False  # answered, failed, or given up
    left: int = 0  # tokens of items that are in no batch yet


class Batcher:
    """A queue and its workers: a thread for each core, or one for a GPU. Start it, and close it at the end."""

    def __init__(
        self,
        *,
        device: torch.device | str = "cpu",
        max_wait: float = 2.0,
        max_tokens: int = 131_072,
        workers: int | None = None,
        on_batch: Callable[[int, int, float], None] | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.max_wait, self.max_tokens = max_wait, max_tokens
        self.budget = token_budget(self.device)
        self.on_batch = on_batch
        self._queue: deque[_Request] = deque()
        self._tokens = 0  # of all that waits
        self.speed = 0.0  # tokens a second, over the last batches under pressure
        self._done = (0.0, 0.0)  # tokens and seconds behind it
        self._pressed_since: float | None = None  # the last end of a batch, where others were waiting then
        self._changed = threading.Condition()
        self._closing = False
        self._busy = 0  # workers in a batch
        self._one_thread = ExitStack()
        count = workers or (torch.get_num_threads() if self.device.type == "cpu" else 1)
        self._threads = [threading.Thread(target=self._work, name=f"model-{n}", daemon=True) for n in range(count)]

    def start(self) -> None:
        """Until it is closed every operation gets one thread, in the whole process: the workers share the cores."""
        if self.device.type == "cpu":
            self._one_thread.enter_context(one_thread_an_operation())
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Finish what was taken, then end; blocks until that is done."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self._one_thread.close()

    @property
    def waiting_tokens(self) -> int:
        """In the queue, in no batch yet."""
        return self._tokens

    @property
    def room(self) -> int:
        """Tokens that the queue takes: what can be done in `max_wait`, and a batch for each worker in any case."""
        return max(self.budget * len(self._threads), int(self.max_wait * self.speed))

    async def run(self, program: Program[Any, Any], items: Sequence[Item]) -> list[np.ndarray]:
        """What a program says of items. To be awaited in an event loop; cancelling takes the rest off the queue."""
        if not items:
            return []
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[np.ndarray]] = loop.create_future()

        def done(result: list[np.ndarray] | BaseException) -> None:
            loop.call_soon_threadsafe(_settle, future, result)

        request = self.submit(program, items, done)
        try:
            return await future
        finally:
            self.give_up(request)

    def submit(
        self,
        program: Program[Any, Any],
        items: Sequence[Item],
        done: Callable[[list[np.ndarray] | BaseException], None],
    ) -> _Request:
        """Put items into the queue; `done` is called once, from a worker's thread, with outputs or what went wrong."""
        tokens = sum(item.num_tokens for item in items)
        request = _Request(program, items, done, [None] * len(items), missing=len(items), left=tokens)
        with self._changed:
            if self._closing:
                raise ClosedError
            # Others have a turn for each of its turns, so of a large request only a part is ahead. An empty queue takes
            # any: the limits of a request have already judged its size.
            ahead = sum(min(other.left, max(tokens, _TURN)) for other in self._queue)
            if ahead and (ahead + tokens > self.room or self._tokens + tokens > self.room + self.max_tokens):
                raise OverloadedError(ahead / self.speed if self.speed else 1.0)
            self._queue.append(request)
            self._tokens += tokens
            self._changed.notify(1 if len(items) == 1 else len(self._threads))
        return request

    def give_up(self, request: _Request) -> None:
        """Take what is left of a request out of the queue; nothing where it is answered."""
        with self._changed:
            if not request.over:
                request.over = True
                self._drop(request)

    def _drop(self, request: _Request) -> None:
        if request.taken < len(request.items):
            self._tokens -= request.left
            request.taken, request.left = len(request.items), 0
            self._queue.remove(request)

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            program, chosen = batch
            items = [request.items[number] for request, number in chosen]
            began = time.perf_counter()
            try:
                with torch.inference_mode():
                    outputs: list[Any] | BaseException = program.forward(TaskBatch.of(items, self.device))
            except Exception as error:  # a model that fails must not take the service with it
                outputs = error
            if not isinstance(outputs, BaseException):  # a failure says nothing of the speed
                self._note(items, time.perf_counter() - began)
            self._deliver(chosen, outputs)

    def _note(self, items: list[Item], seconds: float) -> None:
        tokens = sum(item.num_tokens for item in items)
        self._judge_speed(tokens, seconds)
        try:
            if self.on_batch is not None:
                self.on_batch(sum(len(item.ids) for item in items), tokens, seconds)
        except Exception:  # such as a disk that is full: no reason to stop working
            _log.exception("the figures of a batch could not be noted")

    def _judge_speed(self, tokens: int, seconds: float) -> None:
        """From batch to batch of all workers, while there is always more to do: what happens between batches counts."""
        now = time.perf_counter()
        with self._changed:
            since, self._pressed_since = self._pressed_since, now if self._queue else None
            if since is not None:
                keep = 0.5 ** (tokens / _MEMORY)
                self._done = (keep * self._done[0] + tokens, keep * self._done[1] + now - since)
            elif not self.speed:
                self._done = (tokens * len(self._threads), seconds)
            else:
                return
            self.speed = self._done[0] / max(self._done[1], 1e-6)

    def _next_batch(self) -> tuple[Program[Any, Any], list[tuple[_Request, int]]] | None:
        """Wait for work and take a batch of it; None when the end has come."""
        with self._changed:
            while not self._queue:
                if self._closing:
                    return None
                if not self._busy:
                    self._pressed_since = None
                self._changed.wait()
            return self._take()

    def _take(self) -> tuple[Program[Any, Any], list[tuple[_Request, int]]]:
        """Requests of the first one's program, in turn, up to the budget; one item in any case.

        Who had a turn and has more goes to the end of the queue; all others keep their places.
        """
        program = self._queue[0].program
        chosen: list[tuple[_Request, int]] = []
        free = max(1, len(self._threads) - self._busy)
        # What is there is shared among the workers that are free.
        room = min(self.budget, max(_SHARE, -(-self._tokens // free)))
        self._busy += 1
        turns = [request for request in self._queue if request.program is program]
        served: dict[int, _Request] = {}
        while turns and room > 0:
            again = []
            for request in turns:
                took = self._turn(request, chosen, room)
                room -= took
                if took:
                    served[id(request)] = request
                    if request.taken < len(request.items):
                        again.append(request)
                if room <= 0:
                    break
            turns = again
        others = [request for request in self._queue if id(request) not in served]
        self._queue = deque([*others, *(r for r in served.values() if r.taken < len(r.items))])
        if self._queue:
            self._changed.notify()
        return program, chosen

    def _turn(self, request: _Request, chosen: list[tuple[_Request, int]], room: int) -> int:
        """Put some items of a request into a batch; gives their tokens."""
        tokens = 0
        while request.taken < len(request.items) and tokens < _TURN:
            size = request.items[request.taken].num_tokens
            if size > room - tokens and (chosen or tokens):
                break
            chosen.append((request, request.taken))
            request.taken += 1
            tokens += size
        self._tokens -= tokens
        request.left -= tokens
        return tokens

    def _deliver(self, chosen: list[tuple[_Request, int]], outputs: list[Any] | BaseException) -> None:
        ready: list[tuple[_Request, list[np.ndarray] | BaseException]] = []
        with self._changed:
            self._busy -= 1
            for place, (request, number) in enumerate(chosen):
                if isinstance(outputs, BaseException):
                    if not request.over:
                        request.over = True
                        self._drop(request)
                        ready.append((request, outputs))
                    continue
                request.outputs[number] = outputs[place]
                request.missing -= 1
                if not request.missing and not request.over:
                    request.over = True
                    ready.append((request, request.outputs))
        for request, result in ready:
            request.done(result)


def _settle(future: asyncio.Future[list[np.ndarray]], result: list[np.ndarray] | BaseException) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
