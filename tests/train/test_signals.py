"""Signals are noted, not died of; and whoever handled them before does so again."""

from __future__ import annotations

import os
import signal

import pytest

from bertsmith.train.signals import listening

ALL = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


@pytest.mark.parametrize("number", ALL)
def test_a_signal_is_noted_by_name(number):
    with listening() as stop:
        assert not stop
        os.kill(os.getpid(), number)
        assert stop
        assert stop.name == number.name


def test_a_second_interrupt_does_not_wait():
    with listening() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop


def test_a_scheduler_may_ask_more_than_once_and_a_person_after_it():
    """Only a person's second Ctrl-C is impatience."""
    with listening() as stop:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert stop.name == "SIGINT"


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_the_handlers_from_before_are_put_back(error):
    before = [signal.getsignal(number) for number in ALL]
    try:
        with listening() as stop:
            assert [signal.getsignal(number) for number in ALL] == [stop.receive] * 3
            if error is not None:
                raise error
    except (ValueError, KeyboardInterrupt):
        assert error is not None
    assert [signal.getsignal(number) for number in ALL] == before
