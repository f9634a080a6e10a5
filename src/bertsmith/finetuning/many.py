"""Several runs of one request: with other seeds, or with other settings until the best are found.

Every run has a folder of its own, and one that is finished is not run again: what was interrupted goes on where it was.
A run whose loss is not finite has failed, and the others go on. The best model is
`model/` of the whole. Of a search only the best run keeps its weights. `several.json`, which is written first, says
what kind of runs a folder holds; in any other folder nothing is touched.
"""

from __future__ import annotations

import json
import shutil
import statistics
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from bertsmith.config import read_json
from bertsmith.errors import DivergenceError, InputError
from bertsmith.finetuning.keeping import Observer
from bertsmith.finetuning.request import read_request, with_digests
from bertsmith.finetuning.run import Result, finished
from bertsmith.folders import new_folder, refuse_file, remove_unfinished, write_whole
from bertsmith.settings import changed
from bertsmith.train.request import take_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from bertsmith.finetuning.request import Request
    from bertsmith.train.signals import StopRequest

    RunOne = Callable[[Request, Path, Observer | None], Result]

__all__ = [
    "GRID",
    "SEVERAL_FILE",
    "Summary",
    "Trial",
    "check_same",
    "finish",
    "forget_all_but_best",
    "opened",
    "run_grid",
    "run_seeds",
    "with_changes",
]

SEVERAL_FILE = "several.json"
_FAILED = "failed.json"  # in the folder of a run: why it is not to be tried again

# The paper's, appendix A.3.
GRID: dict[str, tuple[Any, ...]] = {
    "batch.size": (16, 32),
    "optimizer.rate": (5e-5, 3e-5, 2e-5),
    "epochs": (2, 3, 4),
}


@dataclass(frozen=True)
class Trial:
    """One run of several: what was changed for it, and how it scored.

    No scores: it was given up early, or `failed` says why it could not go on.
    """

    changes: dict[str, Any]
    scores: dict[str, float] | None
    folder: Path
    failed: str | None = None


@dataclass(frozen=True)
class Summary:
    """All runs. `stopped_by` names the signal where not all of them came to their end."""

    folder: Path
    metric: str
    trials: Sequence[Trial]
    model: Path | None = None
    stopped_by: str | None = None

    @property
    def finished(self) -> list[Trial]:
        """Those with a score, the best first."""
        found = [trial for trial in self.trials if trial.scores]
        return sorted(found, key=lambda trial: -(trial.scores or {})[self.metric])

    @property
    def is_repeated(self) -> bool:
        """Whether the runs differ by their seed alone; only then a mean is one of equals."""
        return all(trial.changes.keys() <= {"seed"} for trial in self.trials)

    def spread(self, name: str) -> tuple[float, float]:
        """The mean of a score, and its standard deviation."""
        values = [trial.scores[name] for trial in self.finished if trial.scores and name in trial.scores]
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


@contextmanager
def opened(folder: Path, kind: str, *, resume: bool, note: Callable[[str], object]) -> Iterator[None]:
    """A folder for runs of a kind: a new one, or with `resume` one that holds such; bad input leaves nothing behind."""
    refuse_file(folder)
    is_new = not folder.exists() or (resume and not any(folder.iterdir()))
    mark = folder / SEVERAL_FILE
    if not is_new:
        if not resume:
            raise InputError(f"{folder}: exists already; go on with --resume, or name a new folder")
        there = read_json(mark).get("kind") if mark.is_file() else None
        if there != kind:
            holds = "no runs" if there is None else f"runs of {there!r}, none of {kind!r},"
            raise InputError(f"{folder}: exists already; it holds {holds} to go on with; name a new folder")
    if is_new and resume:
        note(f"{folder}: nothing to resume, so new runs begin")
    folder.mkdir(parents=True, exist_ok=True)
    remove_unfinished(folder, SEVERAL_FILE, "model", "summary.json")
    _write_json(mark, {"kind": kind})
    try:
        yield
    except InputError:
        if is_new and not any(path.is_dir() for path in folder.iterdir()):  # no run has begun
            shutil.rmtree(folder)
        raise


