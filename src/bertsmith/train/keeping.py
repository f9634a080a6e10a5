"""The log of a run as it goes on: every step's examples, and means of figures as often as a curve has points."""

from __future__ import annotations

import statistics
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from bertsmith.train.metrics import LogFile, MetricsLog
from bertsmith.train.speed import measure_peak, working_type

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bertsmith.train.checkpoint import Progress
    from bertsmith.train.distributed import World
    from bertsmith.train.loop import Record

__all__ = ["RunLog"]

_POINTS = 500  # of a curve: more steps than that are averaged


@cache
def _peak_of(device: str, dtype: torch.dtype, threads: int) -> float:
    """Operations a second; measured once where a process makes many runs."""
    del threads
    return measure_peak(repeats=5, device=device, dtype=dtype).flops


class RunLog:
    """`metrics.jsonl`, TensorBoard and `examples.jsonl`. Only the main process has files."""

    def __init__(self, folder: Path, total: int, world: World, *, from_step: int) -> None:
        self.total = total
        self._peak = _peak_of(world.device.type, working_type(world.device), torch.get_num_threads()) * world.size
        self._every = max(1, total // _POINTS)
        self._records: list[Record] = []
        from_step = from_step or -1  # from the beginning nothing is kept, not even the evaluation at step 0
        self._metrics = MetricsLog(folder, from_step=from_step) if world.is_main else None
        self._examples = LogFile(folder / "examples.jsonl", from_step=from_step) if world.is_main else None

    def step(self, record: Record, progress: Progress) -> dict[str, float] | None:
        """One step: its examples always; figures where a line is due, and then they are returned."""
        self._records.append(record)
        if self._examples is not None:
            self._examples.add({"step": record.step, **record.log})
        if record.step % self._every and record.step != self.total:
            return None
        values = self._summary(progress)
        self._records.clear()
        self.add("train", record.step, values)
        return values

    def add(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """One line of another kind."""
        if self._metrics is not None:
            self._metrics.add(kind, step, values)

    def close(self) -> None:
        """The last line is written."""
        for log in (self._metrics, self._examples):
            if log is not None:
                log.close()

    def _summary(self, progress: Progress) -> dict[str, float]:
        """Means over the steps since the last line."""
        records = self._records
        seconds = sum(record.seconds for record in records)
        means = {name: _mean(name, [record.figures[name] for record in records]) for name in records[-1].figures}
        return {
            "seconds": progress.seconds,
            "tokens": progress.tokens,
            **means,
            "rate": records[-1].rate,
            "norm": statistics.fmean(record.norm for record in records),
            "tokens_per_second": sum(record.counts["tokens"] for record in records) / seconds,
            "share_of_peak": sum(record.counts["operations"] for record in records) / seconds / self._peak,
            "seconds_left": (self.total - progress.step) * seconds / len(records),
        }


def _mean(name: str, values: list[float]) -> float:
    """A perplexity is the exponential of a loss, and so is its mean."""
    return statistics.geometric_mean(values) if name == "perplexity" else statistics.fmean(values)
