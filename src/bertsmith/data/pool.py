"""Work units on many processes, or on a Ray cluster. Jobs are taken as there is room for them, never all at once."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from bertsmith.errors import BertsmithError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Engine", "check_workers", "end_with_parent", "run_jobs"]

Engine = Literal["local", "ray"]
Job = TypeVar("Job")
Result = TypeVar("Result")

_AHEAD = 2  # jobs that wait beside those that run


def run_jobs(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    *,
    workers: int | None = None,
    engine: Engine = "local",
    ray_address: str | None = None,
) -> Iterator[Result]:
    """The results of all jobs, in the order in which they get done.

    `function` must be importable by name. With one worker everything happens in this process.
    """
    check_workers(workers)
    if engine == "ray":
        return _run_ray(function, jobs, ray_address, workers)
    workers = workers or _num_cores()
    return map(function, jobs) if workers == 1 else _run_processes(function, jobs, workers)


def check_workers(workers: int | None) -> None:
    """Refuse a number that cannot be; long work may ask this before it begins."""
    if workers is not None and workers < 1:
        raise InputError(f"--workers must be at least 1, not {workers}")


def _num_cores() -> int:
    """The cores that this process may use; not every system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_processes(function: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin_worker)
    running: set[Future[Result]] = set()
    finished = False
    try:
        for job in jobs:
            running.add(pool.submit(function, job))
            if len(running) >= workers + _AHEAD:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
        finished = True
    except BrokenProcessPool as error:
        raise BertsmithError("a worker process was killed; is there enough memory? Try fewer --workers") from error
    finally:
        if not finished:
            for process in list((pool._processes or {}).values()):  # the pool has no public way before Python 3.14
                process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker() -> None:
    """One core a worker; Ctrl-C is the parent's to handle; and a worker does not outlive its parent."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """For a process that another one has spawned: end at once when that one is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_ray(
    function: Callable[[Job], Result], jobs: Iterable[Job], address: str | None, workers: int | None
) -> Iterator[Result]:
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise InputError("--engine ray needs Ray: pip install 'bertsmith[cluster]'") from error
    begun = not ray.is_initialized()
    if begun:
        ray.init(
            address=address or "local",
            num_cpus=workers if address is None else None,
            include_dashboard=False if address is None else None,
            log_to_driver=False,
            logging_level="ERROR",
        )
    remote = ray.remote(function)
    room = int(ray.cluster_resources().get("CPU", 1)) + _AHEAD
    running: list[Any] = []
    try:
        for job in jobs:
            running.append(remote.remote(job))
            if len(running) >= room:
                done, running = ray.wait(running)
                yield from _ray_results(ray, done)
        while running:
            done, running = ray.wait(running)
            yield from _ray_results(ray, done)
    finally:
        for task in running:
            ray.cancel(task, force=True)
        if begun:
            ray.shutdown()


def _ray_results(ray: Any, done: list[Any]) -> Iterator[Any]:
    try:
        yield from ray.get(done)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, BertsmithError):
            raise error.cause from None  # in the words of the task, without Ray's trace around it
        raise
    except ray.exceptions.RayError as error:
        raise BertsmithError(f"a task on the Ray cluster was lost ({str(error).splitlines()[0]})") from error