def run_seeds(
    request: Request, folder: Path, count: int, run_one: RunOne, stop: StopRequest, observer: Observer | None = None
) -> Summary:
    """The same run with `count` seeds, beginning at the request's own."""
    first = request.settings.seed
    changes = [{"seed": first + number} for number in range(count)]
    return _run_all(request, folder, "seed", changes, run_one, stop, observer or Observer(), keep_all=True)


def run_grid(
    request: Request, folder: Path, run_one: RunOne, stop: StopRequest, observer: Observer | None = None
) -> Summary:
    """Every combination of the paper's grid."""
    changes = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
    return _run_all(request, folder, "trial", changes, run_one, stop, observer or Observer())


def _run_all(
    request: Request,
    folder: Path,
    name: str,
    changes: Iterable[dict[str, Any]],
    run_one: RunOne,
    stop: StopRequest,
    observer: Observer,
    *,
    keep_all: bool = False,
) -> Summary:
    metric = str(request.options["metric"])
    trials: list[Trial] = []
    for number, (change, asked) in enumerate([(change, with_changes(request, change)) for change in changes]):
        place = folder / f"{name}-{number:03d}"
        result, failed = finished(place), _failure(place)
        if result is not None or failed is not None:
            check_same(asked, place)
        elif stop:
            return Summary(folder, metric, trials, stopped_by=stop.name)
        else:
            observer.on_run(place.name, change)
            try:
                result = run_one(asked, place, None)
            except DivergenceError as error:
                failed = str(error)
                observer.on_note(f"{place.name}: {failed}")
                _write_json(place / _FAILED, {"failed": failed})
        if result is not None and result.stopped_by is not None:
            return Summary(folder, metric, trials, stopped_by=result.stopped_by)
        trials.append(Trial(change, None if result is None else result.scores, place, failed))
        forget_all_but_best(trials, metric, keep_models=keep_all)
    return finish(folder, metric, trials, None)


def _failure(place: Path) -> str | None:
    """Why a run could not go on, where that is known."""
    path = place / _FAILED
    return str(read_json(path).get("failed")) if path.is_file() else None


def with_changes(request: Request, changes: dict[str, Any]) -> Request:
    """The same with other settings."""
    return replace(request, settings=changed(request.settings, changes))


def check_same(asked: Request, folder: Path) -> None:
    """Refuse a run that was finished as something else than what is asked for now, or with other files."""
    try:
        taken = take_up(asked, read_request(folder))
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error
    with_digests(taken)


def forget_all_but_best(trials: Sequence[Trial], metric: str, *, keep_models: bool = False) -> None:
    """Remove checkpoints, and models but the best one's."""
    best = max((t for t in trials if t.scores), key=lambda t: (t.scores or {})[metric], default=None)
    for trial in trials:
        shutil.rmtree(trial.folder / "checkpoints", ignore_errors=True)  # of one that was given up, or failed
        if trial is not best and not keep_models:
            shutil.rmtree(trial.folder / "model", ignore_errors=True)


def finish(folder: Path, metric: str, trials: Sequence[Trial], stopped_by: str | None) -> Summary:
    """Write what came out, and put the best model where a run has its model."""
    summary = Summary(folder, metric, trials, stopped_by=stopped_by)
    if stopped_by is not None:
        return summary
    if not summary.finished:
        reasons = [trial.failed for trial in trials if trial.failed]
        raise DivergenceError(
            f"{folder}: no run came to its end; of the last: {reasons[-1] if reasons else 'given up'}"
        )
    best, target = summary.finished[0], folder / "model"
    if not (best.folder / "model").is_dir():
        raise InputError(f"{best.folder}: is the best run, and its model is gone; begin again in another folder")
    if target.exists():
        shutil.rmtree(target)
    with new_folder(target) as aside:
        shutil.copytree(best.folder / "model", aside, dirs_exist_ok=True)
    names = sorted({name for trial in summary.finished for name in trial.scores or {}})
    content = {
        "metric": metric,
        "best": {"folder": best.folder.name, "changes": best.changes, "scores": best.scores},
        "mean": {name: summary.spread(name)[0] for name in names},
        "spread": {name: summary.spread(name)[1] for name in names},
        "trials": [
            {"folder": t.folder.name, "changes": t.changes, "scores": t.scores, "failed": t.failed} for t in trials
        ],
    }
    _write_json(folder / "summary.json", content)
    return replace(summary, model=target)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))
