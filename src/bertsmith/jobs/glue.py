"""`glue`: every task of GLUE whose files are there, one after the other, and its table."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertsmith.errors import DataError, DivergenceError, InputError
from bertsmith.jobs.evaluate import evaluate
from bertsmith.jobs.finetune import finetune, make_request, refuse_several_processes
from bertsmith.tasks.classify import TextTask
from bertsmith.tasks.kinds import make_task
from bertsmith.tasks.presets import GLUE, PRESETS
from bertsmith.train.signals import listening

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bertsmith.finetuning.keeping import Observer
    from bertsmith.finetuning.request import Request

__all__ = ["GlueResult", "GlueRow", "glue"]

_SECOND = "mm"  # mismatched, as MNLI calls its second dev file
_NOT_AVERAGED = "wnli"  # as in the paper: its dev set is made to mislead


@dataclass(frozen=True)
class GlueRow:
    """A task and its scores, those that GLUE reports."""

    task: str
    scores: dict[str, float]
    folder: Path

    @property
    def score(self) -> float:
        """One figure: the mean where GLUE reports two."""
        return statistics.fmean(self.scores.values())


@dataclass(frozen=True)
class GlueResult:
    """The table. The average is over the tasks that are there, WNLI left out, as in the paper.

    `failed` are those whose loss was not finite.
    """

    rows: list[GlueRow]
    missing: list[str]
    failed: list[str]
    stopped_by: str | None = None

    @property
    def averaged(self) -> list[str]:
        """The tasks that the average is over."""
        return [row.task for row in self.rows if row.task != _NOT_AVERAGED]

    @property
    def average(self) -> float | None:
        """Of the tasks' figures; None where there is none."""
        scores = [row.score for row in self.rows if row.task in self.averaged]
        return statistics.fmean(scores) if scores else None


def glue(
    model: str,
    *,
    data: Path,
    output: Path,
    changes: Mapping[str, Any] | None = None,
    resume: bool = False,
    observer: Observer | None = None,
) -> GlueResult:
    """Fine-tune a model on each task in `data` (folders as GLUE names them), each into a folder of `output`.

    All files are read before the first run begins, so that one that is broken does not end hours of work. MNLI is
    scored on both its dev files.
    """
    refuse_several_processes()
    if output.exists() and not resume:
        raise InputError(f"{output}: exists already; go on with --resume, or name a new folder")
    found = {name: _files(data, name) for name in GLUE}
    if not any(found.values()):
        raise InputError(f"{data}: no task of GLUE is here; expected folders such as {data / 'MRPC'} with train.tsv")
    rows: list[GlueRow] = []
    failed: list[str] = []
    missing = [name for name, files in found.items() if files is None]
    requests = {
        name: make_request(model, preset=name, train=files[0], dev=files[1], changes=dict(changes or {}))
        for name, files in found.items()
        if files is not None
    }
    seconds = {name: PRESETS[name].find_second(data / PRESETS[name].folder) for name in requests}
    for name, request in requests.items():
        _check_files(request, seconds[name])
    with listening() as stop:
        for name, request in requests.items():
            if stop:
                return GlueResult(rows, missing, failed, stop.name)
            if observer is not None:
                observer.on_note(f"{name}:")
            try:
                result = finetune(request, output / name, resume=resume, observer=observer, stop=stop)
            except DivergenceError as error:  # which does not cost the other tasks
                failed.append(name)
                if observer is not None:
                    observer.on_note(str(error))
                continue
            if result.stopped_by is not None:
                return GlueResult(rows, missing, failed, result.stopped_by)
            scores = {score: result.scores[score] for score in PRESETS[name].reported}
            if (second := seconds[name]) is not None:
                others = evaluate(str(result.model), data=str(second))
                scores |= {f"{score}_{_SECOND}": others[score] for score in PRESETS[name].reported}
            rows.append(GlueRow(name, scores, output / name))
    if not rows:
        raise DivergenceError(f"{output}: no run came to its end: the loss was not finite; take a lower --rate")
    return GlueResult(rows, missing, failed)


def _files(data: Path, name: str) -> tuple[Path, Path] | None:
    """A task's train and dev file, where both are there."""
    preset = PRESETS[name]
    train, dev = preset.find(data / preset.folder)
    return (train, dev) if train.is_file() and dev.is_file() else None


def _check_files(request: Request, second: Path | None) -> None:
    """Read a task's files once, labels too; whatever is wrong with a line is an error now."""
    task = make_task(request.kind, request.options)
    assert isinstance(task, TextTask)
    for file in (request.train, request.dev, second):
        if file is not None and not sum(task.target(example) is not None for example in task.read(str(file))):
            raise DataError(f"{file}, line 1: holds no example")
