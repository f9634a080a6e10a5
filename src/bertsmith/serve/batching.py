"""Work of many requests, packed into common batches.

A worker that is free takes what is waiting at once; so work waits only while all workers are busy, and batches grow
by themselves under load. Requests take turns: each may put a few hundred tokens into a batch before the next one's
turn, so a long text, or a request of a thousand texts, does not hold up a short one for more than a round.
Batches are of one program (an embedding and a fill-in do not mix), and of no more than the token budget, unless a
single item is.

The queue is bounded by time: what would wait longer than `max_wait` seconds, at the speed of each model's last batches,
is refused at once; who waits for a result and goes away, or runs out of time, has his work taken out of the queue.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

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

__all__ = ["Batcher", "ClosedError", "OverloadedError", "Pace"]

_log = logging.getLogger("bertsmith.serve")
_TURN = 256  # tokens that a request may add to a batch before others have their turn
_MEMORY = 8192  # tokens after which half of an old speed is forgotten
_SWITCH = 0.0005  # seconds that the event loop may keep a worker waiting between two operations
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


@dataclass(frozen=True)
class Pace:
    """How fast the workers together are with a model: tokens, and the seconds that these took."""

    tokens: float
    seconds: float

    def after(self, tokens: int, seconds: float) -> Pace:
        """With one batch more; the older, the less it counts."""
        keep = 0.5 ** (tokens / _MEMORY)
        return Pace(keep * self.tokens + tokens, keep * self.seconds + seconds)

    @property
    def speed(self) -> float:
        """In tokens a second."""
        return self.tokens / max(self.seconds, 1e-6)


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
        self.paces: WeakKeyDictionary[Any, Pace] = WeakKeyDictionary()  # of each model
        self.speed = 0.0  # of the model that ran last, in tokens a second
        self._changed = threading.Condition()
        self._closing = False
        self._busy = 0  # workers in a batch
        self._meanwhile = ExitStack()
        count = workers or (torch.get_num_threads() if self.device.type == "cpu" else 1)
        self._threads = [threading.Thread(target=self._work, name=f"model-{n}", daemon=True) for n in range(count)]

    def start(self) -> None:
        """Until it is closed every operation gets one thread, in the whole process: the workers share the cores.

        And Python's threads take turns more often.
        """
        if self.device.type == "cpu":
            self._meanwhile.enter_context(one_thread_an_operation())
        self._meanwhile.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(_SWITCH)
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
        self._meanwhile.close()

    @property
    def waiting_tokens(self) -> int:
        """In the queue, in no batch yet."""
        return self._tokens

    def speed_of(self, program: Program[Any, Any]) -> float:
        """Tokens a second of a program's model; of the one that ran last where it has not run yet."""
        return self._speed_with(program.model)

    def _speed_with(self, model: object) -> float:
        pace = self.paces.get(model)
        return self.speed if pace is None else pace.speed

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
            if self._queue:
                self._refuse_if_full(program, tokens)
            self._queue.append(request)
            self._tokens += tokens
            self._changed.notify(1 if len(items) == 1 else len(self._threads))
        return request

    def refuse_if_full(self) -> None:
        """Where there is not room for one turn more, say so before anything is done for a request."""
        with self._changed:
            if self._queue:
                self._refuse_if_full(self._queue[0].program, _TURN)

    def _refuse_if_full(self, program: Program[Any, Any], tokens: int) -> None:
        """Beyond `max_wait` seconds; though a batch for each worker may wait in any case."""
        ahead: dict[Any, int] = {}
        for other in self._queue:
            ahead[other.program.model] = ahead.get(other.program.model, 0) + min(other.left, max(tokens, _TURN))
        speeds = {model: self._speed_with(model) for model in (*ahead, program.model)}
        least = self.budget * len(self._threads)
        wait = sum(number / speeds[model] for model, number in ahead.items() if speeds[model])
        own = speeds[program.model]
        late = not own or wait + tokens / own > self.max_wait
        crowded = self._tokens + tokens > max(least, self.max_wait * own) + self.max_tokens
        if crowded or (late and sum(ahead.values()) + tokens > least):
            raise OverloadedError(wait or 1.0)

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
        last = 0.0  # when the batch before this one ended
        while (batch := self._next_batch()) is not None:
            program, chosen, waited = batch
            items = [request.items[number] for request, number in chosen]
            began = time.perf_counter()
            try:
                with torch.inference_mode():
                    outputs: list[Any] | BaseException = program.forward(TaskBatch.of(items, self.device))
            except Exception as error:  # a model that fails must not take the service with it
                outputs = error
            now = time.perf_counter()
            if not isinstance(outputs, BaseException):  # a failure says nothing of the speed
                self._judge_speed(program, items, now - began, None if waited else now - last)
                self._note(items, now - began)
            last = now
            self._deliver(chosen, outputs)

    def _note(self, items: list[Item], seconds: float) -> None:
        tokens = sum(item.num_tokens for item in items)
        try:
            if self.on_batch is not None:
                self.on_batch(sum(len(item.ids) for item in items), tokens, seconds)
        except Exception:  # such as a disk that is full: no reason to stop working
            _log.exception("the figures of a batch could not be noted")

    def _judge_speed(
        self, program: Program[Any, Any], items: list[Item], seconds: float, since_last: float | None
    ) -> None:
        """From a worker's batch to its next, where there was always more to do: what happens between them counts.

        The time in the model alone is taken only until there is something better.
        """
        tokens = sum(item.num_tokens for item in items)
        with self._changed:
            pace = self.paces.get(program.model)
            if pace is None:
                pace = Pace(tokens * len(self._threads), seconds)
            elif since_last is not None:
                pace = pace.after(tokens, since_last / len(self._threads))
            self.paces[program.model] = pace
            self.speed = pace.speed

    def _next_batch(self) -> tuple[Program[Any, Any], list[tuple[_Request, int]], bool] | None:
        """Take a batch of what is there, and say whether it had to be waited for; None when the end has come."""
        waited = False
        with self._changed:
            while not self._queue:
                if self._closing:
                    return None
                waited = True
                self._changed.wait()
            return *self._take(), waited

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
