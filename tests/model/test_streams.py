"""Jobs on several threads: order, threads put back, errors, and a reader that stops early."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
import torch

from bertsmith.model.streams import one_thread_an_operation, run_streams


@pytest.fixture(autouse=True)
def _three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_results_come_in_order_from_several_threads_with_one_thread_inside():
    together = threading.Barrier(3, timeout=10)

    def job(number):
        if number < 3:
            together.wait()  # passes only if three run at once
        return number, torch.get_num_threads()

    assert list(run_streams(job, range(40))) == [(number, 1) for number in range(40)]
    assert torch.get_num_threads() == 3


def test_one_job_alone_keeps_all_threads():
    assert list(run_streams(lambda _: torch.get_num_threads(), [0])) == [3]


def test_jobs_are_not_taken_far_ahead():
    taken = []
    results = run_streams(lambda number: number, (taken.append(number) or number for number in range(100)))
    assert next(results) == 0
    assert len(taken) <= 8
    results.close()
    assert torch.get_num_threads() == 3


def test_an_error_reaches_the_caller_and_threads_are_put_back():
    with pytest.raises(ZeroDivisionError):
        list(run_streams(lambda number: 1 // number, [3, 2, 1, 0, 5]))
    assert torch.get_num_threads() == 3


def test_the_last_of_several_users_puts_the_threads_back():
    with ExitStack() as one, ExitStack() as two:
        one.enter_context(one_thread_an_operation())
        two.enter_context(one_thread_an_operation())
        one.close()
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
