"""Work on all cores of a CPU: a batch on each thread, every operation inside it on one.

Threads that share each operation wait for each other thousands of times a second, and one that the system
holds up holds up the rest. Threads that share nothing but the weights never wait.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["one_thread_an_operation", "run_streams"]

Job = TypeVar("Job")
Result = TypeVar("Result")

_lock = threading.Lock()
_users: list[int] = []  # how many threads torch had when each of those who are inside came


def run_streams(function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
    """The results of all jobs, in order; at most two jobs a thread are taken ahead of what was given out.

    One job alone, or a single thread, runs as it is.
    """
    jobs = iter(jobs)
    first = list(islice(jobs, 2))
    num_streams = torch.get_num_threads()
    if num_streams == 1 or len(first) < 2:
        yield from map(function, chain(first, jobs))
        return
    with one_thread_an_operation(), ThreadPoolExecutor(num_streams) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for job in chain(first, jobs):
                waiting.append(pool.submit(function, job))
                if len(waiting) > 2 * num_streams:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def one_thread_an_operation() -> Iterator[None]:
    """Torch has one setting for the whole process: the last to leave puts back what the first one found."""
    with _lock:
        _users.append(_users[0] if _users else torch.get_num_threads())
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            torch.set_num_threads(_users.pop())
            if _users:
                torch.set_num_threads(1)
