"""Signals that mean "save and stop": SIGTERM and SIGUSR1 from a scheduler, Ctrl-C from a person."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["StopRequest", "listening"]

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopRequest:
    """Which signal came, if any. A second Ctrl-C does not wait."""

    def __init__(self) -> None:
        self.name: str | None = None

    def __bool__(self) -> bool:
        return self.name is not None

    def receive(self, number: int, frame: Any) -> None:
        """A signal handler."""
        del frame
        if number == signal.SIGINT and self.name == signal.Signals.SIGINT.name:
            raise KeyboardInterrupt
        self.name = signal.Signals(number).name


@contextmanager
def listening() -> Iterator[StopRequest]:
    """Note the signals instead of dying of them; what handled them before does so again afterwards.

    Only the main thread of a process can listen; in another one no request ever comes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request.receive) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
