"""The log of a run, and whoever looks at it while it goes on."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from bertsmith.pretraining.health import Health
from bertsmith.train.metrics import LogFile, MetricsLog
from bertsmith.train.speed import measure_peak

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bertsmith.pretraining.fills import Filled
    from bertsmith.pretraining.planning import RunPlan
    from bertsmith.pretraining.request import Request
    from bertsmith.pretraining.settings import Settings
    from bertsmith.train.checkpoint import Progress
    from bertsmith.train.distributed import World
    from bertsmith.train.loop import Record

__all__ = ["Keeper", "Observer"]

_POINTS = 500  # of a curve: more steps than that are averaged


class Observer:
    """Whoever wants to see a run while it goes on; override what is of interest."""

    def on_plan(self, plan: RunPlan, request: Request) -> None:
        """What the run will be."""

    def on_step(self, values: dict[str, float], progress: Progress, total: int) -> None:
        """A line of the log."""

    def on_evaluation(self, figures: dict[str, float], fills: list[Filled], step: int) -> None:
        """An evaluation, and what the model now puts into gaps."""

    def on_note(self, text: str) -> None:
        """Something that a person should know."""


class Keeper:
    """Keeps the log of a run and tells whoever looks. Only the main process has files."""

    def __init__(
        self, folder: Path, settings: Settings, total: int, world: World, observer: Observer, *, from_step: int
    ) -> None:
        self.last: dict[str, float] = {}
        self.fills: list[tuple[int, list[Filled]]] = []
        self._settings, self._total, self._observer = settings, total, observer
        self._health = Health(settings)
        self._peak = measure_peak(repeats=5, device=world.device.type).flops * world.size
        self._every = max(1, total // _POINTS)
        self._records: list[Record] = []
        from_step = from_step or -1  # from the beginning nothing is kept, not even the evaluation at step 0
        self._metrics = MetricsLog(folder, from_step=from_step) if world.is_main else None
        self._examples = LogFile(folder / "examples.jsonl", from_step=from_step) if world.is_main else None

    def on_step(self, record: Record, progress: Progress) -> None:
        """One step: its examples always, figures as often as a curve has points."""
        self._records.append(record)
        wanted = self._settings.mask_rate(record.step - 1, self._total) or self._settings.masking.rate
        for remark in self._health.after_step(record.figures, record.counts["maskable"], wanted):
            self._remark(remark, record.step)
        if self._examples is not None:
            self._examples.add({"step": record.step, **record.log})
        if record.step % self._every == 0 or record.step == self._total:
            values = self._summary(progress)
            self._records.clear()
            self._log("train", record.step, values)
            self._observer.on_step(values, progress, self._total)

    def on_evaluation(self, figures: dict[str, float], fills: list[Filled], progress: Progress) -> None:
        """An evaluation, and what the model now puts into the gaps."""
        self.last = figures
        self.fills.append((progress.step, fills))
        self._log("eval", progress.step, {"seconds": progress.seconds, "tokens": progress.tokens, **figures})
        for fill in fills:
            entry = {"text": fill.gap.text, "answer": fill.gap.answer, "candidates": fill.candidates}
            self._log("fill", progress.step, entry)
        for remark in self._health.after_evaluation(progress.step, figures):
            self._remark(remark, progress.step)
        self._observer.on_evaluation(figures, fills, progress.step)

    def close(self) -> None:
        """The last line is written."""
        for log in (self._metrics, self._examples):
            if log is not None:
                log.close()

    def _log(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        if self._metrics is not None:
            self._metrics.add(kind, step, values)

    def _remark(self, text: str, step: int) -> None:
        self._log("note", step, {"text": text})
        self._observer.on_note(text)

    def _summary(self, progress: Progress) -> dict[str, float]:
        """Means over the steps since the last line."""
        records = self._records
        seconds = sum(record.seconds for record in records)
        names = records[-1].figures
        return {
            "seconds": progress.seconds,
            "tokens": progress.tokens,
            **{name: statistics.fmean(record.figures[name] for record in records) for name in names},
            "rate": records[-1].rate,
            "norm": statistics.fmean(record.norm for record in records),
            "tokens_per_second": sum(record.counts["tokens"] for record in records) / seconds,
            "share_of_peak": sum(record.counts["operations"] for record in records) / seconds / self._peak,
        }
