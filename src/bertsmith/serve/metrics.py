"""Figures for Prometheus. With several worker processes they are added up over all of them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

__all__ = ["Metrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TOKENS = (16, 64, 256, 512, 1024, 1536, 4096, 16384, 65536)


class Metrics:
    """All of them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ("route", "status")
        self._requests = Counter("bertsmith_requests", "Answered requests.", labels, registry=self._registry)
        self._seconds = Histogram(
            "bertsmith_request_seconds",
            "From the first byte of a request to its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._queue = Gauge(
            "bertsmith_queue_tokens",
            "Tokens that wait for the model.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._batch = Histogram(
            "bertsmith_batch_tokens", "Tokens of a batch.", buckets=_TOKENS, registry=self._registry
        )
        self._tokens = Counter("bertsmith_tokens", "Tokens that went through a model.", registry=self._registry)
        self._sequences = Counter("bertsmith_sequences", "Sequences that did.", registry=self._registry)
        self._busy = Counter("bertsmith_busy_seconds", "Seconds of workers in a model.", registry=self._registry)
        self._speed = Gauge(
            "bertsmith_tokens_per_second",
            "Tokens a second while at work, over the last batches.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def ran(self, sequences: int, tokens: int, seconds: float) -> None:
        """A batch."""
        self._batch.observe(tokens)
        self._tokens.inc(tokens)
        self._sequences.inc(sequences)
        self._busy.inc(seconds)

    def standing(self, waiting: int, speed: float) -> None:
        """How it stands now."""
        self._queue.set(waiting)
        self._speed.set(speed)

    def shown(self) -> bytes:
        """In Prometheus' own form."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        _forget_the_dead(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def _forget_the_dead(folder: Path) -> None:
    """A worker that was killed has no queue; what it counted stays."""
    for process in {int(path.stem.rpartition("_")[2]) for path in folder.glob("gauge_live*_*.db")}:
        try:
            os.kill(process, 0)
        except (ProcessLookupError, PermissionError):  # or its number is somebody else's now
            with suppress(FileNotFoundError):  # another worker was asked at the same time
                mark_process_dead(process)  # type: ignore[no-untyped-call]
