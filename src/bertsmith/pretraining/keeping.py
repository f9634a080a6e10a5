"""The log of a run, and whoever looks at it while it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertsmith.pretraining.health import Health
from bertsmith.train.keeping import RunLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bertsmith.pretraining.fills import Filled
    from bertsmith.pretraining.planning import RunPlan
    from bertsmith.pretraining.request import Request
    from bertsmith.pretraining.settings import Settings
    from bertsmith.train.checkpoint import Progress
    from bertsmith.train.distributed import World
    from bertsmith.train.loop import Record

__all__ = ["Keeper", "Observer"]


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
    """Keeps the log of a run, looks after its health, and tells whoever looks."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        total: int,
        world: World,
        observer: Observer,
        *,
        from_step: int,
        baselines: Mapping[str, float],
        remarks: Sequence[str] = (),
    ) -> None:
        self.last: dict[str, float] = {}
        self.fills: list[tuple[int, list[Filled]]] = []
        self._settings, self._observer = settings, observer
        self._health = Health(settings, commoner_pair=baselines.get("pair_accuracy", 0.5))
        self._log = RunLog(folder, total, world, from_step=from_step)
        for text in remarks if from_step == 0 else ():
            self._log.add("note", 0, {"text": text})

    def on_step(self, record: Record, progress: Progress) -> None:
        """One step."""
        wanted = self._settings.mask_rate(record.step - 1, self._log.total) or self._settings.masking.rate
        for remark in self._health.after_step(record.step, record.figures, record.counts["maskable"], wanted):
            self._remark(remark, record.step)
        values = self._log.step(record, progress)
        if values is not None:
            self._observer.on_step(values, progress, self._log.total)

    def on_evaluation(self, figures: dict[str, float], fills: list[Filled], progress: Progress) -> None:
        """An evaluation, and what the model now puts into the gaps."""
        self.last = figures
        self.fills.append((progress.step, fills))
        self._log.add("eval", progress.step, {"seconds": progress.seconds, "tokens": progress.tokens, **figures})
        for fill in fills:
            entry = {"text": fill.gap.text, "answer": fill.gap.answer, "candidates": fill.candidates}
            self._log.add("fill", progress.step, entry)
        for remark in self._health.after_evaluation(progress.step, figures):
            self._remark(remark, progress.step)
        self._observer.on_evaluation(figures, fills, progress.step)

    def close(self) -> None:
        """The last line is written."""
        self._log.close()

    def _remark(self, text: str, step: int) -> None:
        self._log.add("note", step, {"text": text})
        self._observer.on_note(text)
